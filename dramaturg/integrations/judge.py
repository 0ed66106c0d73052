"""A judge as a harness calls it, and its judgements in plain values."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from dramaturg.api.evaluation.v1.run_pb2 import RunSample
    from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
    from dramaturg.evaluation import Criteria, Judges
    from dramaturg.service.settings import ChannelSettings


@dataclasses.dataclass(frozen=True)
class HarnessJudgement:
    """One judgement of an output. Equal fields in every harness, and JSON in and out."""

    criterion: str
    """The id of the criterion; of other kinds of evaluation the measure."""
    outcome: str
    """"PASS", "FAIL" or "ABSTAIN". Empty: the judgement is a number."""
    value: float | None = None
    """1 for PASS, 0 for FAIL; the place of a score on its scale, from 0 to 1. None: an abstention."""
    label: str = ""
    """The part that is no number, e.g. "4 of 1 to 5". Empty: none."""
    abstain_reason: str = ""
    """The reason of an abstention, e.g. "TIMED_OUT". Empty: it does not abstain."""
    failure_reason: str = ""
    """The failure of the author to give a usable output, e.g. "EMPTY". Empty: none."""
    confidence: float | None = None
    """The measured probability that the outcome is right. None: not stated."""
    rationale: str = ""
    """The reason, as text."""
    findings: tuple[Mapping[str, Any], ...] = ()
    """The faults found, each with the fields of ``common.v1.Finding`` in JSON."""
    judge: str = ""
    """The registered name of the judge or panel. Empty: several judges."""
    provenance: tuple[Mapping[str, Any], ...] = ()
    """Of each judge its version, prompts, model calls and usage: ``common.v1.Provenance`` in JSON."""

    @property
    def passed(self) -> bool | None:
        """Whether the criterion is met. None: an abstention, or a number."""
        return {"PASS": True, "FAIL": False}.get(self.outcome)

    @property
    def abstained(self) -> bool:
        """Whether there is no judgement."""
        return self.outcome == "ABSTAIN"

    @property
    def explanation(self) -> str:
        """The reason of an abstention, the rationale and the findings, one a line."""
        descriptions = [one.get("description") or one.get("missingStep", "") for one in self.findings]
        return "\n".join(filter(None, (self.abstain_reason, self.rationale, *descriptions)))

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values; empty ones are left out."""
        return {key: value for key, value in dataclasses.asdict(self).items() if value not in (None, "", ())}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """The judgement of ``to_json``.

        Raises:
            TypeError: A field is unknown or missing.
        """
        lists = {key: tuple(record[key]) for key in ("findings", "provenance") if key in record}
        return cls(**{"outcome": "", **record, **lists})


@dataclasses.dataclass(frozen=True)
class HarnessResult:
    """The judgements of one output."""

    judgements: tuple[HarnessJudgement, ...]
    """One for each criterion."""
    cost_usd: float | None = None
    """The cost in US dollars. None: no price is known."""
    unpriced_calls: int = 0
    """Model calls without a known price. Above 0, the cost is a lower bound."""

    def __getitem__(self, criterion: str) -> HarnessJudgement:
        """The judgement of a criterion.

        Raises:
            KeyError: It was not judged.
        """
        for one in self.judgements:
            if one.criterion == criterion:
                return one
        raise KeyError(criterion)

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {**dataclasses.asdict(self), "judgements": [one.to_json() for one in self.judgements]}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """The judgements of ``to_json``.

        Raises:
            KeyError: There are no judgements.
            TypeError: A field is unknown or missing.
        """
        return cls(**{**record, "judgements": tuple(map(HarnessJudgement.from_json, record["judgements"]))})


@dataclasses.dataclass(frozen=True)
class HarnessJudge:
    """Judges one output at a time by a rubric, or as a script of a goal.

    It may be called from any thread, also from one with a running event loop: all calls run in one event
    loop, in a thread of its own, since gRPC works best with one loop a process.
    """

    criteria: Criteria | None = None
    """The rubric, as ``evaluate_texts`` takes it. None: outputs are scripts."""
    roles: Sequence[str] = ()
    """The roles that judge scripts. Empty: critic, execute and commonsense."""
    judges: Judges | None = None
    """Names of judges by role. None: the configured defaults."""
    model: str = ""
    """The model of the judges. Empty: their own default."""
    target: str | None = None
    """The address of the gateway. None: ``DRAMATURG_TARGET``, else localhost:50051."""
    settings: ChannelSettings | None = None
    """TLS files and limits of the connection. None: read from the environment."""
    timeout: float | None = None
    """The timeout of a call, in seconds. None: that of the settings."""

    def __call__(self, output: str, *, goal: str, reference: str = "") -> HarnessResult:
        """Judges an output.

        Args:
            output: The text or script.
            goal: The prompt or question that it answers.
            reference: A good output; of a script, one step a line. Empty: none.

        Raises:
            TypeError: An argument is of another type.
            ValueError: An argument is no input.
            ServiceError: The gateway refused the request or failed.
        """
        from dramaturg.evaluation import run_in_own_loop

        return run_in_own_loop(self._judge(output, goal, reference))

    def key(self, output: str, *, goal: str, reference: str = "") -> str:
        """The identity of a call: the SHA-256 of the output and of all that decides its judgement."""
        asked = [
            self._rubric(),
            list(self.roles),
            dict(self.judges or {}),
            self.model,
            goal,
            reference,
            output,
        ]
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()

    def _rubric(self) -> Any:
        from google.protobuf.json_format import MessageToDict

        from dramaturg.evaluation import read_criteria

        return None if self.criteria is None else [MessageToDict(one) for one in read_criteria(self.criteria)]

    async def _judge(self, output: str, goal: str, reference: str) -> HarnessResult:
        from dramaturg.api.evaluation.v1.run_pb2 import RunSample
        from dramaturg.evaluation import evaluate_scripts_async, evaluate_texts_async

        common: dict[str, Any] = {
            "judges": self.judges,
            "model": self.model,
            "target": self.target,
            "settings": self.settings,
            "timeout": self.timeout,
        }
        if self.criteria is not None:
            texts = (
                await evaluate_texts_async(goal, [output], self.criteria, reference=reference, **common)
            ).message
            return judged(RunSample(texts=texts))
        steps = reference.splitlines() if reference else None
        evaluated = await evaluate_scripts_async(goal, [output], reference=steps, roles=self.roles, **common)
        return judged(RunSample(scripts=evaluated.message))


def judged(sample: RunSample) -> HarnessResult:
    """The judgements of a sample of any kind; none if the sample failed."""
    kind = sample.WhichOneof("result")
    if kind is None:
        return HarnessResult(())
    usage = getattr(sample, kind).usage
    return HarnessResult(
        tuple(judgement for _, judgement in judgements(sample)),
        usage.cost_usd if usage.HasField("cost_usd") else None,
        usage.unpriced_call_count,
    )


def judgements(sample: RunSample) -> Iterator[tuple[RunResult, HarnessJudgement]]:
    """The judgements of a sample of any kind, each with its row of the exports."""
    from google.protobuf.json_format import MessageToDict

    from dramaturg.results.kind import judges_of_verdicts
    from dramaturg.results.names import abstention_name, outcome_name, reason_name
    from dramaturg.results.rows import flatten

    result = getattr(sample, sample.WhichOneof("result") or "texts")
    judges = judges_of_verdicts(result, lambda provenance: provenance)
    for row in flatten(sample):
        outcome = outcome_name(row.outcome)
        panel = judges.get((row.candidate_id, row.measure), ())
        given = [row.provenance] if row.HasField("provenance") else panel
        yield (
            row,
            HarnessJudgement(
                criterion=row.measure,
                outcome=outcome,
                value=row.value if row.HasField("value") else None,
                label=row.label,
                abstain_reason=abstention_name(row.abstain_reason) if outcome == "ABSTAIN" else "",
                failure_reason=reason_name(row.failure_reason),
                confidence=row.confidence if row.HasField("confidence") else None,
                rationale=row.rationale,
                findings=tuple(MessageToDict(one) for one in row.findings),
                judge=row.judge,
                provenance=tuple(MessageToDict(one) for one in given),
            ),
        )
