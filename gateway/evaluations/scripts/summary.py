"""Figures of verdicts on scripts (ABSEval)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dramaturg.api.common.v1.verdict_pb2 import OUTCOME_ABSTAIN, OUTCOME_FAIL, OUTCOME_PASS
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateResult
from dramaturg.api.evaluation.v1.summary_pb2 import Summary, SummaryOptions, VerdictFigures
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.results.means import mean_of_sums
from dramaturg.results.names import abstention_name
from dramaturg.results.sums import SumAccumulator
from gateway.evaluations.summary import JudgeAnswer, KindFigures, KindSummary, Statistics, estimate_of

TOPIC, STEPS = "topic", "steps"
"""The tags that scripts have by themselves: the task's topic and the candidate's number of steps."""


class ScriptsKindSummary(KindSummary):
    def parts(self, sample: RunSample) -> Iterator[tuple[Mapping[str, str], CandidateResult]]:
        topic = sample.scripts.task.topic
        for candidate in sample.scripts.candidates:
            yield {TOPIC: topic, STEPS: str(len(candidate.script.steps)), **sample.tags}, candidate

    def answers(self, sample: RunSample, rows: Sequence[RunResult]) -> Iterator[JudgeAnswer]:
        # Rows have the verdict of a panel; assessments have those of its members.
        del rows
        for candidate in sample.scripts.candidates:
            for one in candidate.assessments:
                for verdict in one.assessment.verdicts:
                    abstained = verdict.outcome == OUTCOME_ABSTAIN
                    yield JudgeAnswer(one.role, one.judge, one.assessment.provenance, abstained)

    def figures(self, options: SummaryOptions) -> ScriptsFigures:
        del options
        return ScriptsFigures()


@dataclass
class _Verdicts:
    """The verdicts on one model, or all, by one criterion, or all."""

    passed: int = 0
    failed: int = 0
    abstentions: Counter[str] = field(default_factory=Counter)
    sums: SumAccumulator = field(default_factory=SumAccumulator)


Key = tuple[str | None, str]
"""The model, None for all, and the criterion, empty for all."""


class ScriptsFigures(KindFigures):
    """Verdicts by model and criterion."""

    def __init__(self) -> None:
        self._candidates = 0
        self._verdicts: defaultdict[Key, _Verdicts] = defaultdict(_Verdicts)

    def add(self, parts: Sequence[CandidateResult]) -> None:
        self._candidates += len(parts)
        values: defaultdict[Key, list[float]] = defaultdict(list)
        for candidate in parts:
            for verdict in candidate.verdicts:
                for key in _keys(candidate.model, verdict.criterion):
                    counted = self._verdicts[key]
                    if verdict.outcome == OUTCOME_PASS:
                        counted.passed += 1
                        values[key].append(1.0)
                    elif verdict.outcome == OUTCOME_FAIL:
                        counted.failed += 1
                        values[key].append(0.0)
                    else:
                        counted.abstentions[abstention_name(verdict.abstain_reason)] += 1
        for key, some in values.items():
            self._verdicts[key].sums.add_values(some)

    async def write(self, tags: Mapping[str, str], summary: Summary, statistics: Statistics) -> None:
        del statistics
        if not tags:
            summary.scripts.candidate_count = self._candidates
        for (model, criterion), counted in sorted(self._verdicts.items(), key=lambda one: _order(one[0])):
            judged, abstained = counted.passed + counted.failed, counted.abstentions.total()
            total = judged + abstained
            figures = VerdictFigures(
                tags=tags,
                model=model or "",
                all_models=model is None,
                criterion=criterion,
                verdict_count=total,
                pass_count=counted.passed,
                fail_count=counted.failed,
                abstentions_by_reason=counted.abstentions,
                pass_rate=estimate_of(mean_of_sums(counted.sums.sums("", ""), 0.0, 1.0), total),
            )
            if total:
                figures.pass_rate_lowest = counted.passed / total
                figures.pass_rate_highest = (counted.passed + abstained) / total
            summary.scripts.figures.append(figures)


def _keys(model: str, criterion: str) -> Sequence[Key]:
    return (model, criterion), (model, ""), (None, criterion), (None, "")


def _order(key: Key) -> tuple[bool, str, bool, int, str]:
    """All models last, all criteria last; ABSEval's criteria first, in the paper's order."""
    model, criterion = key
    place = ABSEVAL.index(criterion) if criterion in ABSEVAL else len(ABSEVAL)
    return model is None, model or "", not criterion, place, criterion
