"""The summary of samples that a caller sends, as a task of a process."""

from __future__ import annotations

from collections.abc import Iterator

from dramaturg.api.evaluation.v1.evaluation_service_pb2 import SummarizeRequest
from dramaturg.api.evaluation.v1.summary_pb2 import SummaryOptions
from dramaturg.service.errors import invalid
from gateway.evaluations.kinds import SUMMARIES
from gateway.evaluations.statistics import Statistics
from gateway.evaluations.summary import Summarizer
from gateway.processes.process import Ask

NEXT = b"next"
"""Asks for the next message of the caller. The answer begins with it; an empty one is the end."""


def summarize_given(ask: Ask, options: SummaryOptions) -> Iterator[bytes]:
    """The figures of the samples in the messages of a caller, as a Summary.

    Raises:
        ServiceError: INVALID_ARGUMENT: a sample cannot be summarised.
    """
    summarizer = Summarizer(SUMMARIES, options)
    while message := ask(NEXT):
        for index, sample in enumerate(SummarizeRequest.FromString(message[len(NEXT) :]).samples):
            try:
                summarizer.add(sample)
            except ValueError as error:  # an enum's value that this server does not have
                raise invalid(f"samples[{index}]", f"cannot be summarised: {error}") from error
    yield summarizer.summary(Statistics(ask)).SerializeToString()
