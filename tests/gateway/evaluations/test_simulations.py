"""SimulateDialogue over real gRPC, with an author and a challenge judge made of functions."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.api.common.v1 import dialogue_pb2, error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.dialogue_pb2 import SimulationTask, Utterance
from dramaturg.api.common.v1.judging_pb2 import Sampling
from dramaturg.api.evaluation.v1 import dialogues_pb2
from dramaturg.api.evaluation.v1.dialogues_pb2 import (
    SimulatedDialogue,
    SimulateDialogueRequest,
    SimulateDialogueResponse,
)
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.generation.v1.authoring_dialogues_pb2 import (
    NextUserTurnRequest,
    NextUserTurnResponse,
    ReplyRequest,
    ReplyResponse,
)
from dramaturg.api.judging.v1.challenge_judge_service_pb2 import (
    FindChallengingTurnRequest,
    FindChallengingTurnResponse,
)
from dramaturg.client import DramaturgClient
from dramaturg.service.errors import ServiceError
from gateway.evaluations.simulations.kind import cut_scripts, stall
from tests.support.evaluations import CALL, gateway_target

TASK = SimulationTask(id="t1", name="Terminal", description="Act as a terminal. My first command is pwd.")
USER, SIMULATOR = dialogue_pb2.SPEAKER_USER, dialogue_pb2.SPEAKER_SIMULATOR
LAST, FIRST, LATER = (
    dialogues_pb2.SCRIPT_SUBSET_LAST_ONLY,
    dialogues_pb2.SCRIPT_SUBSET_FIRST_CHALLENGE,
    dialogues_pb2.SCRIPT_SUBSET_SUBSEQUENT_CHALLENGE,
)


class Cast:
    """Everybody in a dialogue; what they are asked is kept."""

    def __init__(self, challenging_turn: int = 0) -> None:
        self.challenging_turn = challenging_turn
        self.replies: list[ReplyRequest] = []
        self.requests: list[NextUserTurnRequest] = []
        self.judged: list[FindChallengingTurnRequest] = []

    async def reply(self, request: ReplyRequest) -> ReplyResponse:
        self.replies.append(request)
        return ReplyResponse(text=f"answer {len(self.replies)}", provenance=CALL)

    async def next_request(self, request: NextUserTurnRequest) -> NextUserTurnResponse:
        self.requests.append(request)
        said = Utterance(
            speaker=USER,
            text=f"request {len(self.requests) + 1}",
            strategy=("next-step", "new-request")[len(self.requests) % 2],
        )
        return NextUserTurnResponse(utterance=said, provenance=CALL)

    async def judge(self, request: FindChallengingTurnRequest) -> FindChallengingTurnResponse:
        self.judged.append(request)
        return FindChallengingTurnResponse(turn=self.challenging_turn, provenance=CALL)

    def roles(self) -> Any:
        return {
            "author": {"Reply": self.reply, "NextUserTurn": self.next_request},
            "challenge-judge": {"FindChallengingTurn": self.judge},
        }


async def events(
    cast: Cast, request: SimulateDialogueRequest | None = None
) -> list[SimulateDialogueResponse]:
    async with gateway_target(cast.roles()) as target, DramaturgClient(target) as client:
        asked = request or SimulateDialogueRequest(task=TASK)
        return [event async for event in client.simulate_dialogue(asked, timeout=20)]


async def result(cast: Cast, request: SimulateDialogueRequest | None = None) -> SimulatedDialogue:
    return (await events(cast, request))[-1].result


def failing(code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE) -> Any:
    async def fail(request: Any) -> Any:
        raise ServiceError(code, error_reason_pb2.ERROR_REASON_PROVIDER_UNAVAILABLE, "gone")

    return fail


async def test_the_turns_of_a_cancelled_dialogue_count_in_the_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAMATURG_QUOTAS_DEFAULT", '{"tokens_per_day": 1}')
    roles, release = Cast().roles(), asyncio.Event()

    async def wait(request: Any) -> Any:
        await release.wait()

    roles["author"]["NextUserTurn"] = wait
    async with gateway_target(roles) as target, DramaturgClient(target) as client:

        async def simulate() -> None:
            async for event in client.simulate_dialogue(SimulateDialogueRequest(task=TASK), timeout=20):
                if event.utterance.speaker == SIMULATOR:
                    return

        await simulate()
        async with asyncio.timeout(20):
            # While the call ends, it reserves the rest of the quota.
            while True:
                with pytest.raises(ServiceError) as caught:
                    await simulate()
                assert caught.value.metadata["quota"] == "tokens_per_day"
                if "progress" not in str(caught.value):
                    break
        release.set()


async def test_user_agent_and_simulator_alternate_for_four_turns() -> None:
    cast = Cast()
    request = SimulateDialogueRequest(
        task=TASK,
        simulator_model="sim",
        user_model="user",
        dialogue_index=2,
        user_sampling=Sampling(temperature=0.5),
        tags={"kind": "stateful"},
    )
    found = await events(cast, request)
    assert [event.WhichOneof("event") for event in found] == ["accepted", *["utterance"] * 8, "result"]
    assert [one.role for one in found[0].accepted.judges] == ["author", "challenge-judge"]
    whole = found[-1].result
    assert [event.utterance for event in found[1:-1]] == list(whole.utterances)
    assert [one.text for one in whole.utterances] == [
        TASK.description,
        "answer 1",
        "request 2",
        "answer 2",
        "request 3",
        "answer 3",
        "request 4",
        "answer 4",
    ]
    assert [one.speaker for one in whole.utterances] == [USER, SIMULATOR] * 4
    assert [one.strategy for one in whole.utterances if one.speaker == USER] == [
        "",
        "new-request",
        "next-step",
        "new-request",
    ]
    assert (whole.turn_count, whole.ended_early, whole.challenging_turn) == (4, "", 0)
    assert dict(whole.tags) == {"kind": "stateful"}
    # Four replies, three requests, one search.
    assert whole.usage.provider_call_count == len(whole.provenances) == 8
    assert {one.options.model for one in cast.replies} == {"sim"}
    assert {one.options.model for one in cast.requests} == {"user"}
    assert {one.options.repeat_index for one in cast.replies} == {2}
    assert {one.options.repeat_index for one in cast.requests} == {2}
    assert {one.options.sampling.temperature for one in cast.requests} == {0.5}
    # What is not set is left to the author, who knows the paper's settings.
    assert not any(one.options.HasField("sampling") for one in cast.replies)
    assert [len(one.utterances) for one in cast.replies] == [1, 3, 5, 7]
    assert len(cast.judged[0].utterances) == 8


@pytest.mark.parametrize(
    ("turn", "scripts"),
    [
        (0, [(4, LAST)]),
        (1, [(1, FIRST), (2, LATER), (3, LATER), (4, LATER)]),
        (3, [(3, FIRST), (4, LATER)]),
        (4, [(4, FIRST)]),
    ],
)
async def test_scripts_are_cut_at_the_challenging_turn_and_after_it(
    turn: int, scripts: list[tuple[int, int]]
) -> None:
    whole = await result(Cast(challenging_turn=turn))
    assert whole.challenging_turn == turn
    assert [(script.turn, script.subset) for script in whole.scripts] == scripts
    for script in whole.scripts:
        assert script.task == TASK
        assert list(script.utterances) == list(whole.utterances[: 2 * script.turn - 1])
        assert script.utterances[-1].speaker == USER
    assert len({script.id for script in whole.scripts}) == len(scripts)


@given(st.integers(1, 50), st.data())
def test_cutting_answers_for_every_dialogue(count: int, data: st.DataObject) -> None:
    turns = [Utterance(speaker=(USER, SIMULATOR)[index % 2], text=str(index)) for index in range(2 * count)]
    challenging = data.draw(st.integers(0, count))
    scripts = cut_scripts(TASK, 0, turns, challenging)
    assert [script.turn for script in scripts] == (
        list(range(challenging, count + 1)) if challenging else [count]
    )
    assert all(len(script.utterances) == 2 * script.turn - 1 for script in scripts)
    subsets = [script.subset for script in scripts]
    assert subsets == ([FIRST] + [LATER] * (count - challenging) if challenging else [LAST])


async def test_the_request_sets_how_many_turns_there_are() -> None:
    assert (await result(Cast(), SimulateDialogueRequest(task=TASK, max_turn_count=1))).turn_count == 1
    with pytest.raises(ServiceError) as raised:
        await events(Cast(), SimulateDialogueRequest(task=TASK, max_turn_count=200))
    assert [one.field for one in raised.value.violations] == ["max_turn_count"]


async def test_a_task_of_a_megabyte_is_refused() -> None:
    task = SimulationTask(name="x", description="x" * 1_000_000)
    with pytest.raises(ServiceError) as raised:
        await events(Cast(), SimulateDialogueRequest(task=task))
    assert [one.field for one in raised.value.violations] == ["task.description"]


async def test_a_user_agent_without_a_request_ends_the_dialogue() -> None:
    cast = Cast()

    async def mute(request: NextUserTurnRequest) -> NextUserTurnResponse:
        if len(request.utterances) == 4:
            return NextUserTurnResponse(abstain_reason=verdict_pb2.ABSTAIN_REASON_UNPARSABLE, provenance=CALL)
        return await Cast.next_request(cast, request)

    cast.next_request = mute  # type: ignore[method-assign] # another actor for the part
    whole = await result(cast)
    assert whole.turn_count == 2
    assert whole.ended_early == "turn 3: the user agent has no usable request (UNPARSABLE)"
    assert [(script.turn, script.subset) for script in whole.scripts] == [(2, LAST)]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("request  2", "it repeats its previous request"),
        ("Thanks a lot, goodbye!", "it says goodbye"),
        ("Bye.", "it says goodbye"),
    ],
)
async def test_a_request_that_does_not_go_on_is_asked_for_once_more(said: str, reason: str) -> None:
    cast = Cast()

    async def stalls_once(request: NextUserTurnRequest) -> NextUserTurnResponse:
        if len(request.utterances) == 4 and not request.rejected:
            return NextUserTurnResponse(utterance=Utterance(speaker=USER, text=said), provenance=CALL)
        return await Cast.next_request(cast, request)

    cast.next_request = stalls_once  # type: ignore[method-assign] # another actor for the part
    whole = await result(cast)
    assert (whole.turn_count, whole.ended_early) == (4, "")
    assert list(whole.redirected_turns) == [3]
    assert [list(one.rejected) for one in cast.requests if one.rejected] == [[said]]
    assert len(whole.provenances) == 9

    async def stalls(request: NextUserTurnRequest) -> NextUserTurnResponse:
        if len(request.utterances) == 4:
            return NextUserTurnResponse(utterance=Utterance(speaker=USER, text=said), provenance=CALL)
        return await Cast.next_request(cast, request)

    cast = Cast()
    cast.next_request = stalls  # type: ignore[method-assign] # another actor for the part
    whole = await result(cast)
    assert whole.turn_count == 2
    assert whole.ended_early == f"turn 3: the user agent does not go on, also when asked again: {reason}"
    assert [script.turn for script in whole.scripts] == [2]


@pytest.mark.parametrize(
    "said",
    [
        "request 1",
        "How do I say goodbye in French?",
        "Write a farewell speech for a colleague who retires after forty years, and mention bye in it twice.",
        "kubectl rollout undo deployment/bye-service --to-revision=2 && kubectl get pods -w -o wide",
    ],
)
def test_other_requests_go_on(said: str) -> None:
    utterances = [Utterance(speaker=USER, text="request 2"), Utterance(speaker=SIMULATOR, text=said)]
    assert not stall(said, utterances)


async def test_a_simulator_that_fails_ends_the_dialogue_after_its_whole_turns() -> None:
    cast = Cast(challenging_turn=1)

    async def breaks(request: ReplyRequest) -> ReplyResponse:
        if len(request.utterances) == 5:
            return ReplyResponse(text="...", abstain_reason=verdict_pb2.ABSTAIN_REASON_REFUSED)
        return await Cast.reply(cast, request)

    cast.reply = breaks  # type: ignore[method-assign] # another actor for the part
    whole = await result(cast)
    assert (whole.turn_count, len(whole.utterances)) == (2, 5)
    assert whole.ended_early == "turn 3: the simulator has no usable answer (REFUSED)"
    assert len(cast.judged[0].utterances) == 4
    assert [script.turn for script in whole.scripts] == [1, 2]


@pytest.mark.parametrize(("text", "turns"), [("A long answer, cut", 4), (" ", 2)])
async def test_an_answer_of_the_simulator_at_the_token_cap_stands_as_it_is(text: str, turns: int) -> None:
    cast = Cast(challenging_turn=1)

    async def cuts(request: ReplyRequest) -> ReplyResponse:
        if len(request.utterances) == 5:
            return ReplyResponse(text=text, abstain_reason=verdict_pb2.ABSTAIN_REASON_TRUNCATED)
        return await Cast.reply(cast, request)

    cast.reply = cuts  # type: ignore[method-assign] # another actor for the part
    whole = await result(cast)
    assert whole.turn_count == turns
    assert bool(whole.ended_early) == (turns < 4)
    assert (text in [one.text for one in whole.utterances]) == (turns == 4)


async def test_an_utterance_of_a_megabyte_ends_the_dialogue_with_the_limit() -> None:
    cast = Cast()

    async def endless(request: ReplyRequest) -> ReplyResponse:
        return ReplyResponse(text="x" * 1_000_000)

    cast.reply = endless  # type: ignore[method-assign] # another actor for the part
    whole = await result(cast)
    assert (whole.turn_count, len(whole.utterances)) == (0, 1)
    assert whole.ended_early.startswith("turn 1: the simulator has no usable answer (UNPARSABLE: ")
    assert "200000" in whole.ended_early


async def test_a_dialogue_without_a_whole_turn_has_no_script() -> None:
    cast = Cast()
    cast.reply = failing()  # type: ignore[method-assign] # another actor for the part
    whole = await result(cast)
    assert (whole.turn_count, len(whole.utterances), len(whole.scripts)) == (0, 1, 0)
    assert "gone" in whole.ended_early
    assert not whole.HasField("challenging_turn")
    assert whole.challenge_abstain_reason == verdict_pb2.ABSTAIN_REASON_NOT_APPLICABLE
    assert not cast.judged


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (FindChallengingTurnResponse(), verdict_pb2.ABSTAIN_REASON_UNPARSABLE),
        (FindChallengingTurnResponse(turn=5), verdict_pb2.ABSTAIN_REASON_UNPARSABLE),
        (
            FindChallengingTurnResponse(turn=1, abstain_reason=verdict_pb2.ABSTAIN_REASON_REFUSED),
            verdict_pb2.ABSTAIN_REASON_CONTRADICTORY,
        ),
        (
            FindChallengingTurnResponse(abstain_reason=verdict_pb2.ABSTAIN_REASON_REFUSED),
            verdict_pb2.ABSTAIN_REASON_REFUSED,
        ),
        (None, verdict_pb2.ABSTAIN_REASON_PROVIDER_UNAVAILABLE),
    ],
)
async def test_without_a_challenging_turn_no_script_is_cut(
    answer: FindChallengingTurnResponse | None, reason: int
) -> None:
    cast = Cast()

    async def judge(request: FindChallengingTurnRequest) -> FindChallengingTurnResponse:
        return await failing()(request) if answer is None else answer

    cast.judge = judge  # type: ignore[method-assign] # another actor for the part
    whole = await result(cast)
    assert whole.turn_count == 4
    assert not whole.HasField("challenging_turn")
    assert whole.challenge_abstain_reason == reason
    assert not whole.scripts


async def test_roles_take_no_panel() -> None:
    judges = [JudgeSelection(role="challenge-judge", model=model) for model in ("a", "b")]
    with pytest.raises(ServiceError) as raised:
        await events(Cast(), SimulateDialogueRequest(task=TASK, judges=judges))
    assert [one.field for one in raised.value.violations] == ["judges[1]"]
