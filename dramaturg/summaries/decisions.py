"""Collects the choices of models as items for MeasureAccuracy."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from dramaturg.api.alignment.v1.accuracy_pb2 import LabelledItem
from dramaturg.api.common.v1.decision_pb2 import Choice
from dramaturg.api.evaluation.v1.decisions_pb2 import DecisionResult, ModelChoice
from dramaturg.api.generation.v1.authoring_decisions_pb2 import DecisionPrompt
from dramaturg.results.decisions import SOURCE, SOURCE_TAG
from dramaturg.results.names import reason_name, value_name
from dramaturg.summaries.decision_accuracy import PositionBias

KEPT_TAGS = ("format", "level")
"""The tags by which accuracy is broken down (Choice-75, Table 3)."""


class Setup(NamedTuple):
    """One way in which decisions were put to one model."""

    model: str
    """The model. Empty: the author's own."""
    prompt: str
    """"naive" or "story"."""
    order: str
    """The order in which the options were shown, "as-given" or "swapped"."""


def choice_name(choice: int) -> str:
    """A choice as it is shown, such as "option-1". Empty: an abstention."""
    if not choice:
        return ""
    return value_name(Choice, choice).lower().replace("_", "-")


class DecisionsAggregator:
    """The choices of an evaluation. It keeps a label for each, no text."""

    def __init__(self) -> None:
        self.choices = 0
        self.unscored = 0
        self.items: defaultdict[Setup, list[LabelledItem]] = defaultdict(list)
        self.bias: defaultdict[tuple[str, str], PositionBias] = defaultdict(PositionBias)
        self.unreleased: set[tuple[str, str]] = set()
        """The formats and levels of decisions that are not of the released data of Choice-75."""

    def add(self, result: DecisionResult) -> None:
        """Counts a decision."""
        gold = choice_name(result.gold)
        tags = {tag: result.tags[tag] for tag in KEPT_TAGS if tag in result.tags}
        if result.tags.get(SOURCE_TAG) != SOURCE:
            self.unreleased.add((tags.get("format", ""), tags.get("level", "")))
        orders: defaultdict[tuple[str, str], dict[bool, int]] = defaultdict(dict)
        for choice in result.choices:
            self.choices += 1
            setup = _setup(choice)
            orders[setup.model, setup.prompt][choice.options_swapped] = choice.choice
            if gold:
                self.items[setup].append(
                    LabelledItem(
                        gold=gold,
                        # A failure is a label of its own, which is never right.
                        predicted=choice_name(choice.choice) or reason_name(choice.failure_reason).lower(),
                        abstain_reason=choice.abstain_reason,
                        tags=tags,
                    )
                )
            else:
                self.unscored += 1
        for key, chosen in orders.items():
            if len(chosen) > 1:
                self.bias[key].add(chosen[False], chosen[True])


def _setup(choice: ModelChoice) -> Setup:
    prompt = value_name(DecisionPrompt, choice.prompt).lower()
    return Setup(choice.model, prompt, "swapped" if choice.options_swapped else "as-given")
