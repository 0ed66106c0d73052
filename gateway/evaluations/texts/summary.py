"""Figures of texts judged by a rubric."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dramaturg.api.common.v1.verdict_pb2 import (
    ABSTAIN_REASON_UNPARSABLE,
)
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.summary_pb2 import ScoreFigures, Summary, SummaryOptions
from dramaturg.api.evaluation.v1.texts_pb2 import TextResult, TextsResult
from dramaturg.api.judging.v1.judge_service_pb2 import CriterionScale
from dramaturg.results.means import mean_of_sums
from dramaturg.results.names import abstention_name
from dramaturg.results.sums import SumAccumulator
from dramaturg.results.texts import score_of
from gateway.evaluations.judge_comparisons import ComparedItem
from gateway.evaluations.statistics import Statistics, estimate_of
from gateway.evaluations.summary import KindFigures, KindSummary
from gateway.evaluations.verdict_figures import TOPIC, FindingCounter, PanelCounter, VerdictCounter


class JudgedText(NamedTuple):
    """One text with the scales of the rubric."""

    text: TextResult
    scales: Mapping[str, CriterionScale]


def _scales(result: TextsResult) -> Mapping[str, CriterionScale]:
    return {one.id: one.scale for one in result.criteria if one.HasField("scale")}


class TextsKindSummary(KindSummary):
    def parts(self, sample: RunSample) -> Iterator[tuple[Mapping[str, str], JudgedText]]:
        result = sample.texts
        scales = _scales(result)
        for text in result.texts:
            yield {TOPIC: result.task.topic, **sample.tags}, JudgedText(text, scales)

    def compared_items(self, sample: RunSample) -> Iterator[ComparedItem]:
        result = sample.texts
        scales = _scales(result)
        for one in result.texts:
            yield ComparedItem(
                task=(result.task.id, result.task.goal),
                candidate_id=one.text_id,
                model=one.model,
                verdicts=one.verdicts,
                assessments=one.assessments,
                shadows=one.shadows,
                scales=scales,
            )

    def figures(self, options: SummaryOptions) -> TextsFigures:
        del options
        return TextsFigures()


@dataclass
class _Scores:
    verdicts: int = 0
    abstentions: Counter[str] = field(default_factory=Counter)
    sums: SumAccumulator = field(default_factory=SumAccumulator)


ScoreKey = tuple[str | None, str, int, int]
"""The model, None for all; the criterion; the lowest and the highest score of its scale."""


class TextsFigures(KindFigures):
    """Verdicts and scores by model and criterion, and the agreement of panels."""

    def __init__(self) -> None:
        self._texts = 0
        self._verdicts = VerdictCounter()
        self._scores: defaultdict[ScoreKey, _Scores] = defaultdict(_Scores)
        self._panels = PanelCounter()
        self._findings = FindingCounter()

    def add(self, parts: Sequence[JudgedText]) -> None:
        self._texts += len(parts)
        self._verdicts.add(
            (part.text.model, verdict)
            for part in parts
            for verdict in part.text.verdicts
            if verdict.criterion not in part.scales
        )
        values: defaultdict[ScoreKey, list[float]] = defaultdict(list)
        for part in parts:
            for verdict in part.text.verdicts:
                scale = part.scales.get(verdict.criterion)
                if scale is None:
                    continue
                for model in (part.text.model, None):
                    key = model, verdict.criterion, scale.lowest, scale.highest
                    counted = self._scores[key]
                    counted.verdicts += 1
                    score = score_of(verdict, scale)
                    if score is not None:
                        values[key].append(score)
                    else:
                        reason = verdict.abstain_reason or ABSTAIN_REASON_UNPARSABLE
                        counted.abstentions[abstention_name(reason)] += 1
            self._panels.add(part.text.assessments, part.scales)
            self._findings.add(part.text.model, part.text.verdicts)
        for key, some in values.items():
            self._scores[key].sums.add_values(some)

    def write(self, tags: Mapping[str, str], summary: Summary, statistics: Statistics) -> None:
        del statistics
        written = summary.texts
        if not tags:
            written.text_count = self._texts
            written.findings.extend(self._findings.figures())
        written.verdicts.extend(self._verdicts.figures(tags))
        written.scores.extend(self._score_figures(tags))
        written.panels.extend(self._panels.figures(tags))

    def _score_figures(self, tags: Mapping[str, str]) -> Iterator[ScoreFigures]:
        for (model, criterion, lowest, highest), counted in sorted(
            self._scores.items(), key=lambda one: (one[0][0] is None, one[0][0] or "", one[0][1:])
        ):
            sums, abstained = counted.sums, counted.abstentions.total()
            mean = mean_of_sums(sums.sums("", ""), lowest, highest)
            yield ScoreFigures(
                tags=tags,
                model=model or "",
                all_models=model is None,
                criterion=criterion,
                lowest=lowest,
                highest=highest,
                verdict_count=counted.verdicts,
                score_count=sums.judged,
                abstentions_by_reason=counted.abstentions,
                mean=estimate_of(mean, counted.verdicts, (lowest, highest)),
                mean_lowest=(sums.total + abstained * lowest) / counted.verdicts,
                mean_highest=(sums.total + abstained * highest) / counted.verdicts,
            )
