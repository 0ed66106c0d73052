"""Collects ratings and comparisons of replies, and their scores for attributes (SimulBench, Table 3)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dramaturg.api.common.v1 import dialogue_pb2
from dramaturg.api.evaluation.v1 import dialogues_pb2
from dramaturg.api.evaluation.v1.dialogues_pb2 import DialogueResult, DialogueScript, ReplyScore
from dramaturg.api.judging.v1 import pair_judge_service_pb2
from dramaturg.results.dialogues import reply_ratings
from dramaturg.results.means import Mean, mean_of
from dramaturg.results.names import abstention_name
from dramaturg.summaries.ratings import (
    FIRST,
    LAST_ONLY,
    STATEFUL,
    STATELESS,
    SUBSEQUENT,
    PairCount,
    Rated,
    Script,
    aced_scripts,
    pair_counts,
)

SUBSET_NAMES = {
    dialogues_pb2.SCRIPT_SUBSET_LAST_ONLY: LAST_ONLY,
    dialogues_pb2.SCRIPT_SUBSET_FIRST_CHALLENGE: FIRST,
    dialogues_pb2.SCRIPT_SUBSET_SUBSEQUENT_CHALLENGE: SUBSEQUENT,
}
"""The kinds of script as tags and tables name them."""
KIND_NAMES = {
    dialogue_pb2.SIMULATION_KIND_STATELESS: STATELESS,
    dialogue_pb2.SIMULATION_KIND_STATEFUL: STATEFUL,
}
"""The kinds of simulation as tags and tables name them."""
HIGH_SCORE = 0.5
"""A score above it says that the attribute is likelier there than not."""

_OUTCOMES = {
    pair_judge_service_pb2.PREFERENCE_FIRST: "win",
    pair_judge_service_pb2.PREFERENCE_SECOND: "lose",
    pair_judge_service_pb2.PREFERENCE_TIE: "tie",
}


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
        """How often one model was preferred to another (``figures.pair_counts``)."""
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
