/** Evaluates the request in JSON on standard input, and prints the result as JSON. The argument is an address. */

import { readFileSync } from "node:fs";

import { fromJson, toJson } from "../../sdk/typescript/node_modules/@bufbuild/protobuf/dist/esm/index.js";
import { EvaluateTextsRequestSchema, TextsResultSchema } from "../../sdk/typescript/dist/gen/dramaturg/api/evaluation/v1/texts_pb.js";
import { connect } from "../../sdk/typescript/dist/src/index.js";

const gateway = connect(process.argv[2]);
const request = fromJson(EvaluateTextsRequestSchema, JSON.parse(readFileSync(0, "utf-8")));
for await (const { event } of gateway.evaluations.evaluateTexts(request)) {
  if (event.case === "result") console.log(JSON.stringify(toJson(TextsResultSchema, event.value)));
}
