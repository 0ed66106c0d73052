"""Services of each contract, and for each requirement of the kit a fault that breaks it alone.

Judges of texts have theirs in ``faults``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass

from dramaturg.api.common.v1.error_reason_pb2 import ERROR_REASON_INTERNAL
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.generation.v1 import generation_service_pb2 as generation
from dramaturg.api.identity.v1.identity_service_pb2 import Identity
from dramaturg.api.judging.v1.rating_judge_service_pb2 import RateReplyResponse
from dramaturg.conformance.embedding import UNKNOWN_MODEL as UNKNOWN_EMBEDDING_MODEL
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError
from dramaturg.service.validation import violations
from tests.dramaturg.conformance import test_embedding, test_generation
from tests.dramaturg.conformance.faults import BluntLimit
from tests.dramaturg.conformance.services import OPEN, Opened, embedding

Call = Callable[[Any, Any], Awaitable[Any]]
Around = Callable[[Call, Any, Any], Awaitable[Any]]
"""Answers a request and its context, with the sound method."""

ORDINARY = b"Heat the water."


@dataclass(frozen=True)
class Sound:
    """A sound service of a contract."""

    open: Opened
    method: str
    """The method that the checks of all contracts call."""
    malform: Callable[[Any], None]
    """Makes a response that is no well-formed answer."""
    is_empty: Callable[[Any], bool]
    """Whether a request has no content."""
    provenance: Callable[[Any], Provenance] | None = None
    is_largest: Callable[[Any], bool] = lambda request: request.ByteSize() > 50_000
    pad: Callable[[Any], None] | None = None
    """Makes a response too large. None: by its provenance."""
    well_formed: str = "answers-well-formed"
    """The check of the form of an ordinary answer. Empty: it has a fault of its own."""


@dataclass(frozen=True)
class ServiceFault:
    """A service with a fault."""

    role: str
    check: str
    """The only check that fails."""
    change: Callable[[Contract], Contract]
    """Puts the fault into a sound service."""

    def __str__(self) -> str:
        return f"{self.role}-{self.check}"


def _own(response: Any) -> Provenance:
    found: Provenance = response.provenance
    return found


def _set(**fields: object) -> Callable[[Any], None]:
    """Sets fields of a response; those that are None are cleared."""

    def change(response: Any) -> None:
        for name, value in fields.items():
            if value is None:
                response.ClearField(name)
            else:
                setattr(response, name, value)

    return change


def _unary(role: str, method: str, malform: Callable[[Any], None], is_empty: Any) -> Sound:
    read = (lambda response: response.rating.provenance) if role == "rating-judge" else _own
    return Sound(OPEN[role], method, malform, is_empty, read)


def _rate_too_high(response: RateReplyResponse) -> None:
    response.rating.value = 11.0


def _no_texts(request: Any) -> bool:
    return list(request.texts) == ["", " \n\t"]


def _score_too_high(response: Any) -> None:
    response.scores[0].value = 1.5


def _double(response: Any) -> None:
    for one in response.embeddings:
        one.values[:] = [2 * value for value in one.values]


SOUND: Mapping[str, Sound] = {
    "pair-judge": _unary(
        "pair-judge", "ComparePair", _set(first_vote_share=0.5), lambda request: not request.first
    ),
    "rating-judge": _unary("rating-judge", "RateReply", _rate_too_high, lambda request: not request.response),
    "challenge-judge": _unary(
        "challenge-judge",
        "FindChallengingTurn",
        _set(turn=10_000),
        lambda request: not any(one.text for one in request.utterances),
    ),
    "synthesize": _unary(
        "synthesize",
        "Synthesize",
        _set(failure="There are steps."),
        lambda request: not any(one.script.steps for one in request.candidates),
    ),
    "edges": _unary(
        "edges",
        "PredictEdges",
        _set(method=None),
        lambda request: not any(one.text for one in request.events),
    ),
    "text-scorer": Sound(
        OPEN["text-scorer"],
        "ScoreTexts",
        _score_too_high,
        _no_texts,
        _own,
        well_formed="",
    ),
    "embedding": Sound(
        OPEN["embedding"],
        "Embed",
        _double,
        _no_texts,
        is_largest=lambda request: len(request.texts) == 4096,
        pad=lambda response: _set(weights_sha256="0" * (65 << 20))(response),
        well_formed="",
    ),
    "generation": Sound(
        OPEN["generation"],
        "Generate",
        lambda response: response.completion.ClearField("status"),
        lambda request: not request.messages[0].text,
        is_largest=lambda request: len(request.messages) == 1000,
        pad=lambda response: setattr(response.completion, "text", "So. " * 1_100_000),
        well_formed="",
    ),
}
"""A service for each role whose judges are not judges of texts."""


class _With:
    """A servicer with another method."""

    def __init__(self, servicer: Any, method: str, handle: Any) -> None:
        self._servicer = servicer
        setattr(self, method, handle)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._servicer, name)


def around(method: str, make: Callable[[], Around]) -> Callable[[Contract], Contract]:
    """A change of the answers of a method; its state begins with the service."""

    def change(contract: Contract) -> Contract:
        sound, wrapper = getattr(contract.servicer, method), make()

        async def handle(request: Any, context: Any) -> Any:
            return await wrapper(sound, request, context)

        return replace(contract, servicer=_With(contract.servicer, method, handle))

    return change


def _after(
    sound: Sound, condition: Callable[[Any], bool], alter: Callable[[Any], None]
) -> Callable[[Contract], Contract]:
    """A change of the responses to some requests."""

    async def wrapper(call: Call, request: Any, context: Any) -> Any:
        response = type(answer := await call(request, context))()
        response.CopyFrom(answer)
        if condition(request):
            alter(response)
        return response

    return around(sound.method, lambda: wrapper)


def _failure(message: str) -> ServiceError:
    return ServiceError(grpc.StatusCode.INTERNAL, ERROR_REASON_INTERNAL, message)


def _before(sound: Sound, condition: Callable[[Any, Any], bool]) -> Callable[[Contract], Contract]:
    """A refusal of some requests, with their context."""

    async def wrapper(call: Call, request: Any, context: Any) -> Any:
        if condition(request, context):
            raise _failure("cannot")
        return await call(request, context)

    return around(sound.method, lambda: wrapper)


def _identity_with(**fields: Any) -> Callable[[Contract], Contract]:
    def change(contract: Contract) -> Contract:
        changed = Identity()
        changed.CopyFrom(contract.identity)
        changed.MergeFrom(Identity(**fields))
        return replace(contract, identity=changed)

    return change


def _misnamed(sound: Sound) -> Callable[[Contract], Contract]:
    """A name in the wrong form, in the identity and in the provenance alike."""

    def rename(response: Any) -> None:
        if sound.provenance is not None:
            sound.provenance(response).name = "Fake Judge"

    signed, named = _after(sound, lambda _: True, rename), _identity_with(name="Fake Judge")
    return lambda contract: named(signed(contract))


def _not_serving(contract: Contract) -> Contract:
    contract.health.serving = False
    return contract


def _mixed(sound: Sound) -> Callable[[Contract], Contract]:
    """Answers to calls at once are not well formed."""

    def make() -> Around:
        calls = 0

        async def wrapper(call: Call, request: Any, context: Any) -> Any:
            nonlocal calls
            sent = request.SerializeToString()
            if b"Cup number" not in sent or b" of tea." in sent:
                return await call(request, context)
            calls += 1
            try:
                await asyncio.sleep(0.05)
                response = type(answer := await call(request, context))()
                response.CopyFrom(answer)
                if calls > 1:
                    sound.malform(response)
                return response
            finally:
                calls -= 1

        return wrapper

    return around(sound.method, make)


def _bluntly_busy(sound: Sound) -> Callable[[Contract], Contract]:
    def make() -> Around:
        limit = BluntLimit()

        async def wrapper(call: Call, request: Any, context: Any) -> Any:
            async with limit.call():
                return await call(request, context)

        return wrapper

    return around(sound.method, make)


def _leaky(sound: Sound) -> Callable[[Contract], Contract]:
    """After a large call that was cancelled no call is answered."""

    def make() -> Around:
        is_broken = False

        async def wrapper(call: Call, request: Any, context: Any) -> Any:
            nonlocal is_broken
            if is_broken:
                raise _failure("stuck")
            if sound.is_largest(request):
                try:
                    await asyncio.sleep(0.6)
                except asyncio.CancelledError:
                    is_broken = True
                    raise
            return await call(request, context)

        return wrapper

    return around(sound.method, make)


def _careless(sound: Sound) -> Callable[[Contract], Contract]:
    """Answers a request that breaks a limit like the one before it."""

    def change(contract: Contract) -> Contract:
        method = contract.descriptor.methods_by_name[sound.method]
        request_type, latest = GetMessageClass(method.input_type), b""

        def read(data: bytes) -> Any:
            nonlocal latest
            request = request_type.FromString(data)
            if violations(request):
                return request_type.FromString(latest)
            latest = data
            return request

        def add(servicer: Any, server: grpc.aio.Server) -> None:
            handler: Any = grpc.unary_unary_rpc_method_handler(
                getattr(servicer, sound.method),
                request_deserializer=read,
                response_serializer=lambda one: one.SerializeToString(),
            )
            handlers = {sound.method: handler}
            server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(contract.full_name, handlers),)
            )
            contract.add(servicer, server)

        return replace(contract, add=add)

    return change


def _impatient(sound: Sound) -> Callable[[Contract], Contract]:
    """Fails in place of a call whose deadline is near."""
    return _before(sound, lambda _, context: (context.time_remaining() or 60) < 1)


def _paid_back(response: Any, read: Callable[[Any], Provenance]) -> None:
    read(response).completions.add()
    read(response).usage.cost_usd = -5.0


def _has_high_plane(request: Any, _: Any) -> bool:
    return "\U0010f900".encode() in request.SerializeToString()


def _shared(role: str, sound: Sound) -> Sequence[ServiceFault]:
    """The faults of the requirements that contracts share."""
    changes = {
        "health": _not_serving,
        "says-who-it-is": _misnamed(sound),
        "answers-empty-input": _after(sound, sound.is_empty, sound.malform),
        "bears-every-plane": _before(sound, _has_high_plane),
        "answers-the-largest-input": _before(sound, lambda request, _: sound.is_largest(request)),
        "refuses-bad-requests": _careless(sound),
        "keeps-to-deadlines": _impatient(sound),
        "keeps-calls-apart": _mixed(sound),
        "sheds-load": _bluntly_busy(sound),
        "survives-cancellation": _leaky(sound),
    }
    pad, read = sound.pad, sound.provenance
    if read is not None:
        changes["says-where-answers-come-from"] = _after(
            sound, lambda _: True, lambda response: setattr(read(response), "version", "9.9.9")
        )
        changes["reports-possible-usage"] = _after(
            sound, lambda _: True, lambda response: _paid_back(response, read)
        )
        pad = pad or (lambda response: read(response).parameters.update(talk="So. " * 1_100_000))
    assert pad is not None
    changes["keeps-answers-small"] = _after(sound, sound.is_largest, pad)
    if sound.well_formed:
        changes[sound.well_formed] = _after(
            sound, lambda request: ORDINARY in request.SerializeToString(), sound.malform
        )
    return [ServiceFault(role, check, change) for check, change in changes.items()]


def _embedding(change: Callable[[Any, Any], None], *capabilities: str) -> Callable[[Contract], Contract]:
    return lambda _: embedding(change, *capabilities)


def _first_unscaled() -> Around:
    """The first answer is not normalised."""
    calls = 0

    async def wrapper(call: Call, request: Any, context: Any) -> Any:
        nonlocal calls
        response = await call(request, context)
        calls += 1
        if calls == 1:
            _double(response)
        return response

    return wrapper


def _vectors_of_the_latest() -> Around:
    """A call gets the vector of the call that came after it."""
    latest = ""

    async def wrapper(call: Call, request: Any, context: Any) -> Any:
        nonlocal latest
        if len(request.texts) == 1 and request.texts[0].endswith(" of tea."):
            latest = request.texts[0]
            await asyncio.sleep(0.05)
            request.texts[0] = latest
        return await call(request, context)

    return wrapper


async def _any_embedding_model(call: Call, request: Any, context: Any) -> Any:
    if request.model == UNKNOWN_EMBEDDING_MODEL:
        request.model = ""
    return await call(request, context)


def _relative(response: Any) -> None:
    for place, score in enumerate(response.scores):
        if not score.abstain_reason:
            score.value = place / len(response.scores)


def _generation_change(change: Callable[[Any], None]) -> Callable[[Contract], Contract]:
    def apply(contract: Contract) -> Contract:
        change(contract.servicer)
        return contract

    return apply


async def _deaf_to_repeats(call: Call, request: Any, context: Any) -> Any:
    request.repeat_index = 0
    return await call(request, context)


async def _no_providers(_: Call, request: Any, context: Any) -> Any:
    del request, context
    return generation.ListModelsResponse()


def _stuck_after_a_batch(servicer: Any) -> None:
    """The call after a batch that was cancelled fails."""
    generate, generate_batch, state = servicer.Generate, servicer.GenerateBatch, {"is_stuck": False}

    async def changed(request: Any, context: Any) -> Any:
        if state["is_stuck"]:
            state["is_stuck"] = False
            raise _failure("stuck")
        return await generate(request, context)

    async def changed_batch(request: Any, context: Any) -> AsyncIterator[Any]:
        is_watched = any(b"Spoon" in one.SerializeToString() for one in request.requests)
        responses = [one async for one in generate_batch(request, context)]
        state["is_stuck"] = is_watched
        for one in responses:
            yield one
            await asyncio.sleep(0.05 if is_watched else 0)
        state["is_stuck"] = False

    servicer.Generate, servicer.GenerateBatch = changed, changed_batch


def _asks(text: str) -> Callable[[Any], bool]:
    return lambda request: [one.text for one in request.messages] == [text]


_GENERATE = test_generation._generate
_BATCH = test_generation._batch

_OWN: Mapping[str, Mapping[str, Callable[[Contract], Contract]]] = {
    "text-scorer": {
        "scores-every-text": _after(SOUND["text-scorer"], lambda _: True, _set(attribute="loudness")),
        "scores-each-text-by-itself": _after(SOUND["text-scorer"], lambda _: True, _relative),
    },
    "embedding": {
        "answers-well-formed": around("Embed", _first_unscaled),
        "keeps-its-model": _embedding(test_embedding.other_weights),
        "embeds-each-text-by-itself": _embedding(test_embedding.by_company),
        "tells-texts-apart": _embedding(test_embedding.constant),
        "keeps-vectors-apart": around("Embed", _vectors_of_the_latest),
        "marks-truncated-texts": _embedding(test_embedding.cut_silently),
        "refuses-unknown-models": around("Embed", lambda: _any_embedding_model),
        "embeds-tokens": _embedding(lambda *_: None, "tokens"),
    },
    "generation": {
        "answers-well-formed": _after(
            SOUND["generation"], _asks("Name a drink in one word."), SOUND["generation"].malform
        ),
        "keeps-to-the-schema": _generation_change(_GENERATE(test_generation.bad_json)),
        "reports-possible-usage": _generation_change(_GENERATE(test_generation.added_tokens)),
        "addresses-by-content": around("Generate", lambda: _deaf_to_repeats),
        "buys-once": _generation_change(_GENERATE(test_generation.paid_again)),
        "answers-each-of-a-batch": _generation_change(_BATCH(test_generation.exchanged)),
        "keeps-requests-apart": _generation_change(_BATCH(test_generation.refused_as_a_whole)),
        "refuses-unknown-models": _generation_change(test_generation.any_model),
        "tells-its-configuration": around("ListModels", lambda: _no_providers),
        "survives-cancelled-batches": _generation_change(_stuck_after_a_batch),
    },
}
"""The faults of the requirements that one contract has."""


FAULTS: Sequence[ServiceFault] = [
    fault
    for role, sound in SOUND.items()
    for fault in (
        *_shared(role, sound),
        *(ServiceFault(role, check, change) for check, change in _OWN.get(role, {}).items()),
    )
]
"""A fault for each check of each contract, except of the drain: the program of ``services`` has its fault."""
