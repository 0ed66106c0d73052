"""Answers in MLflow: python examples/integrations/mlflow_scorer.py [ANSWERS]. Prints the metrics."""

import json
import sys
from pathlib import Path

import mlflow

from dramaturg.integrations.judge import HarnessJudge
from dramaturg.integrations.mlflow import scorer

HERE = Path(__file__).parent
ANSWERS = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "answers.jsonl"

rows = [json.loads(line) for line in ANSWERS.read_text().splitlines()]
result = mlflow.genai.evaluate(
    data=[{"inputs": {"question": row["question"]}, "outputs": row["answer"]} for row in rows],
    scorers=[scorer(HarnessJudge(HERE / "rubric.toml"))],
)
print(json.dumps(result.metrics))
