/** A critic: it finds steps that say the same, word for word. Other criteria abstain. */

import { failed, finding, FindingKind, type Judge, type JudgeItem, passed, serveJudge } from "../src/index.js";

const terseCritic: Judge = {
  name: "terse-critic",
  version: "1.0.0",
  description: "Finds steps that say the same, word for word.",
  criteria: ["no_missing_steps", "no_redundant_steps", "no_duplicate_steps"],
  judge({ candidate }: JudgeItem) {
    const places = new Map<string, number[]>();
    candidate.steps.forEach((step, index) => {
      const words = step.toLowerCase().split(/\s+/).join(" ");
      places.set(words, [...(places.get(words) ?? []), index]);
    });
    const findings = [...places.values()]
      .filter((steps) => steps.length > 1)
      .map((steps) => finding(FindingKind.DUPLICATE_STEP, "These steps say the same.", steps));
    if (candidate.steps.length === 0) return [];
    return [findings.length > 0 ? failed("no_duplicate_steps", findings) : passed("no_duplicate_steps")];
  },
};

const server = await serveJudge(terseCritic, { port: Number(process.env["PORT"] ?? 50099) });
process.on("SIGTERM", () => server.close().then(() => process.exit(0)));
console.log(`serving on ${server.port}`);
