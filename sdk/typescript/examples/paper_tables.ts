/**
 * Prints Table 3 of Choice-75 for a run of decisions, or Table 4 of SimulBench for a run of dialogues.
 * All figures are those of `RunService.GetSummary`.
 *
 *     node dist/examples/paper_tables.js http://localhost:50051 RUN
 */

import type { DecisionsSummary, DialoguesSummary } from "../gen/dramaturg/api/evaluation/v1/summary_pb.js";
import { connect } from "../src/index.js";

const LEVELS = ["all", "binary", "easy", "medium", "hard", "either"];
const GROUPS = [
  "last_only",
  "first_challenge",
  "subsequent_challenge",
  "first_challenge, stateless",
  "first_challenge, stateful",
  "hard",
  "all",
];
const NO_VALUE = "-";

function choice75(summary: DecisionsSummary): string[][] {
  const figures = summary.figures.filter((one) => one.order === "as-given" && Object.keys(one.tags).length === 0);
  const setups = [...new Set(figures.map((one) => [one.format, one.prompt, one.model].join("\t")))];
  const rows = setups.map((setup) => {
    const [format, prompt, model] = setup.split("\t");
    const cells = LEVELS.map((level) => {
      const is = (one: (typeof figures)[number]) =>
        one.format === format && one.prompt === prompt && one.model === model && one.level === level;
      return figures.find(is)?.accuracy?.accuracy?.value?.toFixed(2) ?? NO_VALUE;
    });
    return [format!, prompt!, model!, ...cells];
  });
  return [["format", "prompt", "model", ...LEVELS], ...rows];
}

function simulbench(summary: DialoguesSummary): string[][] {
  const figures = summary.ratings.filter((one) => Object.keys(one.tags).length === 0);
  const rows = [...new Set(figures.map((one) => one.model))].map((model) => {
    const mean = (group: string) => figures.find((one) => one.model === model && one.group === group)?.mean?.value;
    return [model, ...GROUPS.map((group) => mean(group)?.toFixed(2) ?? NO_VALUE)];
  });
  return [["model", ...GROUPS], ...rows];
}

const [address = "", runId = ""] = process.argv.slice(2);
const { summary } = await connect(address).runs.getSummary({ runId });
switch (summary?.kind.case) {
  case "decisions":
    choice75(summary.kind.value).forEach((row) => console.log(row.join("\t")));
    break;
  case "dialogues":
    simulbench(summary.kind.value).forEach((row) => console.log(row.join("\t")));
    break;
  default:
    console.error(`the run ${runId} has neither decisions nor dialogues`);
    process.exitCode = 1;
}
