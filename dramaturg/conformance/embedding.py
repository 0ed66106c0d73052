"""The requirements of EmbeddingService."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from functools import partial

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.embedding.v1.embedding_service_pb2 import (
    EmbedRequest,
    EmbedResponse,
    EmbedTokensRequest,
    EmbedTokensResponse,
)
from dramaturg.api.embedding.v1.embedding_service_pb2_grpc import EmbeddingServiceStub
from dramaturg.conformance.common import Calls, call_checks, identity, identity_checks, refusal
from dramaturg.conformance.kit import NotApplicableError, Subject, Suite, require
from dramaturg.service.settings import ChannelSettings

TEXTS = ("Heat the water.", "Pour it over the tea.", "The parcel is at the post office.")
MOST_TEXTS = 4096
"""The most texts of a request, by the contract."""
LONGEST_TEXT = 200_000
"""The longest text in characters, by the contract."""
TOKENS = "tokens"
"""The capability of a service that embeds tokens."""
CLOSE = 1e-3
"""The largest difference of a number of two vectors that are the same, and of their length from 1."""
UNKNOWN_MODEL = "no-such-model"
_MANY = tuple(f"Stir cup number {number % 32}." for number in range(MOST_TEXTS))
"""As many texts as may be; few different ones."""


async def embed(subject: Subject, texts: Sequence[str], timeout: float | None = None) -> EmbedResponse:
    """Has texts embedded."""
    request = EmbedRequest(texts=texts, model=subject.model)
    response: EmbedResponse | None = await EmbeddingServiceStub(subject.channel).Embed(
        request, timeout=timeout or subject.timeout
    )
    # gRPC hands over None where the bytes do not parse as the response.
    return EmbedResponse() if response is None else response


def require_sound(response: EmbedResponse, count: int) -> None:
    """Requires a vector of length 1 and of the stated dimension for each text."""
    require(len(response.embeddings) == count, f"{len(response.embeddings)} vectors came for {count} texts")
    require(response.dimension > 0, "the dimension is 0")
    require(bool(response.model), "the model is not named")
    for index, embedding in enumerate(response.embeddings):
        where = f"the vector of text {index}"
        size = len(embedding.values)
        require(
            size == response.dimension, f"{where} has {size} numbers, the dimension is {response.dimension}"
        )
        _require_unit(where, embedding.values)


def _require_unit(where: str, values: Sequence[float]) -> None:
    length = math.sqrt(sum(value * value for value in values))
    # A length that is not finite is not near 1.
    require(abs(length - 1.0) <= CLOSE, f"{where} has length {length}, not 1")


def _require_same(where: str, first: Sequence[float], second: Sequence[float]) -> None:
    require(len(first) == len(second), f"{where} has {len(first)} numbers, then {len(second)}")
    difference = max(map(abs, map(float.__sub__, first, second)), default=0.0)
    require(difference <= CLOSE, f"{where} differs by {difference:.3g}")


async def _send(subject: Subject, text: str, timeout: float | None = None) -> EmbedResponse:
    return await embed(subject, [text], timeout)


async def _ask(subject: Subject, text: str, timeout: float | None = None) -> EmbedResponse:
    response = await embed(subject, [text], timeout)
    require_sound(response, 1)
    return response


async def _ask_largest(subject: Subject) -> None:
    for texts in (["Stir the tea. " * 14_000], _MANY):
        response = await embed(subject, texts)
        subject.largest_answers.append(response)
        require_sound(response, len(texts))


EMBEDDINGS = Suite()
"""The checks of an embedding service."""
check = EMBEDDINGS.check
_CALLS = Calls(
    _send,
    _ask,
    _ask_largest,
    lambda subject: [
        (partial(embed, subject, ()), "texts"),
        (partial(embed, subject, ["Tea."] * (MOST_TEXTS + 1)), "texts"),
        (partial(embed, subject, ["Tea.", "x" * (LONGEST_TEXT + 1)]), "texts[1]"),
    ],
    # The vectors of 4,096 texts alone are larger than what clients of most languages read by default.
    answer_bytes=ChannelSettings.model_fields["max_message_bytes"].default,
)
identity_checks(EMBEDDINGS, _CALLS)


@check(
    "Each text has one vector of length 1, of finite numbers and of the stated dimension.",
    remedy="Send one vector for each text, normalised; state the model and the dimension.",
)
async def answers_well_formed(subject: Subject) -> None:
    """Checks an ordinary answer."""
    require_sound(await embed(subject, TEXTS), len(TEXTS))


@check(
    "Empty and blank texts have vectors too.",
    remedy="Embed a text without content like any other, or give it a fixed vector of length 1.",
)
async def answers_empty_input(subject: Subject) -> None:
    """Checks texts without content."""
    require_sound(await embed(subject, ["", " \n\t"]), 2)


@check(
    "The model, its weights and the dimension are the same in every answer.",
    remedy="Serve one model for each name; state the same dimension, model and weights_sha256 each time.",
)
async def keeps_its_model(subject: Subject) -> None:
    """Checks answers to different requests."""
    seen = {
        (one.model, one.weights_sha256, one.dimension)
        for one in await asyncio.gather(
            *(embed(subject, texts) for texts in (TEXTS, TEXTS[:1], ["", "Tea."]))
        )
    }
    require(len(seen) == 1, f"model, weights and dimension are {sorted(seen)}")


@check(
    "Equal texts have equal vectors, within a request and from call to call, in any order and company.",
    remedy="Embed each text by itself, with the model in evaluation mode; keep the order of the texts.",
)
async def embeds_each_text_by_itself(subject: Subject) -> None:
    """Checks repeated, reordered and lone texts, beside a long one that fills a batch."""
    once, turned, padded = await asyncio.gather(
        embed(subject, TEXTS),
        embed(subject, [*TEXTS[::-1], TEXTS[0]]),
        embed(subject, [TEXTS[0], "Stir. " * 500]),
    )
    for response, count in ((once, 3), (turned, 4), (padded, 2)):
        require_sound(response, count)
    vectors = [one.values for one in once.embeddings]
    for place, other in ((2, turned.embeddings[0]), (1, turned.embeddings[1]), (0, turned.embeddings[2])):
        _require_same(f"the vector of {TEXTS[place]!r} in another order", vectors[place], other.values)
    _require_same("the vector of a repeated text", vectors[0], turned.embeddings[3].values)
    _require_same("the vector of a text beside a long one", vectors[0], padded.embeddings[0].values)


@check(
    "Different texts have different vectors, and a text is nearest to itself.",
    remedy="Return the vectors of the texts, not a constant.",
)
async def tells_texts_apart(subject: Subject) -> None:
    """Checks that vectors depend on the texts."""
    response = await embed(subject, TEXTS)
    require_sound(response, len(TEXTS))
    vectors = [one.values for one in response.embeddings]
    for first in range(len(TEXTS)):
        for second in range(first):
            similarity = sum(a * b for a, b in zip(vectors[first], vectors[second], strict=True))
            require(
                similarity < 1.0 - CLOSE,
                f"the similarity of {TEXTS[first]!r} and {TEXTS[second]!r} is {similarity:.4f}",
            )


@check(
    "Twenty texts embedded at once have the vectors that they have in one request.",
    remedy="Keep the state of a call in the call; hand each call the rows of its own texts.",
)
async def keeps_vectors_apart(subject: Subject) -> None:
    """Checks that concurrent calls get their own vectors."""
    texts = [f"Cup number {number} of tea." for number in range(20)]
    answers = await asyncio.gather(*(embed(subject, [text]) for text in texts))
    together = await embed(subject, texts)
    require_sound(together, len(texts))
    for text, answer, vector in zip(texts, answers, together.embeddings, strict=True):
        require_sound(answer, 1)
        _require_same(f"the vector of {text!r}", answer.embeddings[0].values, vector.values)


@check(
    "A text longer than the model's window is marked as truncated, and short ones are not.",
    remedy="Set truncated where the text is cut off; embed long texts whole otherwise.",
)
async def marks_truncated_texts(subject: Subject) -> None:
    """Checks that what is cut off is said to be so: two long texts that differ at their ends alone."""
    long = "Stir the tea. " * 10_000
    response = await embed(subject, [TEXTS[0], f"{long} Add milk.", f"{long} Send the parcel."])
    require_sound(response, 3)
    short, first, second = response.embeddings
    require(not short.truncated, "a text of three words is marked as truncated")
    if not (first.truncated and second.truncated):
        difference = max(map(abs, map(float.__sub__, first.values, second.values)))
        require(
            difference > 0.0,
            "the end of a long text does not matter, and the text is not marked as truncated",
        )


@check(
    "A model that is not served is refused with INVALID_ARGUMENT and ERROR_REASON_MODEL_UNKNOWN.",
    remedy="Fail the call with an ErrorInfo of that reason; do not answer with another model.",
)
async def refuses_unknown_models(subject: Subject) -> None:
    """Checks the error of an unknown model."""
    request = EmbedRequest(texts=TEXTS, model=UNKNOWN_MODEL)
    error = await refusal(EmbeddingServiceStub(subject.channel).Embed(request, timeout=subject.timeout))
    require(error.code is grpc.StatusCode.INVALID_ARGUMENT, f"the code is {error.code.name}")
    require(
        error.reason == error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN,
        f"the ErrorInfo's reason is {error.reason_name}",
    )


@check(
    'With the capability "tokens" tokens have vectors of length 1; without it EmbedTokens is UNIMPLEMENTED.',
    remedy="State the capability and send tokens times dimension numbers, or ERROR_REASON_NOT_IMPLEMENTED.",
)
async def embeds_tokens(subject: Subject) -> None:
    """Checks token embeddings, where there are some."""
    request = EmbedTokensRequest(texts=TEXTS, model=subject.model)
    call = EmbeddingServiceStub(subject.channel).EmbedTokens(request, timeout=subject.timeout)
    if TOKENS not in (await identity(subject)).capabilities:
        error = await refusal(call)
        require(error.code is grpc.StatusCode.UNIMPLEMENTED, f"the code is {error.code.name}")
        if not error.reason:
            raise NotApplicableError("the service does not have the method")
        return
    response: EmbedTokensResponse = await call
    require(len(response.texts) == len(TEXTS), f"{len(response.texts)} of {len(TEXTS)} texts have tokens")
    for index, text in enumerate(response.texts):
        where, size = f"text {index}", response.dimension
        require(bool(text.tokens), f"{where} has no tokens")
        require(
            len(text.values) == len(text.tokens) * size,
            f"{where} has {len(text.values)} numbers for {len(text.tokens)} tokens of dimension {size}",
        )
        for place in range(len(text.tokens)):
            _require_unit(f"token {place} of {where}", text.values[place * size : (place + 1) * size])


call_checks(EMBEDDINGS, _CALLS)
