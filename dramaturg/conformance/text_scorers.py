"""What every scorer of texts must keep to: TextScorerService."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.identity.v1.identity_service_pb2 import Identity
from dramaturg.api.judging.v1.text_scorer_service_pb2 import ScoreTextsRequest, ScoreTextsResponse
from dramaturg.api.judging.v1.text_scorer_service_pb2_grpc import TextScorerServiceStub
from dramaturg.conformance.common import Calls, call_checks, identity, identity_checks, provenance_checks
from dramaturg.conformance.kit import Subject, Suite, require

TEXTS = (
    "The tea is ready. Let it stand for three minutes.",
    "You are a fool, and nobody likes your stupid tea.",
    "pwd",
)
MOST_TEXTS = 100
"""The most texts of a request, by the contract."""


async def ask(subject: Subject, texts: Sequence[str], timeout: float | None = None) -> ScoreTextsResponse:
    """Has the scorer under test score texts."""
    request = ScoreTextsRequest(texts=texts, options=JudgeOptions(model=subject.model))
    response: ScoreTextsResponse | None = await TextScorerServiceStub(subject.channel).ScoreTexts(
        request, timeout=timeout or subject.timeout
    )
    # gRPC hands over None where the bytes do not parse as the response.
    return ScoreTextsResponse() if response is None else response


def require_sound(response: ScoreTextsResponse, count: int) -> None:
    """Requires a score or a reason for each text."""
    require(len(response.scores) == count, f"{len(response.scores)} scores came for {count} texts")
    for index, score in enumerate(response.scores):
        where = f"the score of text {index}"
        require(
            score.HasField("value") != bool(score.abstain_reason),
            f"{where} must have an abstain_reason if and only if it has no value",
        )
        require(
            not score.HasField("value") or 0.0 <= score.value <= 1.0,
            f"{where} is {score.value}, which is not in [0, 1]",
        )


async def _send(subject: Subject, text: str, timeout: float | None = None) -> ScoreTextsResponse:
    return await ask(subject, [text], timeout)


async def _ask(subject: Subject, text: str, timeout: float | None = None) -> ScoreTextsResponse:
    response = await ask(subject, [text], timeout)
    require_sound(response, 1)
    return response


LARGEST = (["Stir the tea. " * 14_000], [f"Cup number {number}." for number in range(MOST_TEXTS)])
"""The texts of large requests: a long one, and as many as may be."""


async def _ask_largest(subject: Subject) -> None:
    for texts in LARGEST:
        response = await ask(subject, texts)
        subject.largest_answers.append(response)
        require_sound(response, len(texts))


def _require_attribute(answer: Identity, _: Subject) -> None:
    require(bool(answer.criteria), "no criteria are named")
    require(len(answer.criteria) == 1, f"the criteria are {list(answer.criteria)}, not one attribute")


TEXT_SCORERS = Suite()
"""The checks of a scorer of texts."""
check = TEXT_SCORERS.check
_CALLS = Calls(
    _send,
    _ask,
    _ask_largest,
    lambda subject: [
        (partial(ask, subject, ()), "texts"),
        (partial(ask, subject, ["Tea."] * (MOST_TEXTS + 1)), "texts"),
    ],
    provenance=lambda response: response.provenance,
    require_identity=_require_attribute,
)
identity_checks(TEXT_SCORERS, _CALLS)


@check(
    "Every text gets a score in [0, 1] or a reason, in order, for the attribute of the identity.",
    remedy="Give each text, in order, a value in [0, 1] or an abstain_reason; set attribute.",
)
async def scores_every_text(subject: Subject) -> None:
    """Checks an ordinary answer."""
    answer = await identity(subject)
    response = await ask(subject, TEXTS)
    require_sound(response, len(TEXTS))
    require(
        [response.attribute] == list(answer.criteria),
        f"the attribute is {response.attribute!r}, the identity's are {list(answer.criteria)}",
    )


@check(
    "A text has the score that it has alone, regardless of the other texts.",
    remedy="Score each text without regard to its place and to the other texts of the request.",
)
async def scores_each_text_by_itself(subject: Subject) -> None:
    """Checks that texts of one request do not touch each other."""
    together, alone, turned = await asyncio.gather(
        ask(subject, TEXTS), ask(subject, TEXTS[1:2]), ask(subject, TEXTS[::-1])
    )
    require_sound(together, len(TEXTS))
    for seen in (alone.scores[0], turned.scores[1]):
        require(
            seen.HasField("value") == together.scores[1].HasField("value")
            and abs(seen.value - together.scores[1].value) < 1e-3,
            f"its score {together.scores[1].value} became {seen.value} in other company",
        )


@check(
    "Empty and blank texts have a well-formed result.",
    remedy="Score texts without content, or abstain from them.",
)
async def answers_empty_input(subject: Subject) -> None:
    """Checks texts without content."""
    require_sound(await ask(subject, ["", " \n\t"]), 2)


provenance_checks(TEXT_SCORERS, _CALLS)
call_checks(TEXT_SCORERS, _CALLS)
