/** Constructors of valid verdicts. A judgement that failed is an abstention with its reason. */

import { create } from "@bufbuild/protobuf";

import {
  AbstainReason,
  type Finding,
  type FindingKind,
  FindingSchema,
  Outcome,
  type Verdict,
  VerdictSchema,
} from "../gen/dramaturg/api/common/v1/verdict_pb.js";

/** Optional parts of a verdict. */
export interface VerdictOptions {
  /** The reason, in words. */
  rationale?: string;
  /** The probability that the outcome is right, from 0 to 1, where it is measured. */
  confidence?: number;
}

/** The criterion is met. */
export function passed(criterion: string, options: VerdictOptions = {}): Verdict {
  return create(VerdictSchema, { criterion, outcome: Outcome.PASS, ...options });
}

/** The criterion is not met. */
export function failed(criterion: string, findings: Finding[] = [], options: VerdictOptions = {}): Verdict {
  return create(VerdictSchema, { criterion, outcome: Outcome.FAIL, findings, ...options });
}

/** The criterion has a scale, and the score is on it. */
export function scored(criterion: string, score: number, options: VerdictOptions = {}): Verdict {
  return create(VerdictSchema, { criterion, outcome: Outcome.SCORED, score, ...options });
}

/** There is no judgement. */
export function abstained(criterion: string, abstainReason: AbstainReason, rationale = ""): Verdict {
  return create(VerdictSchema, { criterion, outcome: Outcome.ABSTAIN, abstainReason, rationale });
}

/**
 * A fault.
 *
 * @param kind The kind.
 * @param description The problem, as text.
 * @param steps Indices into the candidate's steps, from 0.
 */
export function finding(kind: FindingKind, description: string, steps: readonly number[] = []): Finding {
  const stepIndices = [...new Set(steps)].sort((one, other) => one - other);
  return create(FindingSchema, { kind, description, stepIndices });
}

/** The criteria that an empty candidate fails; it abstains from all others. */
const FAILED_WHEN_EMPTY: ReadonlySet<string> = new Set(["no_missing_steps", "completes_goal"]);

/** The verdicts on a candidate without content. */
export function emptyCandidate(criteria: readonly string[]): Verdict[] {
  const rationale = "The candidate has no content.";
  return criteria.map((criterion) =>
    FAILED_WHEN_EMPTY.has(criterion)
      ? failed(criterion, [], { rationale })
      : abstained(criterion, AbstainReason.NOT_APPLICABLE, rationale),
  );
}

/**
 * One verdict for each criterion, in order. A criterion without a verdict abstains (`NOT_SUPPORTED`).
 *
 * @throws Error if a verdict is on another criterion, or a criterion has two.
 */
export function inOrder(verdicts: readonly Verdict[], criteria: readonly string[]): Verdict[] {
  const given = new Map<string, Verdict>();
  for (const verdict of verdicts) {
    if (given.has(verdict.criterion)) throw new Error(`two verdicts on ${verdict.criterion}`);
    given.set(verdict.criterion, verdict);
  }
  const ordered = criteria.map(
    (one) => given.get(one) ?? abstained(one, AbstainReason.NOT_SUPPORTED, "The judge gave no verdict."),
  );
  for (const criterion of criteria) given.delete(criterion);
  const [unknown] = given.keys();
  if (unknown !== undefined) throw new Error(`a verdict on ${unknown}, which was not asked for`);
  return ordered;
}
