"""Figures of verdicts on scripts (ABSEval)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from dramaturg.api.alignment.v1.accuracy_pb2 import AccuracyGroup, MeasureAccuracyRequest
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateResult, GoldAnswerFigures
from dramaturg.api.evaluation.v1.summary_pb2 import FalseAlarmFigures, Summary
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.results.gold_answers import count, describe_missing, missing_reason
from dramaturg.summaries.variants import VariantVerdicts
from gateway.evaluations.judge_comparisons import ComparedItem
from gateway.evaluations.scripts.detection import PerturbedVerdicts, fault_figures
from gateway.evaluations.statistics import Statistics
from gateway.evaluations.summary import KindFigures, KindSummary
from gateway.evaluations.verdict_figures import TOPIC, FindingCounter, PanelCounter, VerdictCounter

STEPS = "steps"
"""The tag that scripts have by themselves beside the topic: the candidate's number of steps."""


class JudgedCandidate(NamedTuple):
    """A candidate with the facts of its sample that figures need."""

    candidate: CandidateResult
    task_id: str
    tags: Mapping[str, str]
    missing_gold_answer: str | None = None
    """See ``dramaturg.results.gold_answers.missing_reason``."""


class ScriptsFigures(KindFigures):
    """Verdicts by model and criterion, and the agreement of panels."""

    def __init__(self) -> None:
        self._candidates = 0
        self._verdicts = VerdictCounter(ABSEVAL)
        self._perturbed = PerturbedVerdicts()
        self._variants = VariantVerdicts()
        self._panels = PanelCounter()
        self._findings = FindingCounter()
        self._gold_answers = GoldAnswerFigures()

    def add(self, parts: Sequence[JudgedCandidate]) -> None:
        self._candidates += len(parts)
        if parts:
            count(self._gold_answers, parts[0].missing_gold_answer)
        self._verdicts.add(
            (one.candidate.model, verdict) for one in parts for verdict in one.candidate.verdicts
        )
        for one in parts:
            self._perturbed.add(one.tags, one.candidate)
            self._panels.add(one.candidate.assessments)
            self._findings.add(one.candidate.model, one.candidate.verdicts)
            self._variants.add(one.tags, one.task_id, one.candidate)

    def write(self, tags: Mapping[str, str], summary: Summary, statistics: Statistics) -> None:
        summary.scripts.figures.extend(self._verdicts.figures(tags))
        summary.scripts.panels.extend(self._panels.figures(tags))
        if tags:
            return
        summary.scripts.candidate_count = self._candidates
        summary.scripts.findings.extend(self._findings.figures())
        if self._gold_answers.sample_count:
            summary.scripts.gold_answers.CopyFrom(self._gold_answers)
        if missing := describe_missing(self._gold_answers):
            summary.notices.append(missing)
        if self._perturbed.fault_count or self._perturbed.unperturbed_count:
            self._write_perturbations(summary, statistics)
        for variant, request in self._variants.requests().items():
            for group in _groups(request, statistics):
                summary.scripts.variants.add(
                    variant=variant, criterion=group.tags.get("criterion", ""), agreement=group
                )

    def _write_perturbations(self, summary: Summary, statistics: Statistics) -> None:
        found = summary.scripts.perturbations
        found.fault_count = self._perturbed.fault_count
        found.unperturbed_count = self._perturbed.unperturbed_count
        request = self._perturbed.alarm_request()
        alarms = {group.tags["criterion"]: group for group in _groups(request, statistics)}
        found.false_alarms.extend(
            FalseAlarmFigures(criterion=name, alarms=alarms[name]) for name in ABSEVAL if name in alarms
        )
        request = self._perturbed.detection_request()
        found.faults.extend(fault_figures(_groups(request, statistics), alarms))


class ScriptsKindSummary(KindSummary):
    figures_type = ScriptsFigures

    def parts(self, sample: RunSample) -> Iterator[tuple[Mapping[str, str], JudgedCandidate]]:
        task, tags = sample.scripts.task, {**sample.scripts.tags, **sample.tags}
        missing = missing_reason(sample.scripts)
        for candidate in sample.scripts.candidates:
            own = {TOPIC: task.topic, STEPS: str(len(candidate.script.steps)), **sample.tags}
            yield own, JudgedCandidate(candidate, task.id, tags, missing)

    def model_of(self, part: JudgedCandidate) -> str:
        return part.candidate.model

    def compared_items(self, sample: RunSample) -> Iterator[ComparedItem]:
        result = sample.scripts
        for one in result.candidates:
            yield ComparedItem(
                task=(result.task.id, result.task.goal),
                candidate_id=one.candidate_id,
                model=one.model,
                verdicts=one.verdicts,
                assessments=one.assessments,
                shadows=one.shadows,
                scales={},
            )


def _groups(request: MeasureAccuracyRequest, statistics: Statistics) -> Sequence[AccuracyGroup]:
    """The measured groups; none without items, or if AlignmentService fails, which is noted."""
    if not request.items:
        return ()
    response = statistics.alignment("MeasureAccuracy", request)
    return () if response is None else response.groups
