"""Scores of traces in Langfuse: python examples/integrations/langfuse_scores.py.

Each row names the trace of its answer ("trace_id") and the time of the answer ("time"). The scores go to
LANGFUSE_BASE_URL with LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY. An abstention is a score of its own, in
words: it is in no mean.
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from langfuse import Langfuse
from langfuse.api import CreateScoreRequest

from dramaturg.integrations.judge import HarnessJudge

HERE = Path(__file__).parent


def scores(row: dict[str, str], judge: HarnessJudge) -> Iterator[CreateScoreRequest]:
    for one in judge(row["answer"], goal=row["question"]).judgements:
        name = one.criterion
        score: dict[str, Any] = {"name": name, "value": one.value, "data_type": "NUMERIC"}
        if one.passed is not None:
            score["data_type"] = "BOOLEAN"
        if one.abstained:
            score = {"name": f"{name} abstains", "value": one.abstain_reason, "data_type": "CATEGORICAL"}
        yield CreateScoreRequest(
            # A score with the same id and time replaces the one of an earlier run.
            id=hashlib.sha256(f"{row['trace_id']} {name}".encode()).hexdigest()[:32],
            timestamp=datetime.fromisoformat(row["time"]),
            trace_id=row["trace_id"],
            comment=one.explanation,
            metadata={"judge": one.judge, "label": one.label, "provenance": one.provenance},
            **score,
        )


judge = HarnessJudge(HERE / "rubric.toml")
langfuse = Langfuse()
count = 0
for line in (HERE / "answers.jsonl").read_text().splitlines():
    made = list(scores(json.loads(line), judge))
    answer = langfuse.api.scores.create(request=made)
    if getattr(answer, "rejected", 0):
        sys.exit(f"Langfuse rejects scores: {answer}")
    count += len(made)
print(count, "scores sent")
