"""Answers in MLflow: python examples/integrations/mlflow_scorer.py. Prints the metrics."""

import json
from pathlib import Path

import mlflow

from dramaturg.integrations.judge import HarnessJudge
from dramaturg.integrations.mlflow import scorer

HERE = Path(__file__).parent

rows = [json.loads(line) for line in (HERE / "answers.jsonl").read_text().splitlines()]
result = mlflow.genai.evaluate(
    data=[{"inputs": {"question": row["question"]}, "outputs": row["answer"]} for row in rows],
    scorers=[scorer(HarnessJudge(HERE / "rubric.toml"))],
)
print(json.dumps(result.metrics))
