/** The limits that the contracts declare on request fields (`dramaturg.api.common.v1.limits`). */

import { type DescField, type DescMessage, getOption, hasOption, type Message } from "@bufbuild/protobuf";
import { reflect, type ReflectMessage } from "@bufbuild/protobuf/reflect";

import { type FieldLimits, limits } from "../gen/dramaturg/api/common/v1/limits_pb.js";
import type { Violation } from "./errors.js";

/** Lists the fields of a request that break a limit. */
export function checkLimits(schema: DescMessage, message: Message): Violation[] {
  const found: Violation[] = [];
  checkMessage(reflect(schema, message), "", found);
  return found;
}

function checkMessage(message: ReflectMessage, prefix: string, found: Violation[]): void {
  for (const field of message.fields) {
    const path = prefix + field.name;
    const limit = hasOption(field, limits) ? getOption(field, limits) : undefined;
    if (limit !== undefined) checkField(message, field, path, limit, found);
    if (limit?.contentsUnlimited || !message.isSet(field)) continue;
    if (field.fieldKind === "message") {
      checkMessage(message.get(field) as ReflectMessage, `${path}.`, found);
    } else if (field.fieldKind === "list" && field.listKind === "message") {
      let place = 0;
      for (const one of message.get(field)) {
        checkMessage(one as ReflectMessage, `${path}[${place++}].`, found);
      }
    }
  }
}

function checkField(
  message: ReflectMessage,
  field: DescField,
  path: string,
  limit: FieldLimits,
  found: Violation[],
): void {
  const add = (description: string, where = path) => found.push({ field: where, description });
  const value: unknown = message.get(field);
  if (limit.required && isMissing(message, field, value)) add("is missing or empty");
  if (field.fieldKind === "list" || field.fieldKind === "map") {
    const items = value as Iterable<unknown> & { size: number };
    if (limit.maxItems && items.size > limit.maxItems) {
      add(`has ${items.size} elements; at most ${limit.maxItems} are allowed`);
    }
    if (limit.minItems && items.size < limit.minItems) {
      add(`has ${items.size} elements; at least ${limit.minItems} are required`);
    }
    let place = 0;
    for (const one of items) {
      if (field.fieldKind === "list") checkValue(one, limit, `${path}[${place++}]`, add);
      else for (const part of one as [unknown, unknown]) checkValue(part, limit, path, add);
    }
  } else if (message.isSet(field) || typeof value === "string") {
    checkValue(value, limit, path, add);
  }
}

function checkValue(
  value: unknown,
  limit: FieldLimits,
  path: string,
  add: (description: string, where: string) => void,
): void {
  if (typeof value === "string") {
    // Code points, not UTF-16 units.
    const length = limit.maxLength && value.length > limit.maxLength ? [...value].length : 0;
    if (length > limit.maxLength) add(`has ${length} characters; at most ${limit.maxLength} are allowed`, path);
    if (limit.pattern && value && !new RegExp(`^(?:${limit.pattern})$`, "u").test(value)) {
      add(`does not match ${limit.pattern}`, path);
    }
  } else if (value instanceof Uint8Array) {
    if (limit.maxLength && value.length > limit.maxLength) {
      add(`has ${value.length} bytes; at most ${limit.maxLength} are allowed`, path);
    }
  } else if (typeof value === "number" || typeof value === "bigint") {
    const number = Number(value);
    const bounded = limit.minimum !== undefined || limit.maximum !== undefined;
    if (bounded && !Number.isFinite(number)) add("is not a finite number", path);
    else if (limit.minimum !== undefined && number < limit.minimum) {
      add(`is ${number}; the least is ${limit.minimum}`, path);
    } else if (limit.maximum !== undefined && number > limit.maximum) {
      add(`is ${number}; the most is ${limit.maximum}`, path);
    }
  }
}

function isMissing(message: ReflectMessage, field: DescField, value: unknown): boolean {
  if (typeof value === "string") return value.trim() === "";
  if (value instanceof Uint8Array) return value.length === 0;
  if (field.fieldKind === "list" || field.fieldKind === "map") return (value as { size: number }).size === 0;
  return !message.isSet(field);
}
