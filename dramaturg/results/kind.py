"""The interface of a kind of results.

A kind is a module ``dramaturg.results.<kind>``; ``dramaturg.kinds`` lists all kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult


def _no_groups(result: Any) -> Iterable[tuple[str, str]]:
    del result
    return ()


@dataclass(frozen=True)
class ResultKind:
    """The results of one kind of evaluation."""

    name: str
    """The member of ``RunSample.result``."""
    json_member: str
    """A member that only this kind has among the results of a file, as named in protobuf's JSON."""
    rows: Callable[[Any, bool], Iterable[RunResult]]
    """Flattens a result into judgements, in order. The flag tells whether rationales, findings and provenance
    are needed; a kind may ignore it.
    """
    ranking: str
    """The sentence that states how models are ranked by default."""
    ranked: bool = True
    """Whether models are under test. If False, there is no leaderboard."""
    primary_measure: str = ""
    """The measure that ranks models by default. Empty: all measures together."""
    secondary_measure: str = ""
    """The measure that ranks where there is no primary one. Empty: none."""
    setup_prefix: str = ""
    """The start of the measures of setups, which are ranked apart, e.g. "correct/". Empty: one setup."""
    groups: Callable[[Any], Iterable[tuple[str, str]]] = _no_groups
    """The groups of a result's parts beside its tags, as names and values; a name may have several values."""

    def is_setup(self, measure: str) -> bool:
        """Whether a measure is that of one setup of several, e.g. "correct/naive"."""
        return bool(self.setup_prefix) and measure.startswith(self.setup_prefix)

    def is_primary(self, measure: str) -> bool:
        """Whether a measure is the primary one, or that of a setup."""
        return measure == self.primary_measure or self.is_setup(measure)

    def may_rank(self, measure: str) -> bool:
        """Whether a measure can be that of the leaderboard by default."""
        if not self.primary_measure:
            return not measure
        return self.is_primary(measure) or measure == self.secondary_measure
