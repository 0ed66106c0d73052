"""Counts that every evaluation has: samples, failures, consumption."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.judge.provenance import add_usage


class Result(Protocol):
    """What every result has."""

    @property
    def usage(self) -> Usage:
        """What it cost."""


SomeResult = TypeVar("SomeResult", bound=Result)


class SampleAggregator(Generic[SomeResult]):
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


def usage_summary(usage: Usage) -> dict[str, int | float | None]:
    """The consumption, every member as a number; an unknown cost is None."""
    known = {field.name for field, _ in usage.ListFields()}
    return {
        field.name: None if field.has_presence and field.name not in known else getattr(usage, field.name)
        for field in usage.DESCRIPTOR.fields
    }
