"""The other evaluations as runs: pairs, graphs, dialogues and texts find what EvaluationService finds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

from google.protobuf.message import Message

from dramaturg.api.common.v1.dialogue_pb2 import SPEAKER_USER, SimulationTask, Utterance
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.dialogues_pb2 import (
    DialogueScript,
    EvaluateDialoguesRequest,
    ModelPair,
    SimulateDialogueRequest,
)
from dramaturg.api.evaluation.v1.graphs_pb2 import EvaluateGraphsRequest, GivenGraph
from dramaturg.api.evaluation.v1.pairs_pb2 import ComparedText, EvaluatePairsRequest, RolePlan
from dramaturg.api.evaluation.v1.run_pb2 import (
    DialoguesRunOptions,
    GraphsRunOptions,
    PairsRunOptions,
    RunSample,
    RunSpec,
    ScenariosRunOptions,
    SimulationsRunOptions,
    TextsRunOptions,
)
from dramaturg.api.evaluation.v1.run_service_pb2 import RERUN_SCOPE_ALL
from dramaturg.api.evaluation.v1.scenarios_pb2 import WriteScenariosRequest
from dramaturg.api.generation.v1.authoring_decisions_pb2 import (
    ScenarioBrief,
    WriteScenarioRequest,
    WriteScenarioResponse,
)
from dramaturg.api.generation.v1.authoring_dialogues_pb2 import (
    NextUserTurnRequest,
    NextUserTurnResponse,
    ReplyResponse,
)
from dramaturg.api.graph.v1.script_graph_pb2 import Event, EventEdge, ScriptGraph
from dramaturg.api.judging.v1.challenge_judge_service_pb2 import (
    FindChallengingTurnRequest,
    FindChallengingTurnResponse,
)
from dramaturg.api.judging.v1.pair_judge_service_pb2 import (
    PREFERENCE_FIRST,
    ComparePairResponse,
    RoleVote,
)
from dramaturg.api.judging.v1.rating_judge_service_pb2 import RateReplyResponse, Rating
from dramaturg.testing import serve
from gateway.settings import JudgeEntry
from tests.support.engines import open_runs
from tests.support.evaluations import CALL, contract
from tests.support.graph_evaluations import serve_graph_service
from tests.support.texts import CLEAR, POLITE, judge, texts_request


async def reply(request: Any) -> Any:
    return ReplyResponse(text=f"listing of {request.options.model}", provenance=CALL)


async def rate(request: Any) -> Any:
    return RateReplyResponse(rating=Rating(value=7, provenance=CALL))


async def compare(request: Any) -> Any:
    voters = [RoleVote(role=role, preference=PREFERENCE_FIRST) for role in request.roles] or [
        RoleVote(preference=PREFERENCE_FIRST)
    ]
    return ComparePairResponse(
        preference=PREFERENCE_FIRST, votes=voters, first_vote_share=1.0, provenance=CALL
    )


async def serve_roles(stack: AsyncExitStack, **methods: Any) -> list[JudgeEntry]:
    entries = []
    for role, served in methods.items():
        name = role.replace("_", "-")
        server = await stack.enter_async_context(serve(contract(name, served), drain_grace_seconds=0.2))
        entries.append(JudgeEntry(role=name, name="fake", target=server.target))
    return entries


TASK = SimulationTask(id="t", name="Terminal", description="Act as a terminal.")
SCRIPT = DialogueScript(id="s", task=TASK, utterances=[Utterance(speaker=SPEAKER_USER, text="ls")], turn=1)


async def evaluated(
    url: str, spec: RunSpec, rows: Sequence[Message], *entries: JudgeEntry, **roles: Any
) -> tuple[run_pb2.RunState.ValueType, tuple[int, int, int, int], Sequence[RunSample]]:
    """A run's state, its samples, and how many succeeded, judgements, abstentions and calls it has."""
    async with AsyncExitStack() as stack:
        served = await serve_roles(stack, **roles)
        runs = await stack.enter_async_context(open_runs(url, [*entries, *served]))
        run = await runs.ended(await runs.create(spec, rows))
        counts = run.counts
        found = (counts.succeeded, counts.judgements, counts.abstentions, counts.usage.provider_call_count)
        return run.state, found, runs.samples(run.id)


async def test_dialogues(sqlite_url: str) -> None:
    pairs = [ModelPair(first_model="a", second_model="b")]
    spec = RunSpec(dialogues=DialoguesRunOptions(pairs=pairs), models=["a", "b"])
    state, counts, samples = await evaluated(
        sqlite_url,
        spec,
        [EvaluateDialoguesRequest(script=SCRIPT)] * 3,
        author={"Reply": reply},
        rating_judge={"RateReply": rate},
        pair_judge={"ComparePair": compare},
    )
    assert (state, counts) == (run_pb2.RUN_STATE_SUCCEEDED, (3, 12, 0, 3 * 5))
    assert [one.text for one in samples[2].dialogue.replies] == ["listing of a", "listing of b"]


async def test_a_fresh_rerun_of_dialogues_is_the_next_repeat(sqlite_url: str) -> None:
    asked: dict[str, list[int]] = {"reply": [], "rate": []}

    async def note_reply(request: Any) -> Any:
        asked["reply"].append(request.options.repeat_index)
        return await reply(request)

    async def note_rating(request: Any) -> Any:
        asked["rate"].append(request.options.repeat_index)
        return await rate(request)

    spec = RunSpec(dialogues=DialoguesRunOptions(), models=["a"])
    async with AsyncExitStack() as stack:
        entries = await serve_roles(
            stack, author={"Reply": note_reply}, rating_judge={"RateReply": note_rating}
        )
        async with open_runs(sqlite_url, entries) as runs:
            run = await runs.ended(await runs.create(spec, [EvaluateDialoguesRequest(script=SCRIPT)]))
            runs.store.attempts.begin(run.id, RERUN_SCOPE_ALL, fresh=True)
            await runs.engine.submit(run.id)
            await runs.ended(run.id)
    assert asked == {"reply": [0, 1], "rate": [0, 1]}


async def test_simulations(sqlite_url: str) -> None:
    async def say(request: NextUserTurnRequest) -> NextUserTurnResponse:
        turn = len(request.utterances) // 2 + 1
        said = Utterance(speaker=SPEAKER_USER, text=f"turn {turn}", strategy="next-step")
        return NextUserTurnResponse(utterance=said, provenance=CALL)

    async def find(request: FindChallengingTurnRequest) -> FindChallengingTurnResponse:
        return FindChallengingTurnResponse(turn=len(request.utterances) // 2, provenance=CALL)

    rows = [SimulateDialogueRequest(task=TASK, dialogue_index=index) for index in range(3)]
    spec = RunSpec(simulations=SimulationsRunOptions(simulator_model="m", max_turn_count=2))
    author, finder = {"Reply": reply, "NextUserTurn": say}, {"FindChallengingTurn": find}
    state, counts, samples = await evaluated(sqlite_url, spec, rows, author=author, challenge_judge=finder)
    # Two replies, one request of the user, one judgement.
    assert (state, counts) == (run_pb2.RUN_STATE_SUCCEEDED, (3, 3, 0, 3 * 4))
    dialogue = samples[1].simulation
    assert (dialogue.turn_count, dialogue.challenging_turn) == (2, 2)
    assert [one.text for one in dialogue.utterances][::2] == ["Act as a terminal.", "turn 2"]
    assert [one.id for one in dialogue.scripts] == ["t/1/2"]


async def test_scenarios(sqlite_url: str) -> None:
    async def write(request: WriteScenarioRequest) -> WriteScenarioResponse:
        text = f"{request.brief.goal} {request.target} {request.options.repeat_index}"
        return WriteScenarioResponse(scenario=text, provenance=CALL)

    rows = [
        WriteScenariosRequest(id=name, brief=ScenarioBrief(goal=name, option_1="walk", option_2="drive"))
        for name in ("home", "away")
    ]
    spec = RunSpec(scenarios=ScenariosRunOptions(count=3), models=["m"])
    state, counts, samples = await evaluated(sqlite_url, spec, rows, author={"WriteScenario": write})
    assert (state, counts) == (run_pb2.RUN_STATE_SUCCEEDED, (2, 12, 0, 12))
    assert [sample.sample_id for sample in samples] == ["home", "away"]
    written = [one.id for one in samples[0].scenarios.scenarios]
    assert written[:3] == ["option-1/0", "option-1/1", "option-1/2"]


async def test_pairs(sqlite_url: str) -> None:
    roles = RolePlan(coarse_count=0, fine_count=0, clustering_omitted=True)
    row = EvaluatePairsRequest(
        source="The bridge was closed.",
        first=ComparedText(text="It was closed.", model="a"),
        second=ComparedText(text="It was not.", model="b"),
    )
    spec = RunSpec(pairs=PairsRunOptions(roles=roles))
    state, counts, samples = await evaluated(sqlite_url, spec, [row] * 2, pair_judge={"ComparePair": compare})
    assert (state, counts) == (run_pb2.RUN_STATE_SUCCEEDED, (2, 4, 0, 2))
    assert samples[0].pair.comparisons[0].comparison.preference == PREFERENCE_FIRST


async def test_graphs(sqlite_url: str) -> None:
    events = [Event(id=name, text=f"Do {name}.") for name in "abc"]
    edges = [EventEdge(source_id="a", target_id="b"), EventEdge(source_id="b", target_id="c")]
    graph = ScriptGraph(scenario="do it", events=events, edges=edges)
    row = EvaluateGraphsRequest(reference=graph, graphs=[GivenGraph(model="m", graph=graph)])
    async with serve_graph_service() as target:
        entry = JudgeEntry(role="graph", name="built-in", target=target)
        spec = RunSpec(graphs=GraphsRunOptions())
        state, counts, samples = await evaluated(sqlite_url, spec, [row] * 2, entry)
    assert (state, counts) == (run_pb2.RUN_STATE_SUCCEEDED, (2, 4, 0, 0))
    assert samples[1].graphs.graphs[0].score.exact_match


async def test_texts_are_judged_by_the_rubric_of_the_run(sqlite_url: str) -> None:
    row = texts_request("Hello.", "", criteria=[])
    spec = RunSpec(texts=TextsRunOptions(criteria=[POLITE, CLEAR]), unusable_outputs_abstain=True)
    fake = judge()
    async with serve(fake.contract()) as server:
        entry = JudgeEntry(role="rubric-judge", name="fake", target=server.target)
        state, counts, samples = await evaluated(sqlite_url, spec, [row] * 3, entry)
    # Half of the texts are empty: both verdicts of each abstain.
    assert (state, counts) == (run_pb2.RUN_STATE_PARTIAL, (3, 12, 3 * 2, 0))
    assert [one.criterion for one in samples[2].texts.texts[0].verdicts] == ["polite", "clear"]
    assert len(fake.requests) == 3
