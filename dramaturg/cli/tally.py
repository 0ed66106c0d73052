"""Counts verdicts. It keeps numbers only, whatever the number of samples."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason, Outcome
from dramaturg.api.evaluation.v1.evaluation_service_pb2 import ScriptsResult
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.judge.usage import add_usage

OUTCOMES = ("PASS", "FAIL", "ABSTAIN")
"""The outcomes of a verdict, as they are shown."""


def outcome_name(outcome: int) -> str:
    """An outcome as it is shown, such as "PASS"."""
    return Outcome.Name(Outcome.ValueType(outcome)).removeprefix("OUTCOME_")


def reason_name(reason: int) -> str:
    """An abstention's reason as it is shown, such as "UNPARSABLE"; one that is not known here by number."""
    known = AbstainReason.DESCRIPTOR.values_by_number.get(reason)
    return f"REASON_{reason}" if known is None else str(known.name).removeprefix("ABSTAIN_REASON_")


class Result(Protocol):
    """What every result has."""

    @property
    def usage(self) -> Usage:
        """What it cost."""


SomeResult = TypeVar("SomeResult", bound=Result)


class SampleTally(Generic[SomeResult]):
    """The counts of any evaluation."""

    def __init__(self) -> None:
        self.samples = 0
        self.failed_samples = 0
        self.usage = Usage()

    def add(self, result: SomeResult) -> None:
        """Counts a sample."""
        self.samples += 1
        self.usage = add_usage(self.usage, result.usage)

    def add_failure(self) -> None:
        """Counts a sample that has no result."""
        self.samples += 1
        self.failed_samples += 1

    def summary(self) -> dict[str, Any]:
        """The counts as they are printed by ``--json`` (documented in docs/cli.md; keep it stable)."""
        return {
            "samples": self.samples,
            "failed_samples": self.failed_samples,
            "usage": usage_summary(self.usage),
        }


class Tally(SampleTally[ScriptsResult]):
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
                    self.abstentions[reason_name(verdict.abstain_reason)] += 1

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


def usage_summary(usage: Usage) -> dict[str, int | float | None]:
    """What was consumed, every member as a number; a cost that is not known is None."""
    members: dict[str, int | float | None] = {
        field.name: getattr(usage, field.name) for field in usage.DESCRIPTOR.fields
    }
    if not usage.HasField("cost_usd"):
        members["cost_usd"] = None
    return members


def _outcomes(counts: Mapping[str, int]) -> dict[str, int]:
    return {outcome: counts.get(outcome, 0) for outcome in OUTCOMES}
