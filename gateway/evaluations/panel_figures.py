"""The agreement of the judges of panels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from dramaturg.api.common.v1.verdict_pb2 import OUTCOME_ABSTAIN
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateAssessment
from dramaturg.api.evaluation.v1.summary_pb2 import PanelFigures
from dramaturg.api.judging.v1.judge_service_pb2 import CriterionScale
from dramaturg.results.texts import score_of


@dataclass
class _Counted:
    items: int = 0
    differing: int = 0
    scored: int = 0
    differences: float = 0.0


class PanelCounter:
    """Counts, by criterion, the candidates or texts on which judges differ."""

    def __init__(self) -> None:
        self._by_criterion: defaultdict[str, _Counted] = defaultdict(_Counted)

    def add(
        self, assessments: Iterable[CandidateAssessment], scales: Mapping[str, CriterionScale] | None = None
    ) -> None:
        """Counts the assessments of one candidate or text.

        Args:
            assessments: The assessments.
            scales: The scales of the criteria that have one.
        """
        scales = scales or {}
        given: defaultdict[str, list[float]] = defaultdict(list)
        for assessed in assessments:
            for verdict in assessed.assessment.verdicts:
                scale = scales.get(verdict.criterion)
                answer = float(verdict.outcome) if scale is None else score_of(verdict, scale)
                if verdict.outcome != OUTCOME_ABSTAIN and answer is not None:
                    given[verdict.criterion].append(answer)
        for criterion, answers in given.items():
            if len(answers) < 2:
                continue
            counted = self._by_criterion[criterion]
            counted.items += 1
            counted.differing += len(set(answers)) > 1
            if criterion in scales:
                counted.scored += 1
                counted.differences += max(answers) - min(answers)

    def figures(self, tags: Mapping[str, str]) -> Iterator[PanelFigures]:
        """The figures by criterion; none without panels."""
        for criterion, counted in sorted(self._by_criterion.items()):
            panel = PanelFigures(
                tags=tags,
                criterion=criterion,
                text_count=counted.items,
                differing_count=counted.differing,
                differing_share=counted.differing / counted.items,
            )
            if counted.scored:
                panel.mean_difference = counted.differences / counted.scored
            yield panel
