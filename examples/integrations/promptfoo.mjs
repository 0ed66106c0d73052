// Answers in promptfoo: npx promptfoo eval -c examples/integrations/promptfoo.mjs
//
// The answers are in the file already: the provider "echo" returns its prompt. With a provider that writes
// them, the prompt is "{{question}}", and the assertion is the same.
import { readFileSync } from "node:fs";

const gateway = process.env.DRAMATURG_URL ?? "http://localhost:50080";
const answers = new URL("answers.jsonl", import.meta.url);
const criteria = [
  {
    id: "polite",
    passes: "The answer greets the customer or regrets the trouble.",
    fails: "The answer is curt or rude.",
  },
  { id: "clear", description: "How easy the answer is to follow.", scale: { lowest: 1, highest: 5 } },
];

async function judged(output, { vars }) {
  const texts = { task: { goal: vars.question }, texts: [{ id: "answer", text: output }], criteria };
  const response = await fetch(`${gateway}/v1/evaluate`, {
    method: "POST",
    headers: {
      "Content-Type": "application/json",
      ...(process.env.DRAMATURG_TOKEN && { Authorization: `Bearer ${process.env.DRAMATURG_TOKEN}` }),
    },
    body: JSON.stringify({ texts }),
  });
  const body = await response.json();
  if (!response.ok) throw new Error(body.message);
  const componentResults = body.result.texts[0].verdicts.map(read);
  const scored = componentResults.filter((one) => one.score !== undefined);
  return {
    pass: componentResults.every((one) => one.pass),
    // The mean of the criteria that are judged; promptfoo has no result without a score.
    score: scored.length ? scored.reduce((sum, one) => sum + one.score, 0) / scored.length : 0,
    reason: componentResults.map((one) => `${one.name}: ${one.reason}`).join("\n"),
    namedScores: Object.fromEntries(scored.map((one) => [one.name, one.score])),
  };
}

function read({ criterion, outcome, score, abstainReason, rationale = "" }) {
  const name = criterion;
  if (outcome === "OUTCOME_ABSTAIN") {
    return { name, pass: false, reason: `abstains, ${abstainReason.replace("ABSTAIN_REASON_", "")}: ${rationale}` };
  }
  if (outcome === "OUTCOME_SCORED") {
    const { lowest, highest } = criteria.find((one) => one.id === criterion).scale;
    return { name, pass: true, score: (score - lowest) / (highest - lowest), reason: rationale };
  }
  const pass = outcome === "OUTCOME_PASS";
  return { name, pass, score: Number(pass), reason: rationale };
}

export default {
  description: "Answers judged by a gateway of dramaturg",
  prompts: ["{{answer}}"],
  providers: ["echo"],
  defaultTest: { assert: [{ type: "javascript", value: judged }] },
  tests: readFileSync(answers, "utf8")
    .trim()
    .split("\n")
    .map((line) => ({ vars: JSON.parse(line) })),
};
