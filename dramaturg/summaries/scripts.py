"""Counts of verdicts on scripts. It keeps numbers only, in constant memory."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from dramaturg.api.evaluation.v1.scripts_pb2 import ScriptsResult
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.results.names import abstention_name, outcome_name
from dramaturg.summaries.samples import SampleAggregator, usage_summary

OUTCOMES = ("PASS", "FAIL", "ABSTAIN")
"""The outcomes of a verdict, as they are shown."""


class ScriptsAggregator(SampleAggregator[ScriptsResult]):
    """The counts of an evaluation of scripts.

    Args:
        group_by: The tag by whose values verdicts are also counted. Empty: none.
    """

    def __init__(self, group_by: str = "") -> None:
        super().__init__()
        self.group_by = group_by
        self.candidates = 0
        self.verdicts: Counter[str] = Counter()
        self.abstentions: Counter[str] = Counter()
        self.by_criterion: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.by_model: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.by_tag: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def add(self, result: ScriptsResult) -> None:
        """Counts a sample."""
        super().add(result)
        self.candidates += len(result.candidates)
        for candidate in result.candidates:
            for verdict in candidate.verdicts:
                outcome = outcome_name(verdict.outcome)
                self.verdicts[outcome] += 1
                self.by_criterion[verdict.criterion][outcome] += 1
                self.by_model[candidate.model][outcome] += 1
                if self.group_by:
                    self.by_tag[result.tags.get(self.group_by, "")][outcome] += 1
                if outcome == "ABSTAIN":
                    self.abstentions[abstention_name(verdict.abstain_reason)] += 1

    def criteria(self) -> Iterator[str]:
        """The criteria that were judged, ABSEval's first, then others by name."""
        yield from (criterion for criterion in ABSEVAL if criterion in self.by_criterion)
        yield from sorted(set(self.by_criterion) - set(ABSEVAL))

    def summary(self) -> dict[str, Any]:
        """The counts as they are printed by ``--json`` (documented in docs/cli.md; keep it stable)."""
        summary: dict[str, Any] = {
            "samples": self.samples,
            "failed_samples": self.failed_samples,
            "candidates": self.candidates,
            "verdicts": _outcomes(self.verdicts),
            "abstentions": dict(sorted(self.abstentions.items())),
            "by_criterion": {name: _outcomes(self.by_criterion[name]) for name in self.criteria()},
            "by_model": {name: _outcomes(counts) for name, counts in sorted(self.by_model.items())},
        }
        if self.group_by:
            values = {value: _outcomes(counts) for value, counts in sorted(self.by_tag.items())}
            summary["by_tag"] = {self.group_by: values}
        return {**summary, "usage": usage_summary(self.usage)}


def _outcomes(counts: Mapping[str, int]) -> dict[str, int]:
    return {outcome: counts.get(outcome, 0) for outcome in OUTCOMES}
