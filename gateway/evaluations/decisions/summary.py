"""The figures of decisions: accuracy by format and level (Choice-75, Tables 3 and 4), and position bias."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dramaturg.api.alignment.v1 import accuracy_pb2
from dramaturg.api.alignment.v1.accuracy_pb2 import (
    AccuracyGroup,
    Grouping,
    LabelledItem,
    MeasureAccuracyRequest,
    MeasureAccuracyResponse,
    Subset,
)
from dramaturg.api.common.v1 import decision_pb2
from dramaturg.api.evaluation.v1.decisions_pb2 import DecisionResult, ModelChoice
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.summary_pb2 import DecisionFigures, OptionOrderFigures, Summary
from dramaturg.api.generation.v1.authoring_decisions_pb2 import DecisionPrompt
from dramaturg.kinds.decisions import SOURCE, SOURCE_TAG, choice_name
from dramaturg.results.names import ALL, reason_name, value_name
from gateway.evaluations.statistics import Statistics
from gateway.evaluations.summary import KindFigures, KindSummary

KEPT_TAGS = ("format", "level")
"""The tags by which accuracy is broken down (Choice-75, Table 3)."""
BINARY = "binary"
"""The part of a group where one option is better: the levels easy, medium and hard."""

_ORDER = ("easy", "medium", "hard", "either", BINARY, ALL)

HUMAN_ACCURACY: Mapping[tuple[str, str], float] = {
    ("verb_phrase_manual", "easy"): 0.94,
    ("verb_phrase_manual", "medium"): 0.81,
    ("verb_phrase_manual", "hard"): 0.82,
    ("verb_phrase_manual", "either"): 0.62,
    ("verb_phrase_machine", "easy"): 0.94,
    ("verb_phrase_machine", "medium"): 0.77,
    ("verb_phrase_machine", "hard"): 0.68,
    ("verb_phrase_machine", "either"): 0.41,
    ("user_profile", "easy"): 0.89,
    ("user_profile", "medium"): 0.78,
    ("user_profile", "hard"): 0.75,
    ("user_profile", "either"): 0.53,
    (ALL, "easy"): 0.92,
    (ALL, "medium"): 0.79,
    (ALL, "hard"): 0.76,
    (ALL, "either"): 0.53,
    (ALL, ALL): 0.74,
}
"""The accuracy of people on 290 scenarios, by format and level (Table 4; over all: section 4.2)."""


class Setup(NamedTuple):
    """One way in which decisions were put to one model."""

    model: str
    """The model. Empty: the author's own."""
    prompt: str
    """"naive" or "story"."""
    order: str
    """The order in which the options were shown, "as-given" or "swapped"."""


@dataclass(frozen=True)
class AccuracyFigures:
    """The accuracy of one setup on one format and level."""

    setup: Mapping[str, str]
    """Which model, prompt and order."""
    format: str
    """The format. "all": every format together."""
    level: str
    """The level, "binary" or "all"."""
    group: AccuracyGroup
    """The measured figures."""
    released: bool = False
    """Whether every decision of it comes from the released data of Choice-75."""

    @property
    def human(self) -> float | None:
        """The accuracy of people where the paper states it, for decisions of the released data alone."""
        return HUMAN_ACCURACY.get((self.format, self.level)) if self.released else None

    @property
    def at_best(self) -> float | None:
        """The accuracy with every abstention counted as right: an upper bound."""
        group = self.group
        abstained = group.item_count - group.answered_count
        return (group.correct_count + abstained) / group.item_count if group.item_count else None


@dataclass
class PositionBias:
    """How the same decisions were taken with option 1 shown first and with option 2 shown first."""

    pairs: int = 0
    """The decisions put in both orders."""
    answered: int = 0
    """Those of them answered in both."""
    same: int = 0
    """Those answered in both with the same choice."""
    named: int = 0
    """The answers, among those in both orders, that choose one of the options."""
    first_shown: int = 0
    """Those of them that choose the option shown first."""

    def add(self, as_given: int, swapped: int) -> None:
        """Counts a decision's two choices, in the order of the request; 0 abstains."""
        self.pairs += 1
        if not (as_given and swapped):
            return
        self.answered += 1
        self.same += as_given == swapped
        options = (decision_pb2.CHOICE_OPTION_1, decision_pb2.CHOICE_OPTION_2)
        self.named += (as_given in options) + (swapped in options)
        self.first_shown += (as_given == options[0]) + (swapped == options[1])

    @property
    def same_share(self) -> float | None:
        """The share of decisions answered in both orders with the same choice. None: there are none."""
        return self.same / self.answered if self.answered else None

    @property
    def first_shown_share(self) -> float | None:
        """The share of the named options that were shown first; 0.5 without bias. None: there are none."""
        return self.first_shown / self.named if self.named else None


def accuracy_request(items: Sequence[LabelledItem]) -> MeasureAccuracyRequest:
    """Requests the accuracy by format and level, by either, and over all, each also binary.

    Args:
        items: The choices of one setup.
    """
    return MeasureAccuracyRequest(
        items=items,
        groupings=[
            Grouping(tags=["format", "level"]),
            Grouping(tags=["format"]),
            Grouping(tags=["level"]),
            Grouping(),
        ],
        subsets=[Subset(name=BINARY, tag="level", values=["easy", "medium", "hard"])],
        abstention_policy=accuracy_pb2.ABSTENTION_POLICY_EXCLUDED,
        macro_tag="level",
    )


def read_accuracy(
    setup: Mapping[str, str], response: MeasureAccuracyResponse, others: Collection[tuple[str, str]] = ()
) -> Sequence[AccuracyFigures]:
    """The figures of one setup: by format, all formats last; within it by level, then binary, then all.

    Args:
        setup: Which model, prompt and order.
        response: What was measured.
        others: The formats and levels of decisions that are not of the released data of Choice-75.
    """
    found = []
    for group in response.groups:
        by_level = "level" in group.tags
        # Within one level the binary part is the level itself, or nothing.
        if not group.item_count or (by_level and group.subset != ALL):
            continue
        level = group.tags["level"] if by_level else group.subset
        form = group.tags.get("format", ALL)
        released = not any(form in (ALL, one) and level in (ALL, BINARY, other) for one, other in others)
        found.append(AccuracyFigures(setup, form, level, group, released))
    return sorted(found, key=lambda one: (one.format == ALL, one.format, _rank(one.level), one.level))


def _rank(level: str) -> int:
    return _ORDER.index(level) if level in _ORDER else -1


class DecisionsFigures(KindFigures):
    """The choices by setup: model, prompt and order of the options. It keeps a label for each, no text."""

    def __init__(self) -> None:
        self._choices = 0
        self._unscored = 0
        self._items: defaultdict[Setup, list[LabelledItem]] = defaultdict(list)
        self._bias: defaultdict[tuple[str, str], PositionBias] = defaultdict(PositionBias)
        self._unreleased: set[tuple[str, str]] = set()
        """The formats and levels of decisions that are not of the released data of Choice-75."""

    def add(self, parts: Sequence[DecisionResult]) -> None:
        for result in parts:
            self._count(result)

    def _count(self, result: DecisionResult) -> None:
        gold = choice_name(result.gold)
        tags = {tag: result.tags[tag] for tag in KEPT_TAGS if tag in result.tags}
        if result.tags.get(SOURCE_TAG) != SOURCE:
            self._unreleased.add((tags.get("format", ""), tags.get("level", "")))
        orders: defaultdict[tuple[str, str], dict[bool, int]] = defaultdict(dict)
        for choice in result.choices:
            self._choices += 1
            setup = _setup(choice)
            orders[setup.model, setup.prompt][choice.options_swapped] = choice.choice
            if gold:
                self._items[setup].append(
                    LabelledItem(
                        gold=gold,
                        # A failure is a label of its own, which is never right.
                        predicted=choice_name(choice.choice) or reason_name(choice.failure_reason).lower(),
                        abstain_reason=choice.abstain_reason,
                        tags=tags,
                    )
                )
            else:
                self._unscored += 1
        for key, chosen in orders.items():
            if len(chosen) > 1:
                self._bias[key].add(chosen[False], chosen[True])

    def write(self, tags: Mapping[str, str], summary: Summary, statistics: Statistics) -> None:
        written = summary.decisions
        for setup, items in sorted(self._items.items()):
            request = accuracy_request(items)
            response = statistics.alignment("MeasureAccuracy", request)
            if response is None:
                continue
            for found in read_accuracy(setup._asdict(), response, self._unreleased):
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
        written.choice_count = self._choices
        written.unscored_choice_count = self._unscored
        for (model, prompt), bias in sorted(self._bias.items()):
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


class DecisionsKindSummary(KindSummary):
    figures_type = DecisionsFigures

    def parts(self, sample: RunSample) -> Iterator[tuple[Mapping[str, str], DecisionResult]]:
        yield sample.tags, sample.decision


def _setup(choice: ModelChoice) -> Setup:
    prompt = value_name(DecisionPrompt, choice.prompt).lower()
    return Setup(choice.model, prompt, "swapped" if choice.options_swapped else "as-given")
