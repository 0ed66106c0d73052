from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.script_pb2 import Candidate, Task
from dramaturg.api.common.v1.verdict_pb2 import Assessment, Verdict
from dramaturg.api.embedding.v1 import embedding_service_pb2_grpc
from dramaturg.judge.criteria import COMPLETES_GOAL, ORDER_CORRECT, SATISFIES_CONSTRAINTS
from dramaturg.service.channel import open_channel
from services.agents.execute.offline import OfflineExecutor
from tests.support.embedding import warm_embedding_stub
from tests.support.scripts import TEA, candidate, judge_item, pool, tea_scripts

FAIL, PASS, ABSTAIN = verdict_pb2.OUTCOME_FAIL, verdict_pb2.OUTCOME_PASS, verdict_pb2.OUTCOME_ABSTAIN
NOT_SUPPORTED = verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED

CLEAN = tea_scripts(1)[0]
GUITAR = ["Tune the guitar.", "Learn a few chords.", "Practise changing chords.", "Play a song for friends."]


@pytest_asyncio.fixture
async def executor() -> AsyncIterator[OfflineExecutor]:
    async with warm_embedding_stub() as stub:
        yield OfflineExecutor(stub)


async def assess(
    executor: OfflineExecutor, judged: Candidate, others: Sequence[Candidate] = (), task: Task = TEA
) -> Assessment:
    return await executor.judge(judge_item(task, judged, others))


async def verdict(
    executor: OfflineExecutor,
    criterion: str,
    judged: Candidate,
    others: Sequence[Candidate] = (),
    task: Task = TEA,
) -> Verdict:
    assessment = await assess(executor, judged, others, task)
    return next(verdict for verdict in assessment.verdicts if verdict.criterion == criterion)


@pytest.mark.parametrize("size", [0, 4, 5, 12])
async def test_a_script_for_another_goal_fails(executor: OfflineExecutor, size: int) -> None:
    found = await verdict(executor, COMPLETES_GOAL, candidate(GUITAR), pool(*tea_scripts(size)))
    assert found.outcome == FAIL
    assert found.findings[0].kind == verdict_pb2.FINDING_KIND_GOAL_NOT_REACHED
    assert not found.HasField("confidence")


@pytest.mark.parametrize("steps", [CLEAN, CLEAN[:2], "First boil some water, then brew your tea with it."])
async def test_being_on_topic_is_no_pass(executor: OfflineExecutor, steps: Sequence[str] | str) -> None:
    found = await verdict(executor, COMPLETES_GOAL, candidate(steps))
    assert (found.outcome, found.abstain_reason) == (ABSTAIN, NOT_SUPPORTED)


async def test_a_goal_in_words_unlike_any_script_condemns_none(executor: OfflineExecutor) -> None:
    task = Task(goal="Do what the landlady asked for on Tuesday")
    found = await verdict(executor, COMPLETES_GOAL, candidate(CLEAN), pool(*tea_scripts(8)), task)
    assert found.outcome == ABSTAIN


async def test_without_constraints_there_is_nothing_to_judge(executor: OfflineExecutor) -> None:
    for task in (TEA, Task(goal=TEA.goal, constraints=[" "])):
        found = await verdict(executor, SATISFIES_CONSTRAINTS, candidate(CLEAN), task=task)
        assert found.abstain_reason == verdict_pb2.ABSTAIN_REASON_NOT_APPLICABLE


async def test_a_constraint_that_is_taken_up_passes_with_its_confidence(executor: OfflineExecutor) -> None:
    steps = ["Put the fruit into the crockpot.", "Cook it in the crockpot on low heat.", "Serve."]
    task = Task(goal="Make stewed fruit with a crockpot", constraints=["with a crockpot"])
    found = await verdict(executor, SATISFIES_CONSTRAINTS, candidate(steps), task=task)
    assert found.outcome == PASS
    assert 0.9 <= found.confidence < 1


async def test_a_constraint_that_nothing_takes_up_fails_by_name(executor: OfflineExecutor) -> None:
    steps = ["Put the fruit into the crockpot.", "Cook it in the crockpot on low heat.", "Serve."]
    task = Task(goal="Make stewed fruit", constraints=["with a crockpot", "for a school fundraiser"])
    found = await verdict(executor, SATISFIES_CONSTRAINTS, candidate(steps), task=task)
    assert found.outcome == FAIL
    assert [finding.constraint for finding in found.findings] == ["for a school fundraiser"]
    assert found.findings[0].kind == verdict_pb2.FINDING_KIND_BROKEN_CONSTRAINT
    assert found.confidence >= 0.9


@pytest.mark.parametrize(
    "constraint",
    ["without an oven", "low-carb", "in under 10 minutes", "for two people", "sugar-free", "no eggs"],
)
async def test_absence_and_quantity_are_not_judged(executor: OfflineExecutor, constraint: str) -> None:
    task = Task(goal="Bake a cake", constraints=[constraint])
    steps = ["Beat eggs and sugar.", "Add the flour.", "Bake it in the oven."]
    found = await verdict(executor, SATISFIES_CONSTRAINTS, candidate(steps), task=task)
    assert (found.outcome, found.abstain_reason) == (ABSTAIN, NOT_SUPPORTED)
    assert constraint in found.rationale


async def test_a_met_constraint_beside_an_undecidable_one_is_no_pass(executor: OfflineExecutor) -> None:
    steps = ["Put the fruit into the crockpot.", "Cook it in the crockpot on low heat.", "Serve."]
    task = Task(goal="Make stewed fruit", constraints=["with a crockpot", "without sugar"])
    found = await verdict(executor, SATISFIES_CONSTRAINTS, candidate(steps), task=task)
    assert (found.outcome, found.abstain_reason) == (ABSTAIN, NOT_SUPPORTED)


async def test_a_reversed_script_fails_with_a_large_pool(executor: OfflineExecutor) -> None:
    found = await verdict(executor, ORDER_CORRECT, candidate(CLEAN[::-1]), pool(*tea_scripts(12)))
    assert found.outcome == FAIL
    assert found.findings[0].kind == verdict_pb2.FINDING_KIND_WRONG_ORDER
    first, second = found.findings[0].step_indices
    assert first < second


async def test_a_usual_order_is_no_pass(executor: OfflineExecutor) -> None:
    found = await verdict(executor, ORDER_CORRECT, candidate(CLEAN), pool(*tea_scripts(12)))
    assert (found.outcome, found.abstain_reason) == (ABSTAIN, NOT_SUPPORTED)


@pytest.mark.parametrize(("size", "steps"), [(0, CLEAN), (9, CLEAN), (12, CLEAN[:3])])
async def test_too_little_to_judge_the_order_by(
    executor: OfflineExecutor, size: int, steps: Sequence[str]
) -> None:
    found = await verdict(executor, ORDER_CORRECT, candidate(steps[::-1]), pool(*tea_scripts(size)))
    assert (found.outcome, found.abstain_reason) == (ABSTAIN, NOT_SUPPORTED)
    assert "needed" in found.rationale


async def test_the_order_of_the_pool_and_the_names_change_nothing(executor: OfflineExecutor) -> None:
    others = pool(*tea_scripts(12))
    task = Task(goal=TEA.goal, constraints=["with milk", "with a kettle"])
    first = await assess(executor, candidate(CLEAN[::-1]), others, task)
    shuffled = random.Random(1).sample(others, len(others))
    second = await assess(executor, candidate(CLEAN[::-1], "another name"), shuffled, task)
    assert first == second


async def test_chinese_is_not_judged(executor: OfflineExecutor) -> None:
    task = Task(goal="泡一杯茶", constraints=["用水壶"])
    assessment = await assess(executor, candidate(["烧水", "泡茶", "喝茶"]), task=task)
    assert {found.abstain_reason for found in assessment.verdicts} == {NOT_SUPPORTED}
    assert all("Latin" in found.rationale for found in assessment.verdicts)


async def test_forty_candidates_and_very_long_steps(executor: OfflineExecutor) -> None:
    others = pool(*tea_scripts(38), [f"Boil the water and {'wait ' * 2000}", "Drink the tea."])
    judged = candidate([f"Boil water for tea and {'wait ' * 2000}", *CLEAN])
    assessment = await assess(executor, judged, others)
    assert assessment.provenance.parameters["pool_size"] == "39"
    assert len(assessment.verdicts) == 3


async def test_an_empty_candidate_misses_the_goal(executor: OfflineExecutor) -> None:
    assessment = await assess(executor, candidate([]))
    assert [found.outcome for found in assessment.verdicts] == [ABSTAIN, FAIL, ABSTAIN]


async def test_an_unreachable_embedding_service() -> None:
    async with open_channel("127.0.0.1:9") as channel:
        executor = OfflineExecutor(embedding_service_pb2_grpc.EmbeddingServiceStub(channel))
        assessment = await assess(executor, candidate(CLEAN))
    assert [found.abstain_reason for found in assessment.verdicts] == [
        verdict_pb2.ABSTAIN_REASON_NOT_APPLICABLE,
        verdict_pb2.ABSTAIN_REASON_JUDGE_UNAVAILABLE,
        verdict_pb2.ABSTAIN_REASON_JUDGE_UNAVAILABLE,
    ]
