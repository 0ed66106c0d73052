"""The effect of the order in which two texts are presented to a judge."""

from __future__ import annotations

from collections.abc import Iterable

from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb


class OrderEffect:
    """Counts ballots by the order of presentation."""

    def __init__(self) -> None:
        self.both = 0
        """The votes with a preference in both orders, ties included."""
        self._inconsistent = 0
        self._named = 0
        self._first_presented = 0

    def add(self, ballots: Iterable[pb.Ballot]) -> None:
        """Adds the ballots of one vote."""
        found = {
            ballot.order: ballot.preference
            for ballot in ballots
            if ballot.preference not in (pb.PREFERENCE_UNSPECIFIED, pb.PREFERENCE_ABSTAIN)
        }
        if len(found) > 1:
            self.both += 1
            self._inconsistent += len(set(found.values())) > 1
        for order, preference in found.items():
            if preference == pb.PREFERENCE_TIE:
                continue
            swapped = order == pb.PRESENTATION_ORDER_SWAPPED
            self._named += 1
            self._first_presented += (preference == pb.PREFERENCE_SECOND) == swapped

    @property
    def inconsistent_share(self) -> float | None:
        """The share of votes in both orders that differ; None without such votes."""
        return self._inconsistent / self.both if self.both else None

    @property
    def first_presented_share(self) -> float | None:
        """The share of preferences for the text presented first; None without preferences."""
        return self._first_presented / self._named if self._named else None
