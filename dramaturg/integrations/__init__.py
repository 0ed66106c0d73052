"""Judges in the harnesses that a team uses already: pytest, MLflow, Inspect AI.

- ``dramaturg.integrations.judge``: ``HarnessJudge``, a judge as every harness calls it, and
  ``HarnessJudgement``, what it answers. The other modules map these to the types of a harness.
- ``dramaturg.integrations.pytest_plugin``: the fixture ``judge``. pytest loads it by its entry point.
- ``dramaturg.integrations.mlflow``: a scorer of ``mlflow.genai``, and results of runs in MLflow.
- ``dramaturg.integrations.inspect``: a scorer of Inspect AI.

``judge`` and ``pytest_plugin`` import neither gRPC nor Protobuf before the first judgement; ``mlflow`` and
``inspect`` import their harness.
"""
