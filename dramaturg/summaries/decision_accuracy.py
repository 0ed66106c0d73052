"""The figures of decisions: accuracy by format and level (Choice-75, Tables 3 and 4), and position bias."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

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

BINARY = "binary"
"""The part of a group where one option is better: the levels easy, medium and hard."""
ALL = "all"
"""The whole group."""

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


@dataclass(frozen=True)
class Figures:
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
) -> Sequence[Figures]:
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
        found.append(Figures(setup, form, level, group, released))
    return sorted(found, key=lambda one: (one.format == ALL, one.format, _rank(one.level), one.level))


def _rank(level: str) -> int:
    return _ORDER.index(level) if level in _ORDER else -1
