/** Serves a judge of texts by gRPC: `judging.v1.JudgeService`, its identity, and its health. */

import { readFileSync } from "node:fs";
import { createSecureServer, createServer, type Http2Server, type ServerHttp2Session } from "node:http2";
import type { AddressInfo, Socket } from "node:net";

import { create } from "@bufbuild/protobuf";
import { Code, ConnectError, type ConnectRouter, type HandlerContext } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";

import type { Conversation, Document } from "../gen/dramaturg/api/common/v1/content_pb.js";
import { ErrorReason } from "../gen/dramaturg/api/common/v1/error_reason_pb.js";
import { type ErrorStatus, ErrorStatusSchema, StatusCode } from "../gen/dramaturg/api/common/v1/error_status_pb.js";
import type { JudgeOptions } from "../gen/dramaturg/api/common/v1/judging_pb.js";
import { ProvenanceSchema } from "../gen/dramaturg/api/common/v1/provenance_pb.js";
import type { Task } from "../gen/dramaturg/api/common/v1/script_pb.js";
import { AssessmentSchema, Reading, type Verdict } from "../gen/dramaturg/api/common/v1/verdict_pb.js";
import { GetIdentityRequestSchema, IdentitySchema, IdentityService } from "../gen/dramaturg/api/identity/v1/identity_service_pb.js";
import {
  type Criterion,
  CriterionSchema,
  type JudgeCandidate,
  type JudgeRequest,
  JudgeRequestSchema,
  type JudgeResponse,
  JudgeResponseSchema,
  JudgeService,
} from "../gen/dramaturg/api/judging/v1/judge_service_pb.js";
import { Health, HealthCheckResponse_ServingStatus as Serving } from "../gen/grpc/health/v1/health_pb.js";
import { invalid, reasonOf, serviceError, type Violation } from "./errors.js";
import { checkLimits } from "./limits.js";
import { emptyCandidate, inOrder } from "./verdicts.js";

const CONTRACT = JudgeService.typeName;
const ANY_CRITERION = "any-criterion";
const MAX_MESSAGE_BYTES = 16 * 2 ** 20;
/** The time that clients have to close their connections once no call is in progress. */
const LAST_BYTES_MS = 500;
/** Timers of Node.js with a longer time end at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** A candidate, with its steps as the gateway reads them. */
export interface Candidate {
  /** Names the candidate within the request. It has no meaning. */
  readonly id: string;
  /** The text; of a candidate that came as steps, one step a line. */
  readonly text: string;
  /** The steps, which findings refer to by index. Empty: the text has none. */
  readonly steps: readonly string[];
  /** The documents that it rests on, besides those of the task. For the capability "context". */
  readonly context: readonly Document[];
  /** The conversation, in place of a text. For the capability "conversation", with "tool-calls" and "images". */
  readonly conversation: Conversation | undefined;
}

/** One candidate to judge; never an empty one. */
export interface JudgeItem {
  readonly task: Task;
  readonly candidate: Candidate;
  /** The steps of the reference. Empty: there is none. */
  readonly reference: readonly string[];
  /** The criteria to judge, in the order of the verdicts, with definitions and scales where the request has them. */
  readonly criteria: readonly Criterion[];
  /** Other candidates of the task. */
  readonly pool: readonly Candidate[];
  /** The model and its sampling. */
  readonly options: JudgeOptions | undefined;
}

/** A judge of texts. */
export interface Judge {
  /** The implementation's name, in lower-case kebab case. */
  readonly name: string;
  /** Its version (semantic versioning). */
  readonly version: string;
  /** A description in one sentence. */
  readonly description: string;
  /** The criteria that it judges, in lower snake case. */
  readonly criteria: readonly string[];
  /** E.g. "any-criterion" for a judge that judges criteria by their definitions (`Identity.capabilities`). */
  readonly capabilities?: readonly string[];
  /**
   * Judges one candidate. Criteria without a verdict abstain. An error is that of this candidate alone.
   *
   * @param item The candidate.
   * @param signal Aborted when the caller cancels or its deadline passes.
   */
  judge(item: JudgeItem, signal: AbortSignal): Verdict[] | Promise<Verdict[]>;
}

/** How a judge is served. */
export interface ServeOptions {
  /** The port. 0, the default: a free one. */
  port?: number;
  /** The address to listen on. Default: 127.0.0.1. */
  host?: string;
  /** The most candidates of one call that are judged at once. Default: 16. */
  concurrency?: number;
  /** The most calls at once; others are refused with RESOURCE_EXHAUSTED. Default: 256. */
  maxCalls?: number;
  /** Certificate and key as PEM files; with `clientCa`, clients must have a certificate that it signed. */
  tls?: { certificate: string; key: string; clientCa?: string };
  /** The time that calls in progress have to end after `close`, in seconds. Default: 30. `Infinity`: no limit. */
  drainSeconds?: number;
}

/** A judge that is served. */
export interface JudgeServer {
  readonly port: number;
  /**
   * Reports NOT_SERVING, refuses new calls, and waits for calls in progress, at most for the drain time. Watches of the
   * health, and connections without calls, do not hold it up.
   */
  close(): Promise<void>;
}

/** Serves a judge until the server is closed. */
export async function serveJudge(judge: Judge, options: ServeOptions = {}): Promise<JudgeServer> {
  let stop = () => {};
  const stopped = new Promise<void>((resolve) => (stop = resolve));
  const state = { serving: true, calls: 0, maxCalls: options.maxCalls ?? 256, stopped, idle: () => {} };
  const concurrency = options.concurrency ?? 16;
  const routes = (router: ConnectRouter) => {
    router.service(JudgeService, {
      judge: (request, context) => admitted(state, () => respond(judge, request, context, concurrency)),
    });
    router.service(IdentityService, identity(judge));
    router.service(Health, {
      check: ({ service }) => ({ status: health(state, service) }),
      watch: async function* ({ service }, context) {
        yield { status: known(service) ? health(state, service) : Serving.SERVICE_UNKNOWN };
        await Promise.race([
          new Promise((ended) => context.signal.addEventListener("abort", ended)),
          state.stopped,
        ]);
        if (!context.signal.aborted) yield { status: known(service) ? health(state, service) : Serving.SERVICE_UNKNOWN };
      },
    });
  };
  const handler = connectNodeAdapter({
    routes,
    connect: false,
    grpcWeb: false,
    readMaxBytes: MAX_MESSAGE_BYTES,
  });
  const server = options.tls === undefined ? createServer(handler) : createSecureServer(tls(options.tls), handler);
  const sessions = new Set<ServerHttp2Session>();
  server.on("session", (session) => {
    sessions.add(session);
    session.on("close", () => sessions.delete(session));
  });
  const connections = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    connections.add(socket);
    socket.on("close", () => connections.delete(socket));
  });
  await listen(server, options.port ?? 0, options.host ?? "127.0.0.1");
  return {
    port: (server.address() as AddressInfo).port,
    close: () => {
      state.serving = false;
      stop();
      // A session closes when its calls in progress have ended.
      const closed = new Promise<void>((ended) => server.close(() => ended()));
      for (const session of sessions) session.close();
      // Connections that no session closes are cut: those that have sent nothing, and those of calls that take too long.
      const cut = () => connections.forEach((socket) => socket.destroy());
      const late = setTimeout(cut, Math.min((options.drainSeconds ?? 30) * 1000, LONGEST_TIMER_MS));
      state.idle = () => setTimeout(cut, LAST_BYTES_MS).unref();
      if (state.calls === 0) state.idle();
      return closed.finally(() => clearTimeout(late));
    },
  };
}

interface State {
  serving: boolean;
  calls: number;
  readonly maxCalls: number;
  /** Resolves when the server is closed. Watches of the health end then. */
  readonly stopped: Promise<void>;
  /** Called when a call ends that was the last one of a server that closes. */
  idle: () => void;
}

async function* admitted(state: State, call: () => AsyncIterable<JudgeResponse>): AsyncIterable<JudgeResponse> {
  if (!state.serving) {
    throw serviceError(Code.Unavailable, ErrorReason.SHUTTING_DOWN, "the server is shutting down");
  }
  if (state.calls >= state.maxCalls) {
    throw serviceError(Code.ResourceExhausted, ErrorReason.OVERLOADED, "the server has too many calls", {
      metadata: { limit: `${state.maxCalls}` },
      retryAfterSeconds: 1,
    });
  }
  state.calls += 1;
  try {
    yield* call();
  } finally {
    state.calls -= 1;
    if (!state.serving && state.calls === 0) state.idle();
  }
}

async function* respond(
  judge: Judge,
  request: JudgeRequest,
  context: HandlerContext,
  concurrency: number,
): AsyncIterable<JudgeResponse> {
  const criteria = check(judge, request);
  const ids = criteria.map((one) => one.id);
  const reference = (request.reference?.steps ?? []).map((step) => step.text);
  const all = [...request.candidates, ...request.pool].map(read);
  const started = performance.now();
  const answer = async (candidate: Read): Promise<JudgeResponse> => {
    const response = create(JudgeResponseSchema, { candidateId: candidate.id });
    try {
      const pool = all.filter((other) => other !== candidate);
      const item = { task: request.task!, candidate, reference, criteria, pool, options: request.options };
      const verdicts =
        candidate.reading === Reading.EMPTY
          ? emptyCandidate(ids)
          : inOrder(asked(await judge.judge(item, context.signal), judge, ids), ids);
      const provenance = provenanceOf(judge, performance.now() - started);
      const assessment = create(AssessmentSchema, { verdicts, provenance, reading: candidate.reading });
      response.result = { case: "assessment", value: assessment };
    } catch (error) {
      response.result = { case: "error", value: errorStatus(error) };
    }
    return response;
  };
  yield* inParallel(all.slice(0, request.candidates.length), answer, concurrency, context.signal);
}

interface Read extends Candidate {
  readonly reading: Reading;
}

/** Reads a candidate as the gateway did. A text that was not read is one text without steps. */
function read(candidate: JudgeCandidate): Read {
  const steps = (candidate.script?.steps ?? []).map((step) => step.text);
  const text = candidate.text || steps.join("\n");
  let reading = candidate.reading;
  if (reading === Reading.UNSPECIFIED || (reading === Reading.STEPS && steps.length === 0)) {
    reading = !text.trim() ? Reading.EMPTY : steps.length > 0 ? Reading.STEPS : Reading.TEXT;
  }
  const { id, context, conversation } = candidate;
  return { id, text, steps: reading === Reading.STEPS ? steps : [], context, conversation, reading };
}

/** The criteria to judge, after all checks of the request. */
function check(judge: Judge, request: JudgeRequest): readonly Criterion[] {
  const violations: Violation[] = checkLimits(JudgeRequestSchema, request);
  if (violations.length > 0) throw invalid(violations);
  const anyCriterion = judge.capabilities?.includes(ANY_CRITERION) ?? false;
  for (const [place, { id }] of request.criteria.entries()) {
    if (!anyCriterion && !judge.criteria.includes(id)) {
      const message = `criteria[${place}].id is "${id}"; this judge's criteria are ${judge.criteria.join(", ")}`;
      const metadata = { criterion: id };
      throw serviceError(Code.InvalidArgument, ErrorReason.CRITERION_UNKNOWN, message, { metadata });
    }
  }
  violations.push(...repeated("criteria", request.criteria), ...repeated("candidates", request.candidates));
  const candidates = new Set(request.candidates.map((one) => one.id));
  for (const [place, { id }] of request.pool.entries()) {
    if (candidates.has(id)) violations.push({ field: `pool[${place}].id`, description: "is that of a candidate" });
  }
  if (request.criteria.length === 0 && judge.criteria.length === 0) {
    violations.push({ field: "criteria", description: "is empty, and the judge has none of its own" });
  }
  if (violations.length > 0) throw invalid(violations);
  if (request.criteria.length > 0) return request.criteria;
  return judge.criteria.map((id) => create(CriterionSchema, { id }));
}

function repeated(field: string, items: readonly { id: string }[]): Violation[] {
  const seen = new Set<string>();
  return items.flatMap(({ id }, place) => {
    if (!seen.has(id)) {
      seen.add(id);
      return [];
    }
    return [{ field: `${field}[${place}].id`, description: `is "${id}", which is named before` }];
  });
}

/** Verdicts without those on criteria of the judge that the request does not name. */
function asked(verdicts: readonly Verdict[], judge: Judge, ids: readonly string[]): Verdict[] {
  return verdicts.filter((one) => ids.includes(one.criterion) || !judge.criteria.includes(one.criterion));
}

/** Answers as they come, at most `limit` at once. */
async function* inParallel<Item, Answer>(
  items: readonly Item[],
  work: (item: Item) => Promise<Answer>,
  limit: number,
  signal: AbortSignal,
): AsyncIterable<Answer> {
  const ended = new Promise<never>((_, reject) => {
    if (signal.aborted) reject(ConnectError.from(signal.reason));
    signal.addEventListener("abort", () => reject(ConnectError.from(signal.reason)), { once: true });
  });
  ended.catch(() => undefined);
  const waiting = items.values();
  const pending = new Map<number, Promise<[number, Answer]>>();
  let next = 0;
  const start = () => {
    const { value, done } = waiting.next();
    if (done) return;
    const place = next++;
    pending.set(place, work(value).then((answer) => [place, answer]));
  };
  while (pending.size < limit && next < items.length) start();
  while (pending.size > 0) {
    const [place, answer] = await Promise.race([...pending.values(), ended]);
    pending.delete(place);
    start();
    yield answer;
  }
}

function identity(judge: Judge) {
  const only = (contract: string) => {
    if (contract !== "" && contract !== CONTRACT) {
      throw invalid([{ field: "contract", description: `is "${contract}"; this server has ${CONTRACT}` }]);
    }
  };
  const { name, version, description, criteria } = judge;
  const stated = { name, version, description, contract: CONTRACT, criteria: [...criteria] };
  return {
    getIdentity: (request: { contract: string }) => {
      const violations = checkLimits(GetIdentityRequestSchema, create(GetIdentityRequestSchema, request));
      if (violations.length > 0) throw invalid(violations);
      only(request.contract);
      const capabilities = [...(judge.capabilities ?? [])];
      return { identity: create(IdentitySchema, { ...stated, capabilities }) };
    },
    checkModel: (request: { contract: string }) => {
      only(request.contract);
      return {};
    },
    listModelWaits: (request: { contract: string }) => {
      only(request.contract);
      return { waits: [] };
    },
  };
}

function provenanceOf(judge: Judge, milliseconds: number) {
  const nanos = Math.max(0, Math.round((milliseconds % 1000) * 1e6));
  const latency = { seconds: BigInt(Math.floor(milliseconds / 1000)), nanos };
  return create(ProvenanceSchema, { name: judge.name, version: judge.version, contract: CONTRACT, latency });
}

function errorStatus(error: unknown): ErrorStatus {
  if (error instanceof ConnectError) {
    const reason = reasonOf(error) || ErrorReason.INTERNAL;
    // The numbers of both are those of google.rpc.Code.
    const code = error.code as number as StatusCode;
    return create(ErrorStatusSchema, { code, reason, message: error.rawMessage });
  }
  console.error("a candidate could not be judged", error);
  return create(ErrorStatusSchema, {
    code: StatusCode.INTERNAL,
    reason: ErrorReason.INTERNAL,
    message: "internal error",
  });
}

function known(service: string): boolean {
  return service === "" || service === CONTRACT || service === IdentityService.typeName;
}

function health(state: State, service: string): Serving {
  if (!known(service)) {
    const metadata = { name: service };
    throw serviceError(Code.NotFound, ErrorReason.RESOURCE_NOT_FOUND, `no service ${service}`, { metadata });
  }
  return state.serving ? Serving.SERVING : Serving.NOT_SERVING;
}

function tls(files: NonNullable<ServeOptions["tls"]>) {
  const ca = files.clientCa === undefined ? {} : { ca: readFileSync(files.clientCa), requestCert: true };
  return {
    cert: readFileSync(files.certificate),
    key: readFileSync(files.key),
    rejectUnauthorized: files.clientCa !== undefined,
    ...ca,
  };
}

function listen(server: Http2Server, port: number, host: string): Promise<void> {
  return new Promise((listening, failed) => {
    server.once("error", failed);
    server.listen(port, host, () => listening());
  });
}
