"""Predicts edges in one answer, or each ordered pair separately (proScript, section 5.1).

Predicts each ordered pair separately, as a probability (proScript, section 5.1, the pairwise model). The
probability is that of "yes" among the answers yes and no.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, TypeVar

from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason
from dramaturg.api.generation.v1 import edge_service_pb2 as pb
from dramaturg.api.generation.v1.generation_service_pb2 import TokenLogprob
from dramaturg.api.graph.v1.graph_service_pb2 import PairProbability
from dramaturg.api.graph.v1.script_graph_pb2 import Event, ScriptGraph
from dramaturg.judge import abstentions
from dramaturg.judge.abstentions import Abstention
from dramaturg.judge.answers import UnclearAnswerError
from dramaturg.judge.fence import fence
from dramaturg.judge.llm import ANSWER_PLACEHOLDER, Question
from dramaturg.judge.prompts import Prompt, PromptLibrary
from dramaturg.judge.provenance import merge
from dramaturg.judge.refusals import is_refusal
from dramaturg.judge.shapes import MOST_CHARACTERS, Record, Text
from dramaturg.judge.short_answers import CONTINUED, options_of
from dramaturg.service import threads
from dramaturg.service.errors import ServiceError
from dramaturg.service.threads import gather_all
from services.generation.author import SHORT_ANSWER_TOKENS, Author, Written, with_defaults
from services.generation.edges.answers import (
    EDGES,
    NumberedEvents,
    ReadEdges,
    read_edges,
    read_edges_between,
    scenario_excerpt,
)

_SHAPE = Record(
    {
        "reasoning": Text(
            "what needs what, and what can happen side by side", optional=True, most=MOST_CHARACTERS
        ),
        "edges": EDGES,
    }
)


@dataclass(frozen=True)
class EdgesForm:
    """The form of reasoning and edges."""

    ids: Mapping[int, str]
    """The events' ids by number."""

    @property
    def name(self) -> str:
        return "edges"

    @property
    def shape(self) -> Record:
        """Reasoning first."""
        return _SHAPE

    def parse(self, value: Any) -> ReadEdges:
        """Reads the edges. An empty list is valid: no event precedes another.

        Raises:
            UnclearAnswerError: There is no list of edges, or all listed edges are unusable.
        """
        entries = value.get("edges") if isinstance(value, Mapping) else None
        if not isinstance(entries, list):
            raise UnclearAnswerError("the answer has no edges")
        read = read_edges(entries, self.ids)
        if entries and not read.edges:
            raise UnclearAnswerError(f"no edge can be used: {'; '.join(read.dropped)}")
        return read


class EndToEndPredictor:
    """Predicts all edges with one question.

    Args:
        author: Asks the model.
        library: The prompts.
    """

    def __init__(self, author: Author, library: PromptLibrary) -> None:
        self._author = author
        self._prompt = library.load(
            "predict_edges", fixed=(ANSWER_PLACEHOLDER,), content=("scenario", "events")
        )

    async def predict(self, request: pb.PredictEdgesRequest) -> pb.PredictEdgesResponse:
        """Predicts the edges. An answer that has not the JSON form, twice, is read in any notation.

        Raises:
            ServiceError: The model's configuration fails every request.
        """
        numbered = NumberedEvents.of(request.scenario, request.events)
        shown = {"scenario": scenario_excerpt(request.scenario), "events": numbered.excerpt}
        question = Question(self._prompt, shown, EdgesForm(numbered.ids))
        options = with_defaults(request.options, temperature=0.0)
        answer = await self._author.asker.ask_or_abstain(question, options)
        response = pb.PredictEdgesResponse(provenance=answer.provenance, method=pb.EDGE_METHOD_END_TO_END)
        read = answer.value
        if (
            answer.abstention is not None
            and answer.abstention.reason == verdict_pb2.ABSTAIN_REASON_UNPARSABLE
        ):
            text, shown_events = answer.completion.text, numbered.by_number
            read = await threads.parse(len(text), read_edges_between, text, shown_events)
        if read is not None:
            response.dropped.extend(read.dropped)
            graph = ScriptGraph(scenario=request.scenario, events=request.events, edges=read.edges)
            response.graph.CopyFrom(graph)
        elif answer.abstention is not None:
            response.abstain_reason = answer.abstention.reason
            response.dropped.append(answer.abstention.explanation)
        return response


_WORDS = {"yes": True, "no": False}
_ANSWERS = options_of(_WORDS, CONTINUED)
_MARKS = " \t\r\n*_`\"'.,;:!()\u2581\u0120"
"""The characters around a word in a token, including the space markers of tokenizers."""
LOG_PROBABILITIES, VOTES = "log-probabilities", "votes"
"""The source of probabilities (``PredictEdgesResponse.probability_source``)."""
CONCURRENCY = 64
"""The maximum number of concurrent questions of a request. The limiter may send fewer calls at a time."""

T = TypeVar("T")
R = TypeVar("R")


def read_yes_no(text: str) -> bool | None:
    """Returns True for yes, False for no, None for an unclear answer (``dramaturg.judge.short_answers``)."""
    return _ANSWERS.value_of(text)


def probability_of_yes(tokens: Sequence[TokenLogprob], answer: bool) -> float | None:
    """Returns the probability of "yes", given that the answer is "yes" or "no".

    The first token of the answer that is one of the two words decides. Where the provider lists
    alternatives, the probabilities of all spellings of each word are summed and normalised over the two
    words; a word that is not listed has the probability 0. Without alternatives, the other word has the
    remaining probability.

    Args:
        tokens: The tokens of the text.
        answer: The result of ``read_yes_no``.

    Returns:
        The probability, in [0, 1], or None where the tokens do not contain the answer.
    """
    for token in tokens:
        said = _word(token.token)
        if said is None:
            continue
        if said != answer or not token.logprob <= 0:
            return None
        return _normalised(token, said)
    return None


def _normalised(token: TokenLogprob, said: bool) -> float | None:
    mass = {True: 0.0, False: 0.0}
    for alternative in token.alternatives:
        word = _word(alternative.token)
        if word is not None and alternative.logprob <= 0:
            mass[word] += math.exp(alternative.logprob)
    if mass[said] == 0:
        # The list lacks the token itself, or there is no list.
        mass[said] = math.exp(token.logprob)
        if not token.alternatives:
            mass[not said] = 1 - mass[said]
    total = mass[True] + mass[False]
    return mass[True] / total if total else None


def _word(token: str) -> bool | None:
    return _WORDS.get(token.strip(_MARKS).casefold())


@dataclass(frozen=True)
class _Pair:
    source: Event
    target: Event

    def __str__(self) -> str:
        return f"{self.source.id!r} before {self.target.id!r}"


class PairwisePredictor:
    """Predicts edges with one question per ordered pair of events.

    Args:
        author: Asks the model.
        library: The prompts.
    """

    def __init__(self, author: Author, library: PromptLibrary) -> None:
        self._author = author
        self._prompt = library.load("precedes", content=("scenario", "first", "second"))

    async def predict(self, request: pb.PredictEdgesRequest) -> pb.PredictEdgesResponse:
        """Predicts the probabilities.

        Each pair is one question with log-probabilities. Where no answer has log-probabilities, the questions
        are repeated until each pair has ``vote_count`` answers, and the probability is the share of "yes".

        Raises:
            ServiceError: The model's configuration fails every request.
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
        # All pairs failed; this is the most common reason.
        response.abstain_reason = Counter(ballot.reason for ballot in every).most_common(1)[0][0]
    response.provenance.CopyFrom(merge(ballot.provenance for ballot in every))
    return response


async def _side_by_side(work: Callable[[T], Coroutine[Any, Any, R]], items: Sequence[T]) -> list[R]:
    """Processes items concurrently. The first failure cancels the rest and is raised."""
    turns = asyncio.Semaphore(CONCURRENCY)

    async def in_turn(item: T) -> R:
        async with turns:
            return await work(item)

    return await gather_all([in_turn(item) for item in items])


TOP_LOGPROBS = 5
"""The number of alternatives per token: enough for two words, and allowed by most providers."""

_LONGEST_EVENT = 20_000
_REFUSED = Abstention(verdict_pb2.ABSTAIN_REASON_REFUSED, "The model declined to answer.")
_UNCLEAR = Abstention(verdict_pb2.ABSTAIN_REASON_UNPARSABLE, "The answer is not clearly yes or no.")


@dataclass(frozen=True)
class Ballot:
    """The answer to one question about one pair."""

    yes: bool | None
    """The answer. None: it is unclear."""
    probability: float | None
    """The probability of "yes", where the answer's tokens show it."""
    has_tokens: bool
    """Whether the answer has log-probabilities."""
    abstention: Abstention | None
    """The reason of an unclear answer."""
    provenance: Provenance
    """The provenance of the answer."""

    @property
    def reason(self) -> AbstainReason.ValueType:
        """The reason of the abstention."""
        return (self.abstention or _UNCLEAR).reason

    @property
    def why_nothing(self) -> str:
        """The reason in words."""
        if self.abstention is not None:
            return self.abstention.explanation
        return "No log-probability of the answer was given."


class PairAsker:
    """Asks about the pairs of one request.

    Args:
        author: Asks the model.
        prompt: The question.
        scenario: The scenario of the script.
        options: The model and the sampling.
    """

    def __init__(self, author: Author, prompt: Prompt, scenario: str, options: JudgeOptions) -> None:
        self._author = author
        self._prompt = prompt
        self._scenario = scenario_excerpt(scenario).text
        self._options = with_defaults(options, temperature=0.0, max_output_tokens=SHORT_ANSWER_TOKENS)
        self._top_logprobs = TOP_LOGPROBS

    async def ask(self, first: str, second: str, repeat_index: int) -> Ballot:
        """Asks whether the first event comes before the second.

        Raises:
            ServiceError: The model's configuration fails every request.
        """
        try:
            written = await self._write(first, second, repeat_index)
        except ServiceError as error:
            failure = abstentions.of_failure(error)
            if failure is None:
                raise
            return Ballot(None, None, False, failure, Provenance(prompts=[self._prompt.reference]))
        tokens = written.completion.logprobs
        if written.abstention is not None:
            return Ballot(None, None, bool(tokens), written.abstention, written.provenance)
        yes = read_yes_no(written.text)
        if yes is None:
            unclear = _REFUSED if is_refusal(written.text) else _UNCLEAR
            return Ballot(None, None, bool(tokens), unclear, written.provenance)
        return Ballot(yes, probability_of_yes(tokens, yes), bool(tokens), None, written.provenance)

    async def _write(self, first: str, second: str, repeat_index: int) -> Written:
        options = JudgeOptions()
        options.CopyFrom(self._options)
        options.repeat_index = repeat_index
        messages = self._prompt.render(
            {
                "scenario": self._scenario,
                "first": fence("event A", first, limit=_LONGEST_EVENT).text,
                "second": fence("event B", second, limit=_LONGEST_EVENT).text,
            }
        )
        prompts = [self._prompt.reference]
        if self._top_logprobs:
            try:
                return await self._author.write(
                    messages, options, prompts=prompts, top_logprobs=self._top_logprobs
                )
            except ServiceError as error:
                # Some endpoints refuse requests that ask for log-probabilities.
                if error.reason != error_reason_pb2.ERROR_REASON_PROVIDER_REJECTED:
                    raise
        written = await self._author.write(messages, options, prompts=prompts)
        self._top_logprobs = 0
        return written
