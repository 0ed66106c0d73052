"""MLflow: a scorer of ``mlflow.genai.evaluate``, and results of runs as metrics, table and assessments.

It needs the extra: ``pip install "dramaturg[mlflow]"``.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any

import mlflow
from mlflow.entities import AssessmentError, AssessmentSource, AssessmentSourceType, Feedback
from mlflow.genai.scorers import Scorer
from mlflow.genai.scorers import scorer as mlflow_scorer

from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.integrations.judge import HarnessJudge, HarnessJudgement, judgements
from dramaturg.results.frames import header, table_row
from dramaturg.results.means import SumAccumulator

TABLE = "dramaturg/judgements.json"
"""The artifact with the judgements, in the columns of exports."""
_NOT_IN_NAMES = re.compile(r"[^\w\-. /:]")


def text_of(value: Any) -> str:
    """A text of inputs or outputs: the value, the only value of a mapping, else its JSON."""
    if isinstance(value, Mapping) and len(value) == 1:
        (value,) = value.values()
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def scorer(judge: HarnessJudge, *, name: str = "dramaturg", goal: Callable[[Any], str] = text_of) -> Scorer:
    """A scorer that has one assessment for each criterion, named after it.

    ``expectations["expected_response"]`` is the reference of the judge. An abstention is an assessment with
    an error and without a value, which MLflow leaves out of its means.

    Args:
        judge: The judge.
        name: The name of the scorer.
        goal: The prompt or question of a row, from its inputs.
    """

    @mlflow_scorer(name=name)
    def score(inputs: Any, outputs: Any, expectations: Any = None) -> list[Feedback]:
        reference = (expectations or {}).get("expected_response", "")
        result = judge(text_of(outputs), goal=goal(inputs), reference=reference)
        return [feedback(one) for one in result.judgements]

    return score


def feedback(judgement: HarnessJudgement) -> Feedback:
    """A judgement as an assessment: True or False for a criterion that passes or fails, else the value."""
    error = AssessmentError(error_code=judgement.abstain_reason, error_message=judgement.explanation)
    facts = {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in judgement.to_json().items()
        if key not in {"criterion", "value", "rationale"}
    }
    return Feedback(
        name=judgement.criterion,
        value=judgement.value if judgement.passed is None else judgement.passed,
        error=error if judgement.abstained else None,
        rationale=judgement.explanation,
        source=AssessmentSource(AssessmentSourceType.LLM_JUDGE, judgement.judge or "panel"),
        metadata=facts,
    )


def log_results(samples: Iterable[RunSample]) -> None:
    """Logs results in the active run of MLflow, or in a new one.

    - Metrics: of each model and measure ``MODEL/MEASURE/mean``, over the judgements with a value,
      ``MODEL/MEASURE/judged_count`` and ``MODEL/MEASURE/judgement_count``.
    - Table: ``dramaturg/judgements.json``, with the columns of exports.
    - Assessments: a trace for each judged output, with one assessment for each judgement.

    Args:
        samples: Samples of one kind, e.g. of ``dramaturg.results.files.read_results``.
    """
    rows: list[RunResult] = []
    sums: defaultdict[tuple[str, str], SumAccumulator] = defaultdict(SumAccumulator)
    with mlflow.start_run() if mlflow.active_run() is None else nullcontext():
        for sample in samples:
            found = list(judgements(sample))
            rows += (row for row, _ in found)
            by_measure: defaultdict[tuple[str, str], list[RunResult]] = defaultdict(list)
            by_output: defaultdict[tuple[str, str], list[Feedback]] = defaultdict(list)
            for row, judgement in found:
                by_measure[row.model, row.measure].append(row)
                by_output[row.candidate_id, row.model].append(feedback(judgement))
            for key, of_measure in by_measure.items():
                sums[key].add(of_measure)
            for (candidate, model), assessments in by_output.items():
                _log_trace(sample, candidate, model, assessments)
        mlflow.flush_trace_async_logging()
        if rows:
            tags = sorted({tag for row in rows for tag in row.tags})
            columns = zip(*(table_row(row, tags) for row in rows), strict=True)
            mlflow.log_table(dict(zip(header(tags), map(list, columns), strict=True)), TABLE)
        for (model, measure), one in sums.items():
            figures = {
                "mean": one.mean(),
                "judged_count": one.judged,
                "judgement_count": one.judgements,
            }
            prefix = _NOT_IN_NAMES.sub("_", "/".join(filter(None, (model, measure))))
            mlflow.log_metrics(
                {f"{prefix}/{key}": value for key, value in figures.items() if value is not None}
            )


def _log_trace(sample: RunSample, candidate: str, model: str, assessments: Iterable[Feedback]) -> None:
    """Logs an output with its assessments."""
    result = getattr(sample, str(sample.WhichOneof("result")))
    outputs = [one.text for one in sample.texts.texts if one.text_id == candidate]
    outputs += [
        "\n".join(step.text for step in one.script.steps)
        for one in sample.scripts.candidates
        if one.candidate_id == candidate
    ]
    with mlflow.start_span(name=sample.sample_id or str(sample.index)) as span:
        span.set_inputs({"goal": result.task.goal} if hasattr(result, "task") else {"id": sample.sample_id})
        span.set_attributes({"dramaturg.candidate_id": candidate, "dramaturg.model": model})
        span.set_outputs(outputs[0] if outputs else None)
        for assessment in assessments:
            mlflow.log_assessment(span.trace_id, assessment)
