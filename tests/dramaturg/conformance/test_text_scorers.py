"""The checks of text scorers, against one that keeps its contract and several that break it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from dramaturg import conformance
from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.judging.v1.text_scorer_service_pb2 import ScoreTextsRequest, ScoreTextsResponse, TextScore
from dramaturg.judge.roles import GRAPH, TEXT_SCORER
from dramaturg.judge.text_scorers import text_scorer_contract
from dramaturg.testing import serve
from tests.dramaturg.conformance.services import Shouting
from tests.support.evaluations import contract

Method = Callable[[ScoreTextsRequest], Awaitable[ScoreTextsResponse]]


async def test_a_scorer_that_keeps_its_contract_passes() -> None:
    async with serve(text_scorer_contract(Shouting())) as server:
        outcomes = await conformance.run(TEXT_SCORER, server.target, timeout=20)
    assert [(one.check.name, one.failure) for one in outcomes if one.broken] == []


def broken(change: Callable[[ScoreTextsResponse], None]) -> Method:
    async def score(request: ScoreTextsRequest) -> ScoreTextsResponse:
        response = await Shouting().score_texts(request)
        change(response)
        return response

    return score


def too_high(response: ScoreTextsResponse) -> None:
    response.scores[0].value = 1.5


def one_less(response: ScoreTextsResponse) -> None:
    del response.scores[-1]


def neither(response: ScoreTextsResponse) -> None:
    response.scores[0].CopyFrom(TextScore())


def both(response: ScoreTextsResponse) -> None:
    response.scores[0].value = 0.5
    response.scores[0].abstain_reason = verdict_pb2.ABSTAIN_REASON_REFUSED


def relative(response: ScoreTextsResponse) -> None:
    for place, score in enumerate(response.scores):
        score.ClearField("abstain_reason")
        score.value = place / len(response.scores)


@pytest.mark.parametrize(
    ("change", "check", "message"),
    [
        (too_high, "scores-every-text", "1.5, which is not in [0, 1]"),
        (one_less, "scores-every-text", "2 scores came for 3 texts"),
        (neither, "scores-every-text", "if and only if"),
        (both, "scores-every-text", "if and only if"),
        (relative, "scores-each-text-by-itself", "in other company"),
        (lambda _: None, "scores-every-text", "the attribute is ''"),
        (lambda _: None, "says-who-it-is", "no criteria are named"),
        (lambda _: None, "says-where-answers-come-from", "provenance.name is ''"),
    ],
)
async def test_what_is_broken_is_named(
    change: Callable[[ScoreTextsResponse], None], check: str, message: str
) -> None:
    async with serve(contract("text-scorer", {"ScoreTexts": broken(change)})) as server:
        outcomes = await conformance.run(TEXT_SCORER, server.target, timeout=20)
    failures = {one.check.name: one.failure for one in outcomes}
    assert message in failures[check]


async def test_a_contract_without_checks_is_refused() -> None:
    with pytest.raises(ValueError, match="'graph' has no checks; there are those of judge, synthesize"):
        await conformance.run(GRAPH, "localhost:1")
