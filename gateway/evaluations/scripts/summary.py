"""Figures of verdicts on scripts (ABSEval)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateResult
from dramaturg.api.evaluation.v1.summary_pb2 import Summary, SummaryOptions
from dramaturg.judge.criteria import ABSEVAL
from gateway.evaluations.summary import JudgeAnswer, KindFigures, KindSummary, Statistics
from gateway.evaluations.verdict_figures import TOPIC, VerdictCounter, answers_of

STEPS = "steps"
"""The tag that scripts have by themselves beside the topic: the candidate's number of steps."""


class ScriptsKindSummary(KindSummary):
    def parts(self, sample: RunSample) -> Iterator[tuple[Mapping[str, str], CandidateResult]]:
        topic = sample.scripts.task.topic
        for candidate in sample.scripts.candidates:
            yield {TOPIC: topic, STEPS: str(len(candidate.script.steps)), **sample.tags}, candidate

    def model_of(self, part: CandidateResult) -> str:
        return part.model

    def answers(self, sample: RunSample, rows: Sequence[RunResult]) -> Iterator[JudgeAnswer]:
        del rows
        for candidate in sample.scripts.candidates:
            yield from answers_of(candidate.assessments)

    def figures(self, options: SummaryOptions) -> ScriptsFigures:
        del options
        return ScriptsFigures()


class ScriptsFigures(KindFigures):
    """Verdicts by model and criterion."""

    def __init__(self) -> None:
        self._candidates = 0
        self._verdicts = VerdictCounter(ABSEVAL)

    def add(self, parts: Sequence[CandidateResult]) -> None:
        self._candidates += len(parts)
        self._verdicts.add(
            (candidate.model, verdict) for candidate in parts for verdict in candidate.verdicts
        )

    async def write(self, tags: Mapping[str, str], summary: Summary, statistics: Statistics) -> None:
        del statistics
        if not tags:
            summary.scripts.candidate_count = self._candidates
        summary.scripts.figures.extend(self._verdicts.figures(tags))
