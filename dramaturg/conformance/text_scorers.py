"""What every scorer of texts must keep to: TextScorerService."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.judging.v1.text_scorer_service_pb2 import ScoreTextsRequest, ScoreTextsResponse
from dramaturg.api.judging.v1.text_scorer_service_pb2_grpc import TextScorerServiceStub
from dramaturg.conformance.basics import (
    MEND_BAD_REQUESTS,
    MEND_CONCURRENCY,
    MEND_HEALTH,
    MEND_PROVENANCE,
    UNUSUAL_TEXTS,
    identity,
    require_identity,
    require_refused,
    require_serving,
    require_signed,
)
from dramaturg.conformance.kit import Subject, Suite, require

TEXTS = (
    "The tea is ready. Let it stand for three minutes.",
    "You are a fool, and nobody likes your stupid tea.",
    "pwd",
)
MOST_TEXTS = 100
"""The most texts of a request, by the contract."""

TEXT_SCORERS = Suite()
"""The checks of a scorer of texts."""
check = TEXT_SCORERS.check


async def ask(subject: Subject, texts: Sequence[str]) -> ScoreTextsResponse:
    """Has the scorer under test score texts."""
    request = ScoreTextsRequest(texts=texts, options=JudgeOptions(model=subject.model))
    response: ScoreTextsResponse | None = await TextScorerServiceStub(subject.channel).ScoreTexts(
        request, timeout=subject.timeout
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


@check(
    "The server reports the contract as SERVING through grpc.health.v1.Health.",
    mend=MEND_HEALTH,
)
async def health(subject: Subject) -> None:
    """Checks the health service."""
    await require_serving(subject)


@check(
    "IdentityService names the scorer, its version, its contract and its attribute as the one criterion.",
    mend="Serve IdentityService: a name in kebab-case, a version as 1.2.3, the contract, one criterion.",
)
async def says_who_it_is(subject: Subject) -> None:
    """Checks the identity."""
    answer = await identity(subject)
    require_identity(answer, subject)
    require(len(answer.criteria) == 1, f"the criteria are {list(answer.criteria)}, not one attribute")


@check(
    "Every text gets a score in [0, 1] or a reason, in order, for the attribute of the identity.",
    mend="Give each text, in order, a value in [0, 1] or an abstain_reason; set attribute.",
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
    "Provenance names the scorer as its identity does, and the model calls of one that makes any.",
    mend=MEND_PROVENANCE,
)
async def says_where_scores_come_from(subject: Subject) -> None:
    """Checks the provenance."""
    require_signed((await ask(subject, TEXTS)).provenance, await identity(subject))


@check(
    "A text has the score that it has alone, regardless of the other texts.",
    mend="Score each text without regard to its place and to the other texts of the request.",
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
    "Empty and long texts, every Unicode plane and as many texts as may be have a well-formed result.",
    mend="Accept every text up to the limits of the contract; abstain from what cannot be scored.",
)
async def bears_unusual_input(subject: Subject) -> None:
    """Checks uncommon sizes and languages."""
    cases: list[Sequence[str]] = [
        ["", " \n\t"],
        UNUSUAL_TEXTS,
        ["Stir the tea. " * 14_000],
        [f"Cup number {number}." for number in range(MOST_TEXTS)],
    ]
    for texts, response in zip(
        cases, await asyncio.gather(*(ask(subject, texts) for texts in cases)), strict=True
    ):
        require_sound(response, len(texts))


@check(
    "A request without texts is refused with INVALID_ARGUMENT, an ErrorInfo and the field's path.",
    mend=MEND_BAD_REQUESTS,
)
async def refuses_bad_requests(subject: Subject) -> None:
    """Checks the error of an invalid request."""
    await require_refused(ask(subject, ()), "texts")


@check(
    "Twenty calls at once are all answered.",
    mend=MEND_CONCURRENCY,
)
async def answers_side_by_side(subject: Subject) -> None:
    """Checks concurrent calls."""
    answers = await asyncio.gather(*(ask(subject, [f"Drink cup number {n}."]) for n in range(20)))
    for response in answers:
        require_sound(response, 1)
