"""The requirements of judges of pairs, ratings and challenges, of synthesizers, and of edges.

These contracts have one request and one answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest, SynthesizeResponse
from dramaturg.api.agents.v1.synthesize_service_pb2_grpc import SynthesizeServiceStub
from dramaturg.api.common.v1.dialogue_pb2 import SPEAKER_SIMULATOR, SPEAKER_USER, SimulationTask, Utterance
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.script_pb2 import Candidate, Script, Step, Task
from dramaturg.api.generation.v1.edge_service_pb2 import (
    EDGE_METHOD_END_TO_END,
    EDGE_METHOD_PAIRWISE,
    EdgeMethod,
    PredictEdgesRequest,
    PredictEdgesResponse,
)
from dramaturg.api.generation.v1.edge_service_pb2_grpc import EdgeServiceStub
from dramaturg.api.graph.v1.script_graph_pb2 import Event
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pairs
from dramaturg.api.judging.v1.challenge_judge_service_pb2 import (
    FindChallengingTurnRequest,
    FindChallengingTurnResponse,
)
from dramaturg.api.judging.v1.challenge_judge_service_pb2_grpc import ChallengeJudgeServiceStub
from dramaturg.api.judging.v1.pair_judge_service_pb2_grpc import PairJudgeServiceStub
from dramaturg.api.judging.v1.rating_judge_service_pb2 import RateReplyRequest, RateReplyResponse
from dramaturg.api.judging.v1.rating_judge_service_pb2_grpc import RatingJudgeServiceStub
from dramaturg.conformance.common import (
    CLIENT_MESSAGE_BYTES,
    Calls,
    call_checks,
    identity_checks,
    provenance_checks,
)
from dramaturg.conformance.kit import Subject, Suite, require
from dramaturg.judge.protocols import MAX_ANSWER_BYTES
from dramaturg.judge.role_sets import breach

TASK = SimulationTask(name="Linux terminal", description="Act as a Linux terminal. My first command is pwd.")


@dataclass(frozen=True)
class UnaryContract:
    """A contract with one method, which answers one request with one response."""

    method: Callable[[grpc.aio.Channel], Any]
    """The method of the generated stub."""
    example: Callable[[str], Any]
    """An ordinary request that contains a text."""
    empty: Sequence[Any]
    """Requests without content that the contract allows."""
    largest: Any
    """A request of the size that the contract allows."""
    invalid: Sequence[tuple[Any, str]]
    """Requests that the contract forbids, each with the path of the field that is wrong."""
    require_sound: Callable[[Any, Any], None]
    """Raises RequirementError unless a response, the second argument, is a well-formed answer."""
    provenance: Callable[[Any], Provenance]
    """The provenance of a response."""
    remedy: str
    """What a well-formed answer is, in a sentence."""
    answer_bytes: int = MAX_ANSWER_BYTES
    """The most bytes of an answer."""


def unary_suite(contract: UnaryContract) -> Suite:
    """The checks of a contract."""

    def call(subject: Subject, request: Any, timeout: float | None = None) -> Any:
        sent = type(request)()
        sent.CopyFrom(request)
        sent.options.model = subject.model
        return contract.method(subject.channel)(sent, timeout=timeout or subject.timeout)

    async def answer(subject: Subject, request: Any, timeout: float | None = None) -> Any:
        response = await call(subject, request, timeout)
        # gRPC hands over None where the bytes do not parse as the response.
        require(response is not None, "the response is not a message of the contract")
        return response

    async def send(subject: Subject, text: str, timeout: float | None = None) -> Any:
        return await answer(subject, contract.example(text), timeout)

    async def ask(subject: Subject, text: str, timeout: float | None = None) -> Any:
        request = contract.example(text)
        response = await answer(subject, request, timeout)
        contract.require_sound(request, response)
        return response

    async def ask_largest(subject: Subject) -> None:
        response = await answer(subject, contract.largest)
        subject.largest_answers.append(response)
        contract.require_sound(contract.largest, response)

    suite = Suite()
    calls = Calls(
        send,
        ask,
        ask_largest,
        invalid=lambda subject: [
            (partial(call, subject, request), field) for request, field in contract.invalid
        ],
        provenance=contract.provenance,
        answer_bytes=contract.answer_bytes,
    )
    identity_checks(suite, calls)

    @suite.check("An ordinary request has a well-formed answer.", remedy=contract.remedy)
    async def answers_well_formed(subject: Subject) -> None:
        await ask(subject, "Heat the water.")

    @suite.check(
        "A request without content that the contract allows has a well-formed answer.", remedy=contract.remedy
    )
    async def answers_empty_input(subject: Subject) -> None:
        for request in contract.empty:
            contract.require_sound(request, await answer(subject, request))

    provenance_checks(suite, calls)
    call_checks(suite, calls)
    return suite


def dialogue(*texts: str) -> list[Utterance]:
    """Utterances in turn, the user's first."""
    speakers = (SPEAKER_USER, SPEAKER_SIMULATOR)
    return [Utterance(speaker=speakers[index % 2], text=text) for index, text in enumerate(texts)]


def _pair(text: str, **fields: object) -> pairs.ComparePairRequest:
    roles = [pairs.Role(type=f"Reader {n}: {text}"[:200], description="Reads with care.") for n in (1, 2)]
    values: dict[str, object] = {
        "source": f"Tea is made with hot water. {text}",
        "instruction": "Summarise the article.",
        "first": f"Tea needs hot water. {text}",
        "second": "Tea is a drink.",
        "roles": roles,
    }
    return pairs.ComparePairRequest(**values | fields)  # type: ignore[arg-type]


def _require_sound_pair(request: pairs.ComparePairRequest, response: pairs.ComparePairResponse) -> None:
    fault = breach(request, response)
    require(not fault, fault)
    require(all(vote.ballots for vote in response.votes), "a vote has no ballots")
    require(
        response.HasField("first_vote_share") == (response.preference != pairs.PREFERENCE_ABSTAIN),
        "first_vote_share must be absent if and only if all votes abstain",
    )


PAIR_JUDGES = unary_suite(
    UnaryContract(
        method=lambda channel: PairJudgeServiceStub(channel).ComparePair,
        example=_pair,
        empty=[_pair("", source="", instruction="", first="", second="", roles=[])],
        largest=_pair("", source="Tea. " * 40_000, first="Hot. " * 40_000, second="Cup. " * 40_000),
        invalid=[
            (_pair("", first="x" * 200_001), "first"),
            (_pair("", roles=[pairs.Role(type="Critic")]), "roles[0].description"),
        ],
        require_sound=_require_sound_pair,
        provenance=lambda response: response.provenance,
        remedy="Give one vote for each role, in order, a ballot for each order shown, and the majority.",
    )
)
"""The checks of a judge of pairs."""


def _reply(text: str, **fields: object) -> RateReplyRequest:
    values: dict[str, object] = {
        "task": TASK,
        "utterances": dialogue(TASK.description, "/home/doe", f"echo '{text}'"),
        "response": text,
    }
    return RateReplyRequest(**values | fields)  # type: ignore[arg-type]


def _require_sound_rating(request: RateReplyRequest, response: RateReplyResponse) -> None:
    del request
    rating = response.rating
    require(
        rating.HasField("value") != bool(rating.abstain_reason),
        "the rating must have an abstain_reason if and only if it has no value",
    )
    require(
        not rating.HasField("value") or 1.0 <= rating.value <= 10.0,
        f"the rating is {rating.value}, which is not from 1 to 10",
    )


RATING_JUDGES = unary_suite(
    UnaryContract(
        method=lambda channel: RatingJudgeServiceStub(channel).RateReply,
        example=_reply,
        empty=[_reply("", utterances=dialogue(""))],
        largest=_reply("x" * 200_000, utterances=dialogue(*("ls -l " * 300 for _ in range(101)))),
        invalid=[
            (_reply("", utterances=[]), "utterances"),
            (_reply("", task=SimulationTask(description="A terminal.")), "task.name"),
        ],
        require_sound=_require_sound_rating,
        provenance=lambda response: response.rating.provenance,
        remedy="Give a value from 1 to 10, or an abstain_reason.",
    )
)
"""The checks of a judge of replies."""


def _dialogue(text: str, **fields: object) -> FindChallengingTurnRequest:
    values: dict[str, object] = {
        "task": TASK,
        "utterances": dialogue(TASK.description, "/home/doe", f"echo '{text}'", text),
    }
    return FindChallengingTurnRequest(**values | fields)  # type: ignore[arg-type]


def _require_sound_turn(request: FindChallengingTurnRequest, response: FindChallengingTurnResponse) -> None:
    require(
        response.HasField("turn") != bool(response.abstain_reason),
        "the response must have an abstain_reason if and only if it has no turn",
    )
    turns = len(request.utterances) // 2
    require(response.turn <= turns, f"the turn is {response.turn} of {turns}")


CHALLENGE_JUDGES = unary_suite(
    UnaryContract(
        method=lambda channel: ChallengeJudgeServiceStub(channel).FindChallengingTurn,
        example=_dialogue,
        empty=[_dialogue("", utterances=dialogue("", ""))],
        largest=_dialogue("", utterances=dialogue(*("ls -l " * 300 for _ in range(100)))),
        invalid=[
            (_dialogue("", utterances=dialogue("pwd", "/", "ls")), "utterances"),
            (_dialogue("", task=SimulationTask(description="A terminal.")), "task.name"),
        ],
        require_sound=_require_sound_turn,
        provenance=lambda response: response.provenance,
        remedy="Give a turn from 0 to the number of turns, or an abstain_reason.",
    )
)
"""The checks of a judge of challenging turns."""


def _candidate(candidate_id: str, steps: Sequence[str]) -> Candidate:
    return Candidate(id=candidate_id, script=Script(steps=[Step(text=step) for step in steps]))


def _pool(text: str, **fields: object) -> SynthesizeRequest:
    steps = ("Heat the water in a pot.", "Put a tea bag into a cup.", "Pour the water over it.", text)
    values: dict[str, object] = {
        "task": Task(goal="Make a cup of tea", constraints=["without a kettle"]),
        "candidates": [_candidate(f"{n}: {text}"[:200], steps[: n + 1]) for n in range(1, 4)],
    }
    return SynthesizeRequest(**values | fields)  # type: ignore[arg-type]


def _require_sound_script(request: SynthesizeRequest, response: SynthesizeResponse) -> None:
    require(
        bool(response.script.steps) != bool(response.failure),
        "the response must have a failure if and only if the script has no steps",
    )
    require(all(step.text.strip() for step in response.script.steps), "the script has a step without text")
    learned = list(response.pool_ids)
    require(learned == sorted(set(learned)), f"pool_ids {learned} are not sorted and unique")
    unknown = set(learned) - {candidate.id for candidate in request.candidates}
    require(not unknown, f"pool_ids has {sorted(unknown)}, which are not candidates of the request")


SYNTHESIZERS = unary_suite(
    UnaryContract(
        method=lambda channel: SynthesizeServiceStub(channel).Synthesize,
        example=_pool,
        empty=[_pool("", candidates=[]), _pool("", candidates=[Candidate(id="none")])],
        largest=_pool("", candidates=[_candidate(f"{n}", [f"Stir cup {n}. " * 20] * 20) for n in range(200)]),
        invalid=[(_pool("", task=Task()), "task.goal")],
        require_sound=_require_sound_script,
        provenance=lambda response: response.provenance,
        remedy="Give a script with steps, or a failure; sort pool_ids, ids of the candidates.",
        answer_bytes=CLIENT_MESSAGE_BYTES,
    )
)
"""The checks of a synthesizer."""


def _events(text: str, **fields: object) -> PredictEdgesRequest:
    texts = ("Bake it.", "Find the recipe.", f"Mix the dough. {text}")
    values: dict[str, object] = {
        "scenario": "bake a cake",
        "events": [Event(id=f"{n}: {text}"[:200], text=one) for n, one in enumerate(texts)],
    }
    return PredictEdgesRequest(**values | fields)  # type: ignore[arg-type]


def _require_sound_edges(request: PredictEdgesRequest, response: PredictEdgesResponse) -> None:
    methods = (EDGE_METHOD_END_TO_END, EDGE_METHOD_PAIRWISE)
    require(response.method in methods, f"the method is {EdgeMethod.Name(response.method)}")
    predicted = (
        response.HasField("graph")
        if response.method == EDGE_METHOD_END_TO_END
        else bool(response.probabilities)
    )
    require(
        predicted != bool(response.abstain_reason),
        "the response must have an abstain_reason if and only if it has no prediction",
    )
    known = {event.id for event in request.events}
    pairs_seen = [(one.source_id, one.target_id) for one in response.graph.edges]
    pairs_seen += [(one.source_id, one.target_id) for one in response.probabilities]
    wrong = [pair for pair in pairs_seen if pair[0] == pair[1] or not known.issuperset(pair)]
    require(not wrong, f"the pairs {wrong} are not of two events of the request")
    for one in response.probabilities:
        require(0.0 <= one.probability <= 1.0, f"a probability is {one.probability}, which is not in [0, 1]")


EDGE_PREDICTORS = unary_suite(
    UnaryContract(
        method=lambda channel: EdgeServiceStub(channel).PredictEdges,
        example=_events,
        empty=[_events("", events=[Event(id="a"), Event(id="b")])],
        largest=_events("", events=[Event(id=f"{n}", text=f"Stir cup {n}. " * 150) for n in range(40)]),
        invalid=[(_events("", scenario=""), "scenario"), (_events("", events=[Event(id="a")]), "events")],
        require_sound=_require_sound_edges,
        provenance=lambda response: response.provenance,
        remedy="Give the method and edges or probabilities of the request's events, or an abstain_reason.",
        answer_bytes=CLIENT_MESSAGE_BYTES,
    )
)
"""The checks of a predictor of the order of events."""
