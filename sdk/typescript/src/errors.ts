/** Errors of the API: a code, a reason, and the invalid fields (AIP-193). */

import { create } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";

import { ErrorReason, ErrorReasonSchema } from "../gen/dramaturg/api/common/v1/error_reason_pb.js";
import {
  BadRequest_FieldViolationSchema,
  BadRequestSchema,
  ErrorInfoSchema,
  RetryInfoSchema,
} from "../gen/google/rpc/error_details_pb.js";

/** `ErrorInfo.domain` of every error of this API. */
export const DOMAIN = "dramaturg.api";

/** An invalid field of a request. */
export interface Violation {
  /** The path, e.g. `candidates[1].id`. */
  readonly field: string;
  /** The violation, as text, e.g. "is empty". */
  readonly description: string;
}

/** An error with its reason. */
export function serviceError(
  code: Code,
  reason: ErrorReason,
  message: string,
  options: { metadata?: Record<string, string>; retryAfterSeconds?: number } = {},
): ConnectError {
  const info = { reason: reasonName(reason), domain: DOMAIN, metadata: options.metadata ?? {} };
  const error = new ConnectError(message, code);
  error.details.push({ desc: ErrorInfoSchema, value: info });
  if (options.retryAfterSeconds !== undefined) {
    const retryDelay = { seconds: BigInt(Math.ceil(options.retryAfterSeconds)), nanos: 0 };
    error.details.push({ desc: RetryInfoSchema, value: { retryDelay } });
  }
  return error;
}

/** INVALID_ARGUMENT with every invalid field. */
export function invalid(violations: readonly Violation[]): ConnectError {
  const message = violations.map((one) => `${one.field} ${one.description}`).join("; ");
  const error = serviceError(Code.InvalidArgument, ErrorReason.FIELD_INVALID, message);
  const fieldViolations = violations.map((one) =>
    create(BadRequest_FieldViolationSchema, {
      field: one.field,
      description: one.description,
      reason: reasonName(ErrorReason.FIELD_INVALID),
    }),
  );
  error.details.push({ desc: BadRequestSchema, value: { fieldViolations } });
  return error;
}

/** The reason of an error of this API; `UNSPECIFIED` of other errors. */
export function reasonOf(error: unknown): ErrorReason {
  for (const info of ConnectError.from(error).findDetails(ErrorInfoSchema)) {
    const found = ErrorReasonSchema.values.find((value) => value.name === info.reason);
    if (info.domain === DOMAIN && found !== undefined) return found.number;
  }
  return ErrorReason.UNSPECIFIED;
}

/** The invalid fields that an error names. */
export function violationsOf(error: unknown): readonly Violation[] {
  return ConnectError.from(error)
    .findDetails(BadRequestSchema)
    .flatMap((one) => one.fieldViolations.map(({ field, description }) => ({ field, description })));
}

function reasonName(reason: ErrorReason): string {
  return ErrorReasonSchema.value[reason]?.name ?? "ERROR_REASON_INTERNAL";
}
