"""Collects ratings, comparisons and scores of replies."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from dramaturg.api.common.v1 import dialogue_pb2
from dramaturg.api.evaluation.v1 import dialogues_pb2
from dramaturg.api.evaluation.v1.dialogues_pb2 import (
    DialogueResult,
    DialogueScript,
)
from dramaturg.api.judging.v1 import pair_judge_service_pb2
from dramaturg.results.dialogues import reply_ratings
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
from dramaturg.summaries.reply_scores import ReplyScoreAggregator
from dramaturg.summaries.samples import SampleAggregator

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

_OUTCOMES = {
    pair_judge_service_pb2.PREFERENCE_FIRST: "win",
    pair_judge_service_pb2.PREFERENCE_SECOND: "lose",
    pair_judge_service_pb2.PREFERENCE_TIE: "tie",
}


class DialoguesAggregator(SampleAggregator[DialogueResult]):
    """The judgements of an evaluation of replies. It keeps numbers, no text.

    Args:
        keep_aced: Whether scripts that every model aces stay in the figures.
    """

    def __init__(self, *, keep_aced: bool = False) -> None:
        super().__init__()
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
        script = describe_script(result.script, result.script.id or f"#{self.samples}")
        super().add(result)
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
