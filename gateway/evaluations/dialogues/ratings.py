"""The figures of replies (SimulBench): ratings (Table 4), pairs (Table 1), tasks (2), attributes (3).

A figure rests on what was judged; what abstained is counted beside it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dramaturg.api.evaluation.v1.dialogues_pb2 import DialogueResult, DialogueScript, ReplyScore
from dramaturg.api.judging.v1 import pair_judge_service_pb2
from dramaturg.kinds.dialogues import (
    FIRST,
    HIGHEST,
    KIND_NAMES,
    LAST_ONLY,
    LOWEST,
    STATEFUL,
    STATELESS,
    SUBSEQUENT,
    SUBSET_NAMES,
    is_aced,
    reply_ratings,
)
from dramaturg.results.means import Mean, mean_of
from dramaturg.results.names import abstention_name

HARD = frozenset({FIRST, SUBSEQUENT})
"""The kinds that make the hard part."""
HIGH_SCORE = 0.5
"""A score above it says that the attribute is likelier there than not."""

_OUTCOMES = {
    pair_judge_service_pb2.PREFERENCE_FIRST: "win",
    pair_judge_service_pb2.PREFERENCE_SECOND: "lose",
    pair_judge_service_pb2.PREFERENCE_TIE: "tie",
}


class Script(NamedTuple):
    """The facts of a test script that figures depend on."""

    id: str
    """The script."""
    task: str
    """The name of the task."""
    subset: str
    """Which kind of script it is; empty where that is not stated."""
    kind: str
    """Which kind of simulation; empty where that is not stated."""


GROUPS: Mapping[str, Callable[[Script], bool]] = {
    "all": lambda _: True,
    "hard": lambda script: script.subset in HARD,
    LAST_ONLY: lambda script: script.subset == LAST_ONLY,
    FIRST: lambda script: script.subset == FIRST,
    SUBSEQUENT: lambda script: script.subset == SUBSEQUENT,
    STATELESS: lambda script: script.kind == STATELESS,
    STATEFUL: lambda script: script.kind == STATEFUL,
    # The paper's own columns of kinds: they leave out all but the first challenging turn (section 4.2.1).
    f"{FIRST}, {STATELESS}": lambda script: (script.subset, script.kind) == (FIRST, STATELESS),
    f"{FIRST}, {STATEFUL}": lambda script: (script.subset, script.kind) == (FIRST, STATEFUL),
}
"""The groups of scripts, by name."""


class Rated(NamedTuple):
    """The rating of one reply: the mean of its judges', where there are several."""

    script: Script
    """The script."""
    model: str
    """The model that replied."""
    value: float | None
    """The rating. None: every judge abstained."""
    agreements: Sequence[float] = ()
    """How far the repeats of each judge that has some agree (``Rating.measured_confidence``)."""


class Score(NamedTuple):
    """The mean rating of a model on a group of scripts."""

    model: str
    """The model."""
    group: str
    """The group, a key of ``GROUPS``."""
    scripts: int
    """How many scripts the group has."""
    mean: Mean
    """The mean over those that were rated."""
    agreements: Sequence[float] = ()
    """Those of all replies."""


class TaskScore(NamedTuple):
    """How hard a task is: the mean rating over its scripts and all models (section 4.2.3)."""

    task: str
    """The task."""
    kind: str
    """Its kind."""
    mean: Mean
    """The mean."""


@dataclass
class PairCount:
    """How often one model's reply was preferred to another's."""

    win: int = 0
    """The first model's was."""
    tie: int = 0
    """Neither was, or the orders disagreed."""
    lose: int = 0
    """The second model's was."""
    abstained: int = 0
    """No judgement was reached."""


def aced_scripts(ratings: Iterable[Rated]) -> frozenset[str]:
    """The scripts that every model aces (``dramaturg.kinds.dialogues.is_aced``)."""
    values: defaultdict[str, dict[str, float | None]] = defaultdict(dict)
    for rated in ratings:
        values[rated.script.id][rated.model] = rated.value
    return frozenset(name for name, found in values.items() if is_aced(found))


def scores(ratings: Sequence[Rated]) -> Sequence[Score]:
    """The mean ratings, by model in the order met, then by group; groups without scripts are left out."""
    found = []
    for model in dict.fromkeys(rated.model for rated in ratings):
        mine = [rated for rated in ratings if rated.model == model]
        for group, holds in GROUPS.items():
            held = [rated for rated in mine if holds(rated.script)]
            if held:
                judged = [rated.value for rated in held if rated.value is not None]
                agreements = [one for rated in held for one in rated.agreements]
                found.append(Score(model, group, len(held), mean_of(judged, LOWEST, HIGHEST), agreements))
    return found


def task_scores(ratings: Iterable[Rated]) -> Sequence[TaskScore]:
    """The tasks that were rated, the hardest first."""
    values: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for rated in ratings:
        if rated.value is not None:
            values[rated.script.task, rated.script.kind].append(rated.value)
    found = [TaskScore(*key, mean_of(judged, LOWEST, HIGHEST)) for key, judged in values.items()]
    return sorted(found, key=lambda one: (one.mean.value or 0.0, one.task))


def pair_counts(
    compared: Iterable[tuple[Script, str, str, str, str]],
) -> Mapping[tuple[str, str, str, str], PairCount]:
    """Counts comparisons by first model, second model, judge and group ("all" or "hard").

    Args:
        compared: Script, first model, second model, judge, and "win", "tie", "lose" or "abstained" for the
            first model.
    """
    counts: dict[tuple[str, str, str, str], Counter[str]] = defaultdict(Counter)
    for script, first, second, judge, outcome in compared:
        for group in ("all", "hard"):
            if GROUPS[group](script):
                counts[first, second, judge, group][outcome] += 1
    return {key: PairCount(**count) for key, count in counts.items()}


class DialoguesAggregator:
    """The judgements of an evaluation of replies. It keeps numbers, no text.

    Args:
        keep_aced: Whether scripts that every model aces stay in the figures.
    """

    def __init__(self, *, keep_aced: bool = False) -> None:
        self._scripts = 0
        self.keep_aced = keep_aced
        self.unusable_replies: Counter[tuple[str, str]] = Counter()
        """By model and reason."""
        self.abstentions: Counter[str] = Counter()
        """Judges' abstentions on usable replies, by reason."""
        self.ratings: list[Rated] = []
        self.attributes = ReplyScoreAggregator()
        """Scores for attributes, aced scripts included."""
        self._compared: list[tuple[Script, str, str, str, str]] = []

    def add(self, result: DialogueResult) -> None:
        """Counts a script."""
        # Two scripts without an id are still two scripts.
        script = describe_script(result.script, result.script.id or f"#{self._scripts}")
        self._scripts += 1
        unusable = {reply.model for reply in result.replies if reply.abstain_reason}
        for reply in result.replies:
            if reason := reply.abstain_reason or reply.failure_reason:
                self.unusable_replies[reply.model, abstention_name(reason)] += 1
        for rated in result.ratings:
            if not rated.rating.HasField("value") and rated.model not in unusable:
                self.abstentions[abstention_name(rated.rating.abstain_reason)] += 1
        agreements: defaultdict[str, list[float]] = defaultdict(list)
        for rated in result.ratings:
            if rated.rating.HasField("measured_confidence"):
                agreements[rated.model].append(rated.rating.measured_confidence)
        self.ratings += [
            Rated(script, model, rating, tuple(agreements[model]))
            for model, rating in reply_ratings(result.ratings).items()
        ]
        for one in result.comparisons:
            outcome = _OUTCOMES.get(one.comparison.preference, "abstained")
            self._compared.append((script, one.first_model, one.second_model, one.judge, outcome))

        self.attributes.add(result.scores)

    @staticmethod
    def subset_of(result: DialogueResult) -> str:
        """The kind of a result's script; empty where it is not stated."""
        return SUBSET_NAMES.get(result.script.subset, "")

    @property
    def aced(self) -> frozenset[str]:
        """The scripts that every model aces."""
        return aced_scripts(self.ratings)

    def kept_ratings(self) -> list[Rated]:
        """The ratings that figures rest on."""
        aside = frozenset[str]() if self.keep_aced else self.aced
        return [rated for rated in self.ratings if rated.script.id not in aside]

    def pairs(self) -> Mapping[tuple[str, str, str, str], PairCount]:
        """How often one model was preferred to another (``pair_counts``)."""
        return pair_counts(self._compared)


def describe_script(script: DialogueScript, name: str) -> Script:
    """The facts of a script that figures depend on."""
    return Script(
        name, script.task.name, SUBSET_NAMES.get(script.subset, ""), KIND_NAMES.get(script.task.kind, "")
    )


class AttributeScore(NamedTuple):
    """How one model's replies score for one attribute, all scripts taken together."""

    model: str
    """The model that replied."""
    judge: str
    """The registered name of the scorer."""
    attribute: str
    """What it scores. Empty where it never said."""
    mean: Mean
    """The mean over the replies that were scored, in [0, 1]."""
    high: int
    """How many of those are above ``HIGH_SCORE``."""
    abstentions: Mapping[str, int]
    """The replies that were not scored, by reason: those that could not be had among them."""

    @property
    def replies(self) -> int:
        """How many replies there are."""
        return self.mean.n + sum(self.abstentions.values())

    @property
    def coverage(self) -> float:
        """The share of replies that were scored."""
        return self.mean.n / self.replies

    @property
    def high_share(self) -> float | None:
        """The share of scored replies above ``HIGH_SCORE``. None: none was scored."""
        return self.high / self.mean.n if self.mean.n else None


class ReplyScoreAggregator:
    """Collects scores by model and scorer. It keeps numbers, no text."""

    def __init__(self) -> None:
        self._values: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        self._abstentions: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self._attributes: dict[str, str] = {}

    def add(self, scores: Iterable[ReplyScore]) -> None:
        """Counts the scores of one script's replies."""
        for one in scores:
            key = one.model, one.judge
            abstentions = self._abstentions[key]
            if one.attribute:
                # A failed score does not state its attribute; the scorer's other scores do.
                self._attributes.setdefault(one.judge, one.attribute)
            if one.score.HasField("value"):
                self._values[key].append(one.score.value)
            else:
                abstentions[abstention_name(one.score.abstain_reason)] += 1

    def figures(self) -> Sequence[AttributeScore]:
        """The figures, in the order met."""
        return [
            AttributeScore(
                model,
                judge,
                self._attributes.get(judge, ""),
                mean_of(values := self._values[model, judge], 0.0, 1.0),
                sum(value > HIGH_SCORE for value in values),
                abstentions,
            )
            for (model, judge), abstentions in self._abstentions.items()
        ]
