"""Writes candidates as a log of Inspect, one sample each. Runs under a Python that has inspect-ai.

Its ``write_eval_log`` compares each sample with all before it; the recorder of its evaluations compares it
with those that wait to be written.

python bench/viewers/inspect_log.py rows.jsonl logs/scripts.eval
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from inspect_ai.log import EvalConfig, EvalDataset, EvalPlan, EvalResults, EvalSample, EvalSpec, EvalStats
from inspect_ai.log._condense import condense_sample
from inspect_ai.log._recorders.create import create_recorder_for_location
from inspect_ai.model import ChatMessageAssistant, ChatMessageUser, ModelOutput
from inspect_ai.scorer import Score

_WAITING = 500
"""The most samples that wait to be written."""


async def main(rows: Path, log: Path) -> None:
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
    recorder = create_recorder_for_location(str(log), str(log.parent))
    await recorder.log_init(spec, str(log), clean=True)
    await recorder.log_start(spec, EvalPlan())
    for number, sample in enumerate(samples, start=1):
        await recorder.log_sample(spec, condense_sample(sample))
        if number % _WAITING == 0:
            await recorder.flush(spec)
    results = EvalResults(total_samples=len(samples), completed_samples=len(samples))
    await recorder.log_finish(spec, "success", EvalStats(), results, None)


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
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
