/**
 * A judge whose calls end when its input does. It says what happens, one line each.
 *
 * The argument is its drain time in seconds.
 */

import { passed, serveJudge } from "../../sdk/typescript/dist/src/index.js";

const released = new Promise((resolve) => process.stdin.on("end", resolve).resume());

const heldJudge = {
  name: "held-judge",
  version: "1.0.0",
  description: "Judges when its input ends.",
  criteria: ["no_duplicate_steps"],
  async judge(_item, signal) {
    signal.addEventListener("abort", () => console.log("aborted"));
    console.log("judging");
    await released;
    return [passed("no_duplicate_steps")];
  },
};

const server = await serveJudge(heldJudge, { drainSeconds: Number(process.argv[2]) });
process.on("SIGTERM", () => {
  // The process ends when nothing of the server is left.
  server.close().then(() => process.stdin.destroy());
  console.log("stopping");
});
console.log(server.port);
