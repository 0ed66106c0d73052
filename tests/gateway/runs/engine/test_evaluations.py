"""The other evaluations as runs: pairs, graphs, dialogues and texts find what EvaluationService finds."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

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


async def test_dialogues(sqlite_url: str) -> None:
    task = SimulationTask(id="t", name="Terminal", description="Act as a terminal.")
    script = DialogueScript(
        id="s", task=task, utterances=[Utterance(speaker=SPEAKER_USER, text="ls")], turn=1
    )
    spec = RunSpec(
        dialogues=DialoguesRunOptions(pairs=[ModelPair(first_model="a", second_model="b")]), models=["a", "b"]
    )
    async with AsyncExitStack() as stack:
        entries = await serve_roles(
            stack,
            author={"Reply": reply},
            rating_judge={"RateReply": rate},
            pair_judge={"ComparePair": compare},
        )
        async with open_runs(sqlite_url, entries) as runs:
            run = await runs.ended(await runs.create(spec, [EvaluateDialoguesRequest(script=script)] * 3))
            samples = runs.samples(run.id)
    assert (run.state, run.counts.succeeded) == (run_pb2.RUN_STATE_SUCCEEDED, 3)
    assert [one.text for one in samples[2].dialogue.replies] == ["listing of a", "listing of b"]
    assert run.counts.usage.provider_call_count == 3 * 5
    assert run.counts.abstentions == 0


async def test_a_fresh_rerun_of_dialogues_is_the_next_repeat(sqlite_url: str) -> None:
    asked: dict[str, list[int]] = {"reply": [], "rate": []}

    async def note_reply(request: Any) -> Any:
        asked["reply"].append(request.options.repeat_index)
        return await reply(request)

    async def note_rating(request: Any) -> Any:
        asked["rate"].append(request.options.repeat_index)
        return await rate(request)

    task = SimulationTask(id="t", name="Terminal", description="Act as a terminal.")
    script = DialogueScript(
        id="s", task=task, utterances=[Utterance(speaker=SPEAKER_USER, text="ls")], turn=1
    )
    spec = RunSpec(dialogues=DialoguesRunOptions(), models=["a"])
    async with AsyncExitStack() as stack:
        entries = await serve_roles(
            stack, author={"Reply": note_reply}, rating_judge={"RateReply": note_rating}
        )
        async with open_runs(sqlite_url, entries) as runs:
            run = await runs.ended(await runs.create(spec, [EvaluateDialoguesRequest(script=script)]))
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

    task = SimulationTask(id="t", name="Terminal", description="Act as a terminal.")
    rows = [SimulateDialogueRequest(task=task, dialogue_index=index) for index in range(3)]
    spec = RunSpec(simulations=SimulationsRunOptions(simulator_model="m", max_turn_count=2))
    async with AsyncExitStack() as stack:
        entries = await serve_roles(
            stack,
            author={"Reply": reply, "NextUserTurn": say},
            challenge_judge={"FindChallengingTurn": find},
        )
        async with open_runs(sqlite_url, entries) as runs:
            run = await runs.ended(await runs.create(spec, rows))
            samples = runs.samples(run.id)
    assert (run.state, run.counts.succeeded) == (run_pb2.RUN_STATE_SUCCEEDED, 3)
    assert (run.counts.judgements, run.counts.abstentions) == (3, 0)
    dialogue = samples[1].simulation
    assert (dialogue.turn_count, dialogue.challenging_turn) == (2, 2)
    assert [one.text for one in dialogue.utterances][::2] == ["Act as a terminal.", "turn 2"]
    assert [one.id for one in dialogue.scripts] == ["t/1/2"]
    # Two replies, one request of the user, one judgement.
    assert run.counts.usage.provider_call_count == 3 * 4


async def test_scenarios(sqlite_url: str) -> None:
    async def write(request: WriteScenarioRequest) -> WriteScenarioResponse:
        text = f"{request.brief.goal} {request.target} {request.options.repeat_index}"
        return WriteScenarioResponse(scenario=text, provenance=CALL)

    rows = [
        WriteScenariosRequest(id=name, brief=ScenarioBrief(goal=name, option_1="walk", option_2="drive"))
        for name in ("home", "away")
    ]
    spec = RunSpec(scenarios=ScenariosRunOptions(count=3), models=["m"])
    async with AsyncExitStack() as stack:
        entries = await serve_roles(stack, author={"WriteScenario": write})
        async with open_runs(sqlite_url, entries) as runs:
            run = await runs.ended(await runs.create(spec, rows))
            samples = runs.samples(run.id)
    assert (run.state, run.counts.succeeded) == (run_pb2.RUN_STATE_SUCCEEDED, 2)
    assert (run.counts.judgements, run.counts.abstentions) == (12, 0)
    assert [sample.sample_id for sample in samples] == ["home", "away"]
    assert [one.id for one in samples[0].scenarios.scenarios][:3] == [
        "option-1/0",
        "option-1/1",
        "option-1/2",
    ]
    assert run.counts.usage.provider_call_count == 12


async def test_pairs(sqlite_url: str) -> None:
    spec = RunSpec(
        pairs=PairsRunOptions(roles=RolePlan(coarse_count=0, fine_count=0, clustering_omitted=True))
    )
    row = EvaluatePairsRequest(
        source="The bridge was closed.",
        first=ComparedText(text="It was closed.", model="a"),
        second=ComparedText(text="It was not.", model="b"),
    )
    async with AsyncExitStack() as stack:
        entries = await serve_roles(stack, pair_judge={"ComparePair": compare})
        async with open_runs(sqlite_url, entries) as runs:
            run = await runs.ended(await runs.create(spec, [row] * 2))
            samples = runs.samples(run.id)
    assert (run.state, run.counts.succeeded) == (run_pb2.RUN_STATE_SUCCEEDED, 2)
    assert samples[0].pair.comparisons[0].comparison.preference == PREFERENCE_FIRST
    assert run.counts.judgements > 0


async def test_graphs(sqlite_url: str) -> None:
    events = [Event(id=name, text=f"Do {name}.") for name in "abc"]
    graph = ScriptGraph(
        scenario="do it",
        events=events,
        edges=[EventEdge(source_id="a", target_id="b"), EventEdge(source_id="b", target_id="c")],
    )
    row = EvaluateGraphsRequest(reference=graph, graphs=[GivenGraph(model="m", graph=graph)])
    async with serve_graph_service() as target:
        entries = [JudgeEntry(role="graph", name="built-in", target=target)]
        async with open_runs(sqlite_url, entries) as runs:
            run = await runs.ended(await runs.create(RunSpec(graphs=GraphsRunOptions()), [row] * 2))
            samples = runs.samples(run.id)
    assert (run.state, run.counts.succeeded) == (run_pb2.RUN_STATE_SUCCEEDED, 2)
    assert samples[1].graphs.graphs[0].score.exact_match
    assert run.counts.judgements > 0


async def test_texts_are_judged_by_the_rubric_of_the_run(sqlite_url: str) -> None:
    row = texts_request("Hello.", "", criteria=[])
    spec = RunSpec(texts=TextsRunOptions(criteria=[POLITE, CLEAR]), unusable_outputs_abstain=True)
    fake = judge()
    async with serve(fake.contract()) as server:
        entries = [JudgeEntry(role="rubric-judge", name="fake", target=server.target)]
        async with open_runs(sqlite_url, entries) as runs:
            run = await runs.ended(await runs.create(spec, [row] * 3))
            samples = runs.samples(run.id)

    assert (run.state, run.counts.succeeded) == (run_pb2.RUN_STATE_PARTIAL, 3)  # half of the texts are empty
    assert [one.criterion for one in samples[2].texts.texts[0].verdicts] == ["polite", "clear"]
    assert run.counts.abstentions == 3 * 2  # the empty texts
    assert len(fake.requests) == 3
