from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence

import grpc
import pytest
import pytest_asyncio

from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.script_pb2 import Candidate
from dramaturg.api.common.v1.verdict_pb2 import Assessment, Verdict
from dramaturg.api.embedding.v1 import embedding_service_pb2_grpc
from dramaturg.judge.criteria import NO_DUPLICATE_STEPS, NO_MISSING_STEPS, NO_REDUNDANT_STEPS
from dramaturg.service.channel import open_channel
from dramaturg.service.errors import ServiceError
from services.agents.critic.offline import OfflineCritic
from services.embedding import weights
from tests.support.embedding import embedding_stub, warm_embedding_stub
from tests.support.scripts import TEA, candidate, judge_item, pool, tea_scripts

FAIL, PASS, ABSTAIN = verdict_pb2.OUTCOME_FAIL, verdict_pb2.OUTCOME_PASS, verdict_pb2.OUTCOME_ABSTAIN
NOT_SUPPORTED = verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED


@pytest_asyncio.fixture
async def critic() -> AsyncIterator[OfflineCritic]:
    async with warm_embedding_stub() as stub:
        yield OfflineCritic(stub)


async def assess(critic: OfflineCritic, judged: Candidate, others: Sequence[Candidate] = ()) -> Assessment:
    return await critic.judge(judge_item(TEA, judged, others))


async def verdict(
    critic: OfflineCritic, criterion: str, judged: Candidate, others: Sequence[Candidate] = ()
) -> Verdict:
    assessment = await assess(critic, judged, others)
    return next(verdict for verdict in assessment.verdicts if verdict.criterion == criterion)


CLEAN = tea_scripts(1)[0]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (["Boil the water.", "Drink it.", "  BOIL the water "], (0, 2)),
        (["Drink it.", "Move into new apartment.", "Move to a new apartment."], (1, 2)),
    ],
)
async def test_steps_that_say_the_same_fail_with_the_pair(
    critic: OfflineCritic, steps: list[str], expected: tuple[int, ...]
) -> None:
    found = await verdict(critic, NO_DUPLICATE_STEPS, candidate(steps))
    assert found.outcome == FAIL
    assert tuple(found.findings[0].step_indices) == expected
    assert found.findings[0].kind == verdict_pb2.FINDING_KIND_DUPLICATE_STEP


async def test_a_step_written_thrice_is_one_finding(critic: OfflineCritic) -> None:
    found = await verdict(critic, NO_DUPLICATE_STEPS, candidate(["Stir.", "Stir.", "Pour it out.", "stir"]))
    assert [tuple(finding.step_indices) for finding in found.findings] == [(0, 1, 3)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Turn on the oven", "Turn off the oven"),
        ("Open the door", "Close the door"),
        ("Mix the dry ingredients", "Mix the wet ingredients"),
        ("Bake it in the oven for 20 minutes", "Bake it in the oven for 25 minutes"),
        ("Apply the first coat of paint to the wall", "Apply the second coat of paint to the wall"),
        ("Take the cookies out of the oven tray", "Do not take the cookies out of the oven tray"),
    ],
)
async def test_steps_that_one_word_tells_apart_never_fail(
    critic: OfflineCritic, first: str, second: str
) -> None:
    found = await verdict(critic, NO_DUPLICATE_STEPS, candidate([first, "Have a rest", second]))
    assert found.outcome == ABSTAIN
    assert found.abstain_reason == verdict_pb2.ABSTAIN_REASON_LOW_CONFIDENCE
    assert first in found.rationale
    assert second in found.rationale


async def test_different_steps_pass(critic: OfflineCritic) -> None:
    found = await verdict(critic, NO_DUPLICATE_STEPS, candidate(CLEAN))
    assert found.outcome == PASS
    assert not found.HasField("confidence")


async def test_a_step_of_another_task_fails_with_a_large_pool(critic: OfflineCritic) -> None:
    steps = [*CLEAN[:4], "Tune the guitar strings with a pitch pipe", *CLEAN[4:]]
    found = await verdict(critic, NO_REDUNDANT_STEPS, candidate(steps), pool(*tea_scripts(9)))
    assert found.outcome == FAIL
    assert list(found.findings[0].step_indices) == [4]


async def test_no_step_that_stands_out_is_no_pass(critic: OfflineCritic) -> None:
    found = await verdict(critic, NO_REDUNDANT_STEPS, candidate(CLEAN), pool(*tea_scripts(9)))
    assert (found.outcome, found.abstain_reason) == (ABSTAIN, NOT_SUPPORTED)


@pytest.mark.parametrize("size", [0, 1, 7])
async def test_a_small_pool_says_how_small(critic: OfflineCritic, size: int) -> None:
    steps = [*CLEAN, "Tune the guitar strings with a pitch pipe"]
    found = await verdict(critic, NO_REDUNDANT_STEPS, candidate(steps), pool(*tea_scripts(size)))
    assert (found.outcome, found.abstain_reason) == (ABSTAIN, NOT_SUPPORTED)
    assert f"{size} usable scripts" in found.rationale


async def test_missing_steps_are_advice_never_a_verdict(critic: OfflineCritic) -> None:
    without_bag = [step for step in CLEAN if "bag" not in step]
    found = await verdict(critic, NO_MISSING_STEPS, candidate(without_bag), pool(*tea_scripts(6)))
    assert (found.outcome, found.abstain_reason) == (ABSTAIN, NOT_SUPPORTED)
    assert "tea" in found.rationale
    assert "bag" in found.rationale
    alone = await verdict(critic, NO_MISSING_STEPS, candidate(without_bag), pool(*tea_scripts(4)))
    assert "too few" in alone.rationale


async def test_the_order_of_the_pool_and_the_names_change_nothing(critic: OfflineCritic) -> None:
    steps = [*CLEAN, "Tune the guitar strings with a pitch pipe"]
    others = pool(*tea_scripts(9))
    first = await assess(critic, candidate(steps), others)
    second = await assess(critic, candidate(steps, "another name"), others[::-1])
    assert first == second


async def test_unusable_candidates_are_counted_as_left_out(critic: OfflineCritic) -> None:
    others = pool(*tea_scripts(3), "", "Prose without any steps.", ["烧水", "泡茶"])
    assessment = await assess(critic, candidate(CLEAN), others)
    assert assessment.provenance.parameters["pool_size"] == "3"
    assert assessment.provenance.parameters["pool_left_out"] == "3"
    assert assessment.provenance.parameters["duplicate_similarity"] == "0.95"
    assert not assessment.provenance.completions


async def test_forty_candidates_of_which_one_is_judged(critic: OfflineCritic) -> None:
    assessment = await assess(critic, candidate(CLEAN), pool(*tea_scripts(39)))
    assert [found.criterion for found in assessment.verdicts] == list(critic.criteria)
    assert assessment.provenance.parameters["pool_size"] == "39"


async def test_chinese_is_judged_by_wording_alone(critic: OfflineCritic) -> None:
    repeated = await assess(critic, candidate(["烧水", "泡茶", "烧水。"]))
    outcomes = {found.criterion: found.outcome for found in repeated.verdicts}
    assert outcomes == {NO_MISSING_STEPS: ABSTAIN, NO_REDUNDANT_STEPS: ABSTAIN, NO_DUPLICATE_STEPS: FAIL}
    clean = await verdict(critic, NO_DUPLICATE_STEPS, candidate(["烧水", "泡茶", "喝茶"]))
    assert (clean.outcome, clean.abstain_reason) == (ABSTAIN, NOT_SUPPORTED)
    assert "Latin" in clean.rationale


async def test_long_steps_that_differ_at_the_end_alone_are_not_called_the_same(critic: OfflineCritic) -> None:
    body = "stir the pot slowly and " * 420
    found = await verdict(
        critic, NO_DUPLICATE_STEPS, candidate([f"{body} then add salt", f"{body} then serve"])
    )
    assert found.outcome == ABSTAIN
    assert "beginnings" in found.rationale
    assert len(found.rationale) < 1000


async def test_a_candidate_without_steps(critic: OfflineCritic) -> None:
    prose = await assess(critic, candidate("I would simply ask a friend who knows how."))
    assert {found.abstain_reason for found in prose.verdicts} == {NOT_SUPPORTED}


async def test_an_unreachable_embedding_service_leaves_what_needs_none() -> None:
    async with open_channel("127.0.0.1:9") as channel:
        critic = OfflineCritic(embedding_service_pb2_grpc.EmbeddingServiceStub(channel))
        repeated = await assess(critic, candidate(["Stir.", "Stir."]))
        clean = await assess(critic, candidate(["Stir.", "Pour."]))
    unavailable = verdict_pb2.ABSTAIN_REASON_JUDGE_UNAVAILABLE
    assert [found.outcome for found in repeated.verdicts] == [ABSTAIN, ABSTAIN, FAIL]
    assert [found.abstain_reason for found in clean.verdicts] == [unavailable] * 3


async def test_absent_weights_reach_the_user_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_PACKAGE", "a_package_that_is_not_installed")
    async with embedding_stub() as stub:
        with pytest.raises(ServiceError) as raised:
            await assess(OfflineCritic(stub), candidate(CLEAN))
    assert raised.value.code is grpc.StatusCode.FAILED_PRECONDITION
    assert raised.value.reason == error_reason_pb2.ERROR_REASON_WEIGHTS_MISSING
    assert raised.value.metadata["command"] == "make model"


async def test_the_pool_does_not_hold_the_judged_candidate(critic: OfflineCritic) -> None:
    assessment = await assess(critic, candidate(CLEAN), [candidate(CLEAN), *pool(*tea_scripts(1))])
    assert assessment.provenance.parameters["pool_size"] == "2"


@pytest.mark.slow
async def test_a_thousand_steps(critic: OfflineCritic) -> None:
    verbs, things = ("Wash", "Peel", "Slice", "Store", "Label"), ("apple", "pear", "carrot", "leek")
    steps = [f"{verb} {thing} {n}" for n, verb, thing in itertools.product(range(50), verbs, things)]
    found = await verdict(critic, NO_DUPLICATE_STEPS, candidate(steps))
    assert found.outcome == ABSTAIN
    assert len(found.rationale) < 1000
