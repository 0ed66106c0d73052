"""Scores of traces in Langfuse: python examples/integrations/langfuse_scores.py [ANSWERS].

Each row names the trace of its answer ("trace_id"). The scores go to the public API, at LANGFUSE_HOST with
LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY. An abstention is a score of its own, in words: it is in no mean.
"""

import base64
import hashlib
import json
import os
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dramaturg.integrations.judge import HarnessJudge

HERE = Path(__file__).parent
ANSWERS = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "answers.jsonl"
HOST = os.environ.get("LANGFUSE_HOST", "https://cloud.langfuse.com")
KEYS = f"{os.environ['LANGFUSE_PUBLIC_KEY']}:{os.environ['LANGFUSE_SECRET_KEY']}"


def scores(row: dict[str, str], judge: HarnessJudge) -> Iterator[dict[str, Any]]:
    for one in judge(row["answer"], goal=row["question"]).judgements:
        name, value, kind = one.criterion, one.value, "NUMERIC"
        if one.passed is not None:
            kind = "BOOLEAN"
        score: dict[str, Any] = {"name": name, "value": value, "dataType": kind}
        if value is None:
            score = {"name": f"{name} abstains", "value": one.abstain_reason, "dataType": "CATEGORICAL"}
        yield {
            # The same score of the same trace replaces the one of an earlier run.
            "id": hashlib.sha256(f"{row['trace_id']} {name}".encode()).hexdigest()[:32],
            "traceId": row["trace_id"],
            "comment": one.explanation,
            "metadata": {"judge": one.judge, "label": one.label, "provenance": one.provenance},
            **score,
        }


def send(score: dict[str, Any]) -> None:
    request = urllib.request.Request(  # noqa: S310 - the address is that of LANGFUSE_HOST
        f"{HOST}/api/public/scores",
        json.dumps(score).encode(),
        {
            "Content-Type": "application/json",
            "Authorization": f"Basic {base64.b64encode(KEYS.encode()).decode()}",
        },
    )
    urllib.request.urlopen(request, timeout=30).close()  # noqa: S310


judge = HarnessJudge(HERE / "rubric.toml")
count = 0
for line in ANSWERS.read_text().splitlines():
    for made in scores(json.loads(line), judge):
        send(made)
        count += 1
print(count, "scores sent")
