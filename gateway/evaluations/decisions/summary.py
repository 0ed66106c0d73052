"""Figures of decisions (Choice-75, Tables 3 and 4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dramaturg.api.evaluation.v1.decisions_pb2 import DecisionResult
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.summary_pb2 import (
    DecisionFigures,
    OptionOrderFigures,
    Summary,
    SummaryOptions,
)
from dramaturg.summaries.decision_accuracy import accuracy_request, read_accuracy
from dramaturg.summaries.decisions import DecisionsAggregator
from gateway.evaluations.statistics import Statistics
from gateway.evaluations.summary import KindFigures, KindSummary


class DecisionsKindSummary(KindSummary):
    def parts(self, sample: RunSample) -> Iterator[tuple[Mapping[str, str], DecisionResult]]:
        yield sample.tags, sample.decision

    def figures(self, options: SummaryOptions) -> DecisionsFigures:
        del options
        return DecisionsFigures()


class DecisionsFigures(KindFigures):
    """The choices by setup: model, prompt and order of the options."""

    def __init__(self) -> None:
        self._choices = DecisionsAggregator()

    def add(self, parts: Sequence[DecisionResult]) -> None:
        for result in parts:
            self._choices.add(result)

    def write(self, tags: Mapping[str, str], summary: Summary, statistics: Statistics) -> None:
        written = summary.decisions
        for setup, items in sorted(self._choices.items.items()):
            request = accuracy_request(items)
            response = statistics.alignment("MeasureAccuracy", request)
            if response is None:
                continue
            for found in read_accuracy(setup._asdict(), response, self._choices.unreleased):
                figures = DecisionFigures(
                    model=setup.model,
                    prompt=setup.prompt,
                    order=setup.order,
                    format=found.format,
                    level=found.level,
                    accuracy=found.group,
                    accuracy_abstentions_right=found.at_best,
                    human_accuracy=found.human,
                    tags=tags,
                )
                written.figures.append(figures)
        if tags:
            return
        written.choice_count = self._choices.choices
        written.unscored_choice_count = self._choices.unscored
        for (model, prompt), bias in sorted(self._choices.bias.items()):
            written.option_orders.append(
                OptionOrderFigures(
                    model=model,
                    prompt=prompt,
                    decision_count=bias.pairs,
                    answered_count=bias.answered,
                    same_share=bias.same_share,
                    named_count=bias.named,
                    first_presented_share=bias.first_shown_share,
                )
            )
