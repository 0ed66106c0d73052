"""Adds constraints to abstract goals through AuthoringService and finds duplicate tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import grpc

from dramaturg.api.generation.v1.authoring_datasets_pb2 import (
    ExpandConstraintsRequest,
    ExpandConstraintsResponse,
    ExpandedTask,
)
from dramaturg.api.generation.v1.authoring_service_pb2_grpc import AuthoringServiceStub
from dramaturg.datasets import Row
from dramaturg_research.concurrent_calls import call_each
from dramaturg_research.near_duplicates import find_duplicates


class Draft(NamedTuple):
    """A task that was made."""

    id: str
    """Its id: of the goal's line, the draw and the number of constraints."""
    task: ExpandedTask
    """The task."""
    model: str
    """The model that wrote it."""


@dataclass(frozen=True)
class Expansion:
    """The expansion of a file of goals."""

    answers: Mapping[str, ExpandConstraintsResponse]
    """The answers, by the id that their tasks begin with."""
    drafts: Sequence[Draft]
    """The tasks."""
    repeated: Mapping[str, str]
    """The id of the earlier task that a task nearly repeats, by its own."""
    unchecked: str
    """Why only equal words count as duplicates for some tasks. Empty: all were embedded and compared."""
    uncompared: frozenset[str]
    """The ids of the tasks that were compared by their words only."""


def spread(
    rows: Sequence[Row[ExpandConstraintsRequest]], count: int, model: str, constraints: int | None
) -> Mapping[str, ExpandConstraintsRequest]:
    """The requests for ``count`` draws of each goal, by the prefix of the ids of their tasks."""
    asked = {}
    for line, request in rows:
        for index in range(count):
            one = ExpandConstraintsRequest()
            one.CopyFrom(request)
            one.options.model = model or one.options.model
            one.options.repeat_index += index
            one.constraint_count = constraints or one.constraint_count
            asked[f"{line}/{index}"] = one
    return asked


async def expand_goals(
    channel: grpc.aio.Channel,
    asked: Mapping[str, ExpandConstraintsRequest],
    near: float,
    concurrency: int,
    timeout: float,
) -> Expansion:
    """Makes the calls.

    Args:
        channel: A channel to AuthoringService and EmbeddingService.
        asked: The requests, by the id that their tasks begin with.
        near: The cosine from which goals repeat each other.
        concurrency: The maximum number of concurrent calls.
        timeout: The timeout of one call, in seconds.
    """
    author = AuthoringServiceStub(channel)
    answers = await call_each(
        asked.values(),
        lambda request: author.ExpandConstraints(request, timeout=timeout),
        lambda why: ExpandConstraintsResponse(failure=why),
        concurrency,
    )
    by_name = dict(zip(asked, answers, strict=True))
    drafts = [
        Draft(f"{name}/{number}", task, _model(asked[name], answer))
        for name, answer in by_name.items()
        for number, task in enumerate(answer.tasks, start=1)
    ]
    return await _find_repeated(channel, by_name, drafts, near)


async def _find_repeated(
    channel: grpc.aio.Channel,
    answers: Mapping[str, ExpandConstraintsResponse],
    drafts: Sequence[Draft],
    near: float,
) -> Expansion:
    """Finds tasks that repeat an earlier one; those made of one goal step by step are meant to be alike."""
    by_number = defaultdict(list)
    for draft in drafts:
        by_number[len(draft.task.task.constraints)].append(draft)
    repeated: dict[str, str] = {}
    unchecked = ""
    uncompared: set[str] = set()
    for alike in by_number.values():
        found = await find_duplicates(channel, [one.task.task.goal for one in alike], near)
        unchecked = unchecked or found.unchecked
        uncompared.update(alike[index].id for index in found.uncompared)
        for one, earlier in zip(alike, found.earlier, strict=True):
            if earlier is not None:
                repeated[one.id] = alike[earlier].id
    return Expansion(answers, drafts, repeated, unchecked, frozenset(uncompared))


def _model(request: ExpandConstraintsRequest, answer: ExpandConstraintsResponse) -> str:
    completions = answer.provenance.completions
    return completions[-1].answered_model if completions else request.options.model
