"""Finds the tags that the figures of a report are grouped by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.summary_pb2 import SummaryOptions, TagGrouping
from dramaturg.kinds import sample_kind

MAX_VALUES = 24
"""The most values of a tag that figures are grouped by."""
_MAX_GROUPINGS = 16  # as SummaryOptions


class GroupingFinder:
    """Reads the tags of samples, one sample at a time. Memory does not grow with the samples."""

    def __init__(self) -> None:
        self._values: defaultdict[str, set[str]] = defaultdict(set)
        self._tagged: defaultdict[str, int] = defaultdict(int)

    def add(self, sample: RunSample) -> None:
        """Adds a sample."""
        kind = sample_kind(sample)
        pairs = [*sample.tags.items()]
        if kind is not None:
            own = kind.results.groups(getattr(sample, kind.results.name))
            pairs += [(name, value) for name, value in own if name not in sample.tags]
        for name, value in pairs:
            self._tagged[name] += 1
            if len(self._values[name]) <= MAX_VALUES:
                self._values[name].add(value)

    def groupings(self) -> Sequence[str]:
        """The tags with 2 to ``MAX_VALUES`` values, except those with another value for each sample."""
        found = (name for name in sorted(self._values) if self._groups(name))
        return list(found)[:_MAX_GROUPINGS]

    def options(self) -> SummaryOptions:
        """The options of the summary that a report shows."""
        return SummaryOptions(
            groupings=[TagGrouping(tags=[name]) for name in self.groupings()], models_compared=True
        )

    def _groups(self, name: str) -> bool:
        number = len(self._values[name])
        return 2 <= number <= MAX_VALUES and number < self._tagged[name]


def find_groupings(samples: Iterable[RunSample]) -> GroupingFinder:
    """Reads the tags of all samples."""
    finder = GroupingFinder()
    for sample in samples:
        finder.add(sample)
    return finder
