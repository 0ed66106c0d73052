"""Writes candidates as a log of Inspect, one sample each. Runs under a Python that has inspect-ai.

python bench/viewers/inspect_log.py rows.jsonl logs/scripts.eval
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalResults, EvalSample, EvalSpec, write_eval_log
from inspect_ai.model import ChatMessageAssistant, ChatMessageUser, ModelOutput
from inspect_ai.scorer import Score


def main(rows: Path, log: Path) -> None:
    """Reads rows of ``bench.report_page`` and writes the log."""
    with rows.open(encoding="utf-8") as lines:
        samples = [_sample(json.loads(line)) for line in lines]
    spec = EvalSpec(
        created="2026-01-01T00:00:00+00:00",
        task="scripts",
        model="writers/all",
        dataset=EvalDataset(name="many", samples=len(samples)),
        config=EvalConfig(),
    )
    results = EvalResults(total_samples=len(samples), completed_samples=len(samples))
    write_eval_log(EvalLog(status="success", eval=spec, samples=samples, results=results), str(log))


def _sample(row: dict[str, object]) -> EvalSample:
    goal, script, model = str(row["goal"]), str(row["script"]), str(row["model"])
    verdicts = row["verdicts"]
    assert isinstance(verdicts, dict)
    return EvalSample(
        id=str(row["id"]),
        epoch=1,
        input=goal,
        target=str(row["gold"]),
        messages=[ChatMessageUser(content=goal), ChatMessageAssistant(content=script, model=model)],
        output=ModelOutput.from_content(model, script),
        metadata={"model": model},
        scores={
            criterion: Score(value=outcome, explanation=rationale)
            for criterion, (outcome, rationale) in verdicts.items()
        },
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
