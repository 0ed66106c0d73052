/** Judges and clients of dramaturg. Messages of the contracts are exported below `dramaturg/api`. */

export * from "../gen/dramaturg/api/common/v1/verdict_pb.js";
export { connect, type ConnectOptions, type Gateway } from "./client.js";
export { DOMAIN, invalid, reasonOf, serviceError, type Violation, violationsOf } from "./errors.js";
export { type Candidate, type Judge, type JudgeItem, type JudgeServer, serveJudge, type ServeOptions } from "./judge.js";
export { checkLimits } from "./limits.js";
export { abstained, failed, finding, passed, scored, type VerdictOptions } from "./verdicts.js";
