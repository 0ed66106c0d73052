"""Predicts each ordered pair apart, as a probability (proScript, section 5.1, the pairwise model)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, TypeVar

from dramaturg.api.generation.v1 import edge_service_pb2 as pb
from dramaturg.api.graph.v1.graph_service_pb2 import PairProbability
from dramaturg.api.graph.v1.script_graph_pb2 import Event
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.judge.provenance import merge
from services.generation.author import Author
from services.generation.edges.pairs import Ballot, PairAsker

LOG_PROBABILITIES, VOTES = "log-probabilities", "votes"
"""Where probabilities come from (``PredictEdgesResponse.probability_source``)."""
CONCURRENCY = 64
"""How many pairs of a request are asked about at once. How many of them go out, the limiter decides."""

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class _Pair:
    source: Event
    target: Event

    def __str__(self) -> str:
        return f"{self.source.id!r} before {self.target.id!r}"


class PairwisePredictor:
    """Asks about every ordered pair of events.

    Args:
        author: Asks the model.
        library: The prompts.
    """

    def __init__(self, author: Author, library: PromptLibrary) -> None:
        self._author = author
        self._prompt = library.load("precedes", placeholders={"scenario", "first", "second"})

    async def predict(self, request: pb.PredictEdgesRequest) -> pb.PredictEdgesResponse:
        """Predicts the probabilities.

        Every pair is asked about once, with log-probabilities. Where no answer has any, the pairs are asked
        about again until each has ``vote_count`` answers, and the share of "yes" is the probability.

        Raises:
            ServiceError: The model's configuration keeps it from ever answering.
        """
        asker = PairAsker(self._author, self._prompt, request.scenario, request.options)
        pairs = [_Pair(*two) for two in permutations(request.events, 2)]
        vote_count = max(1, request.vote_count)
        first_repeat = request.options.repeat_index * vote_count

        async def ask(pair: _Pair, vote: int = 0) -> Ballot:
            return await asker.ask(pair.source.text, pair.target.text, first_repeat + vote)

        async def ask_again(pair: _Pair) -> list[Ballot]:
            return [await ask(pair, vote) for vote in range(1, vote_count)]

        ballots = [[ballot] for ballot in await _side_by_side(ask, pairs)]
        source = LOG_PROBABILITIES if any(own[0].has_tokens for own in ballots) else VOTES
        if source == VOTES and vote_count > 1:
            for own, more in zip(ballots, await _side_by_side(ask_again, pairs), strict=True):
                own += more
        return _respond(pairs, ballots, source)


def _respond(
    pairs: Sequence[_Pair], ballots: Sequence[Sequence[Ballot]], source: str
) -> pb.PredictEdgesResponse:
    response = pb.PredictEdgesResponse(method=pb.EDGE_METHOD_PAIRWISE)
    for pair, own in zip(pairs, ballots, strict=True):
        if source == VOTES:
            votes = [ballot.yes for ballot in own if ballot.yes is not None]
            probability = sum(votes) / len(votes) if votes else None
            if 0 < len(votes) < len(own):
                response.dropped.append(f"{pair}: {len(own) - len(votes)} of {len(own)} votes are unclear")
        else:
            probability = own[0].probability
        if probability is None:
            response.dropped.append(f"{pair}: {own[0].why_nothing}")
            continue
        response.probabilities.append(
            PairProbability(source_id=pair.source.id, target_id=pair.target.id, probability=probability)
        )
    every = [ballot for own in ballots for ballot in own]
    if response.probabilities:
        response.probability_source = source
    else:
        # All pairs failed, most of them for this reason.
        response.abstain_reason = Counter(ballot.reason for ballot in every).most_common(1)[0][0]
    response.provenance.CopyFrom(merge(ballot.provenance for ballot in every))
    return response


async def _side_by_side(work: Callable[[T], Coroutine[Any, Any, R]], items: Sequence[T]) -> list[R]:
    """Does the work on all items, some at once. The first failure cancels the rest and is raised."""
    turns = asyncio.Semaphore(CONCURRENCY)

    async def in_turn(item: T) -> R:
        async with turns:
            return await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(in_turn(item)) for item in items]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]
