"""The rates that the calibration states, on a part of the data that they were measured on.

The offline agents as services, asked over the network through the contracts of the others.

The measures below the offline agents, on vectors made for the purpose.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from bench import offline_screen
from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeRequest
from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.script_pb2 import Candidate
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.embedding.v1 import embedding_service_pb2_grpc
from dramaturg.judge.client import judge_one, judge_request
from dramaturg.judge.roles import COMMONSENSE, CRITIC, EXECUTE, JudgeRole
from dramaturg.judge.steps import parse_candidate
from dramaturg.service.channel import open_channel
from dramaturg.service.errors import ServiceError
from dramaturg.testing import serve
from services.agents.commonsense.judge import SPEC as COMMONSENSE_SPEC
from services.agents.commonsense.judge import OfflineCommonsense
from services.agents.critic.judge import SPEC as CRITIC_SPEC
from services.agents.execute.judge import SPEC as EXECUTE_SPEC
from services.agents.offline import screens
from services.agents.offline.material import (
    MAX_STEPS,
    Floats,
    best_matches,
    is_latin,
    read_pool,
    script_similarities,
    support,
)
from services.agents.offline.screens import (
    Repetition,
    consistency,
    expected_positions,
    grouped,
    most_inverted,
    repeated_wordings,
    undecidable_word,
)
from services.agents.offline.wording import contrast, normalise, quote, quote_all
from services.agents.synthesize.offline import OfflineSynthesizer
from services.embedding.settings import EmbeddingSettings
from tests.support.embedding import WarmApp, warm_embedding_stub
from tests.support.scripts import TEA, candidate, judge_item, pool, tea_scripts


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_stated_rates_hold(data_dir: Path) -> None:
    rates = offline_screen.evaluate(offline_screen.read(data_dir / "coscript" / "test_data.json", goals=250))
    assert rates["off topic, own goal"] < 0.025
    assert rates["off topic, goal of another category"] > 0.97
    assert rates["off topic, goal of the same category"] > 0.85
    assert rates["plain constraint, right of the answered"] > 0.87
    assert 0.2 < rates["plain constraint, answered"] < 0.45


@pytest_asyncio.fixture
async def embedding_target() -> AsyncIterator[str]:
    async with WarmApp(EmbeddingSettings()).open() as contracts, serve(*contracts) as server:
        yield server.target


async def ask(app: Any, judged: Candidate) -> Assessment:
    request = judge_request(TEA, [judged], pool=pool(*tea_scripts(12)))
    async with (
        app.open() as contracts,
        serve(*contracts) as server,
        open_channel(server.target) as channel,
    ):
        return await judge_one(channel, request, timeout=30)


@pytest.mark.parametrize(
    ("role", "make", "name"),
    [
        (CRITIC, CRITIC_SPEC, "offline-critic"),
        (EXECUTE, EXECUTE_SPEC, "offline-execute"),
        (COMMONSENSE, COMMONSENSE_SPEC, "offline-commonsense"),
    ],
)
async def test_an_offline_agent_answers_its_contract(
    embedding_target: str, role: JudgeRole, make: Callable[..., Any], name: str
) -> None:
    app = make(backend="offline", embedding_target=embedding_target)
    assessment = await ask(app, candidate(["Fill the kettle.", "Fill the kettle.", "Drink the tea."]))
    assert tuple(verdict.criterion for verdict in assessment.verdicts) == role.criteria
    assert assessment.provenance.name == name
    assert assessment.provenance.contract == role.contract
    assert not assessment.provenance.usage.provider_call_count
    for verdict in assessment.verdicts:
        abstains = verdict.outcome == verdict_pb2.OUTCOME_ABSTAIN
        assert abstains == (verdict.abstain_reason != verdict_pb2.ABSTAIN_REASON_UNSPECIFIED)
        assert verdict.rationale


async def test_an_agent_whose_embedding_service_is_down_still_answers() -> None:
    app = CRITIC_SPEC(backend="offline", embedding_target="127.0.0.1:9")
    assessment = await ask(app, candidate(["Fill the kettle.", "Drink the tea.", "Wash up."]))
    reasons = {verdict.abstain_reason for verdict in assessment.verdicts}
    assert reasons == {verdict_pb2.ABSTAIN_REASON_JUDGE_UNAVAILABLE}


GUITAR = ["Tune the guitar.", "Learn a few chords.", "Play a song."]


@pytest_asyncio.fixture
async def synthesizer() -> AsyncIterator[OfflineSynthesizer]:
    async with warm_embedding_stub() as stub:
        yield OfflineSynthesizer(stub)


async def test_the_reference_is_the_candidate_most_like_the_others(synthesizer: OfflineSynthesizer) -> None:
    scripts = [GUITAR, tea_scripts(1)[0][:3], *tea_scripts(3)]
    others = pool(*scripts)
    response = await synthesizer.synthesize(SynthesizeRequest(task=TEA, candidates=others))
    assert [step.text for step in response.script.steps] in tea_scripts(3)
    assert list(response.pool_ids) == sorted(other.id for other in others)
    assert response.provenance.parameters["method"] == "medoid of the pool"
    assert not response.failure
    again = await synthesizer.synthesize(SynthesizeRequest(task=TEA, candidates=others[::-1]))
    assert again == response


async def test_the_only_candidate_is_its_own_reference(synthesizer: OfflineSynthesizer) -> None:
    response = await synthesizer.synthesize(SynthesizeRequest(task=TEA, candidates=pool(GUITAR)))
    assert [step.text for step in response.script.steps] == GUITAR


@pytest.mark.parametrize("unusable", [(), ("", "Just prose.", ["烧水", "泡茶"])])
async def test_nothing_usable_is_a_failure_in_words(
    synthesizer: OfflineSynthesizer, unusable: tuple[str, ...]
) -> None:
    response = await synthesizer.synthesize(SynthesizeRequest(task=TEA, candidates=pool(*unusable)))
    assert not response.script.steps
    assert "language model" in response.failure
    assert not response.pool_ids


async def test_an_unreachable_embedding_service_is_an_error() -> None:
    async with open_channel("127.0.0.1:9") as channel:
        synthesizer = OfflineSynthesizer(embedding_service_pb2_grpc.EmbeddingServiceStub(channel))
        with pytest.raises(ServiceError) as raised:
            await synthesizer.synthesize(SynthesizeRequest(task=TEA, candidates=pool(GUITAR)))
    assert raised.value.code is grpc.StatusCode.UNAVAILABLE
    assert raised.value.metadata["service"] == "embedding"


async def test_common_sense_is_never_judged() -> None:
    checker = OfflineCommonsense()
    for steps in (["Put the kettle into the fridge to boil it."], "Some prose.", ["烧水"]):
        assessment = await checker.judge(judge_item(TEA, candidate(steps), criteria=checker.criteria))
        assert [found.abstain_reason for found in assessment.verdicts] == [
            verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED
        ]


async def test_the_work_ends_when_the_call_is_cancelled(
    synthesizer: OfflineSynthesizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()
    compared = []

    def match(cosines: np.ndarray, **options: bool) -> object:
        compared.append(cosines)
        begun.set()
        go_on.wait(30)
        return linear_sum_assignment(cosines, **options)

    def compare(*args: Any) -> object:
        try:
            return script_similarities(*args)
        finally:
            ended.set()

    monkeypatch.setattr("scipy.optimize.linear_sum_assignment", match)
    monkeypatch.setattr("services.agents.synthesize.offline.script_similarities", compare)
    request = SynthesizeRequest(task=TEA, candidates=pool(GUITAR, *tea_scripts(3)))
    call = asyncio.create_task(synthesizer.synthesize(request))
    assert await asyncio.to_thread(begun.wait, 30)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    go_on.set()
    assert await asyncio.to_thread(ended.wait, 30)
    assert len(compared) == 1


def scripts_of(lengths: Sequence[int], seed: int) -> list[Floats]:
    generator = np.random.default_rng(seed)
    vectors = [generator.normal(size=(length, 8)).astype(np.float32) for length in lengths]
    return [script / np.linalg.norm(script, axis=1, keepdims=True) for script in vectors]


LENGTHS = st.lists(st.integers(1, 6), min_size=1, max_size=6)


@given(LENGTHS, st.integers(0, 1000))
def test_best_matches_are_those_of_each_script_alone(lengths: list[int], seed: int) -> None:
    steps, *scripts = scripts_of([3, *lengths], seed)
    expected = np.stack([(steps @ script.T).max(axis=1) for script in scripts], axis=1)
    np.testing.assert_allclose(best_matches(steps, scripts), expected, atol=1e-6)
    np.testing.assert_allclose(support(steps, scripts), expected.mean(axis=1), atol=1e-6)


@given(LENGTHS, st.integers(0, 1000))
def test_script_similarity_is_symmetric_and_highest_with_itself(lengths: list[int], seed: int) -> None:
    scripts = scripts_of(lengths, seed)
    similarity = script_similarities([*scripts, scripts[0]])
    np.testing.assert_array_equal(similarity, similarity.T)
    assert similarity[0, -1] == pytest.approx(1, abs=1e-5)
    assert (similarity >= 0).all()
    assert (similarity <= 1 + 1e-5).all()


def one_hot(order: Sequence[int]) -> Floats:
    return np.eye(8, dtype=np.float32)[list(order)]


@given(st.permutations(range(6)))
def test_an_order_is_judged_by_the_places_of_its_steps(order: list[int]) -> None:
    expected = expected_positions(one_hot(order), [one_hot(range(6))] * 3)
    inversions = sum(order[i] > order[j] for i in range(6) for j in range(i + 1, 6))
    assert consistency(expected) == pytest.approx(1 - 2 * inversions / 15)
    if inversions:
        first, second = most_inverted(expected)
        assert first < second
        drops = [order[i] - order[j] for i in range(6) for j in range(i + 1, 6)]
        assert order[first] - order[second] == max(drops)


def test_scripts_of_one_step_say_nothing_of_order() -> None:
    np.testing.assert_array_equal(expected_positions(one_hot([0, 1]), [one_hot([0])]), [0.5, 0.5])


def test_the_topic_screen_is_relative_to_a_pool_that_is_unlike_the_goal_itself() -> None:
    goal = np.array([1, 0], dtype=np.float32)

    def at(cosine: float) -> Floats:
        return np.array([cosine, np.sqrt(1 - cosine**2)], dtype=np.float32)

    nobody = np.zeros((0, 2), dtype=np.float32)
    few = np.stack([at(0.2)] * (screens.OFF_TOPIC_MIN_POOL - 1))
    enough = np.stack([at(0.2)] * screens.OFF_TOPIC_MIN_POOL)
    usual = np.stack([at(0.7)] * screens.OFF_TOPIC_MIN_POOL)
    assert screens.screen_topic(goal, at(0.2), nobody).off_topic
    assert screens.screen_topic(goal, at(0.2), few).off_topic
    assert not screens.screen_topic(goal, at(0.2), enough).off_topic
    assert screens.screen_topic(goal, at(0.2), usual).off_topic
    assert not screens.screen_topic(goal, at(0.4), usual).off_topic


def test_the_consensus_names_each_absent_step_once() -> None:
    named = screens.uncovered_consensus(
        one_hot([0, 1]), [one_hot([0, 2, 3]), one_hot([2, 1]), one_hot([2, 4])]
    )
    assert named == [1]


@pytest.mark.parametrize(
    ("first", "second", "opposed"),
    [
        ("Turn on the oven", "Turn the oven off", True),
        ("Opening the lid", "Closing the lid", True),
        ("Add 2 eggs", "Add 3 eggs", True),
        ("Add an egg", "Add 2.5 cups", True),
        ("Paint the first coat", "Paint the second coat", True),
        ("Use it", "Don’t use it", True),
        ("Draw the bear's head", "Draw the bear's body", True),
        ("Microwave the clay", "Microwave the clay again", True),
        ("Wash your hands", "Wash the hands", False),
        ("Move into new apartment", "Move to a new apartment", False),
        ("Turn on the oven", "Turn the oven on", False),
    ],
)
def test_contrast(first: str, second: str, opposed: bool) -> None:
    assert (contrast(first, second) is not None) == opposed
    assert (contrast(second, first) is not None) == opposed


@given(st.text())
def test_normalising_twice_is_normalising_once_and_no_text_contrasts_with_itself(text: str) -> None:
    assert contrast(text, text) is None
    assert normalise(f"  {text.strip()} ") == normalise(text)


@given(st.lists(st.sampled_from(["Stir.", "stir", "Pour", " ", ""])))
def test_repeated_wordings_are_disjoint_and_never_blank(steps: list[str]) -> None:
    repeated = [index for group in repeated_wordings(steps) for index in group.steps]
    assert len(repeated) == len(set(repeated))
    assert all(steps[index].strip() for index in repeated)


def test_repetitions_that_share_a_step_are_one_group() -> None:
    found = [
        Repetition((4, 5), 1.0),
        Repetition((0, 2), 0.99),
        Repetition((2, 7), 0.96),
        Repetition((1, 3), 1.0),
    ]
    assert grouped(found) == [Repetition((0, 2, 7), 0.96), Repetition((1, 3), 1.0), Repetition((4, 5), 1.0)]


@pytest.mark.parametrize(
    ("constraint", "word"),
    [
        ("with a crockpot", None),
        ("for a school project", None),
        ("without an oven", "without"),
        ("in under 10 minutes", "under"),
        ("for 4 people", "4"),
        ("using a cordless drill", "cordless"),
        ("Low-Carb", "low"),
    ],
)
def test_plain_constraints_and_others(constraint: str, word: str | None) -> None:
    assert undecidable_word(constraint) == word


@pytest.mark.parametrize(
    ("text", "latin"),
    [
        ("Boil water", True),
        ("烧水", False),
        ("Кипятить воду", False),
        ("123", True),
        ("用 iPhone", True),
        ("Ébouillanter", True),
    ],
)
def test_latin(text: str, latin: bool) -> None:
    assert is_latin([text]) == latin


def test_a_pool_over_the_limit_is_cut_the_same_way_in_any_order() -> None:
    scripts = [[f"Do {number} and {step}" for step in range(1000)] for number in range(6)]
    candidates = [parse_candidate(candidate) for candidate in pool(*scripts)]
    kept = read_pool(candidates)
    assert len(kept.steps) == MAX_STEPS
    assert kept.left_out == 2
    assert read_pool(candidates[::-1]) == kept


def test_quotes_are_short_and_on_one_line() -> None:
    assert quote("a\nb") == '"a b"'
    assert len(quote("word " * 10_000)) < 200
    assert quote_all(str(number) for number in range(8)).endswith("and 3 more")
