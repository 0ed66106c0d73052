"""Completes a request from the ledger or by calls to a provider.

An unusable answer leads to one further request. After a truncated answer it has a doubled token cap, after an
empty answer it is unchanged, and after an answer that does not fit its form it describes the error. The
completion lists every call. Only usable completions are stored.

Equal work that is asked for at the same time is done once (single flight).

A call costs what its provider states, else an upper bound of its tokens. Byte-level tokenizers make at most
one token of a byte (Radford et al. 2019, section 2.2), so that the bytes of a text bound its tokens without
the tokenizer of the model. Reasoning that a provider does not show is not included.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, Generic, TypeVar

from dramaturg.judge.refusals import is_refusal
from dramaturg.service import threads
from dramaturg.service.auth import caller
from services.generation.answers.reader import parse_answer
from services.generation.batch_lane import BatchLane
from services.generation.calls import (
    Answer,
    Call,
    Completion,
    Deadline,
    DeadlinePassedError,
    FinishReason,
    Message,
    ProviderError,
    Purchase,
    Role,
    Status,
    TokenCounts,
    UsageEstimate,
    latest,
    timeout,
)
from services.generation.ledger import Ledger, LedgerUnavailableError
from services.generation.metrics import (
    COMPLETIONS,
    LEDGER_FAILURES,
    LEDGER_SECONDS,
    count_purchase,
)
from services.generation.pricing import PriceTable
from services.generation.records import call_numbers, fingerprint
from services.generation.registry import ConfiguredProvider, Registry

FINAL = frozenset({Status.OK, Status.REFUSED, Status.FILTERED, Status.TOOL_CALL, Status.INTERRUPTED})
"""The statuses that no further request changes."""
ROOM_TO_ANSWER = 1024
"""The least tokens that a raised cap leaves for the answer, besides those that the reasoning took."""
LARGEST_CAP = 1_000_000

_STATUSES = {
    FinishReason.REFUSAL: Status.REFUSED,
    FinishReason.FILTER: Status.FILTERED,
    FinishReason.LENGTH: Status.TRUNCATED,
    FinishReason.TOOL_CALL: Status.TOOL_CALL,
    FinishReason.INTERRUPTED: Status.INTERRUPTED,
}


@dataclass(frozen=True, slots=True)
class Remedies:
    """The request that follows an answer of no use: one of its kind for each status that is not final.

    Attributes:
        repair_request: Makes the text of the repair request from the description of the error.
        doubled_default: The least cap with which an answer is requested again that was cut off although the
            request set no cap.
    """

    repair_request: Callable[[str], str]
    doubled_default: int

    def ask_again(self, call: Call, completion: Completion) -> Call:
        """The request that follows ``completion``."""
        answer = completion.answer
        if completion.status is Status.EMPTY:
            return replace(call, ask_index=call.ask_index + 1)
        if completion.status is Status.TRUNCATED:
            sampling = replace(call.sampling, max_output_tokens=self._raised_cap(call, answer))
            return replace(call, sampling=sampling)
        repair = Message(Role.USER, self.repair_request(completion.parse_error))
        return replace(call, messages=(*call.messages, Message(Role.ASSISTANT, answer.text), repair))

    def _raised_cap(self, call: Call, answer: Answer) -> int:
        asked = call.sampling.max_output_tokens or 0
        used = answer.counts.completion if answer.counts else 0
        least = 0 if asked else self.doubled_default
        return min(LARGEST_CAP, max(2 * asked, 2 * used, least, _reasoning_tokens(answer) + ROOM_TO_ANSWER))


def read_outcome(purchases: Sequence[Purchase], call: Call) -> Completion:
    """The outcome of the last answer."""
    answer = purchases[-1].answer
    again = ("asked-again",) if len(purchases) > 1 else ()
    status = _status(answer)
    if status is not Status.OK or call.json_form is None:
        detail = "" if status is Status.OK else _detail(status, answer)
        return Completion(status, tuple(purchases), repairs=again, detail=detail)
    parsed = parse_answer(answer.text, call.json_form, is_last=len(purchases) > 1)
    # A first refusal is requested again like every answer without JSON.
    if parsed.json is None and len(purchases) > 1 and is_refusal(answer.text):
        return Completion(Status.REFUSED, tuple(purchases), repairs=again, detail=answer.text.strip())
    return Completion(
        Status.OK if parsed.json is not None else Status.UNPARSABLE,
        tuple(purchases),
        json=parsed.json,
        repairs=again + parsed.repairs,
        parse_error=parsed.error,
        detail=parsed.error,
    )


def _status(answer: Answer) -> Status:
    status = _STATUSES.get(answer.finish)
    if status is not None:
        return status
    return Status.OK if answer.text.strip() else Status.EMPTY


def _detail(status: Status, answer: Answer) -> str:
    if status is Status.TRUNCATED:
        return _truncation(answer)
    if status is Status.EMPTY and answer.reasoning:
        return "the model wrote reasoning and no answer"
    return answer.detail or answer.refusal


def _truncation(answer: Answer) -> str:
    counts = answer.counts
    length = f"after {counts.completion} tokens" if counts else "by the token cap"
    reasoning = _reasoning_tokens(answer)
    if not reasoning:
        return f"cut off {length}"
    if answer.text.strip():
        return f"cut off {length}, {reasoning} of them reasoning"
    return f"reasoning used up the token cap: cut off {length} before the answer; raise max_output_tokens"


def _reasoning_tokens(answer: Answer) -> int:
    """The number of reasoning tokens: as counted, else estimated at three characters per token."""
    counted = answer.counts.reasoning if answer.counts else 0
    return counted or len(answer.reasoning) // 3


MESSAGE_TOKENS = 16
"""The tokens that the template of a chat adds to a message, at most."""
IMAGE_TOKENS = 40_000
"""The tokens of an image, at most."""
T = TypeVar("T")
_GRACE = 0.02  # seconds in which the work itself may say why it failed, before a waiter gives up on it
logger = logging.getLogger(__name__)


def bought(configured: ConfiguredProvider, call: Call, answer: Answer) -> Purchase:
    """The purchase of an answer. The provider is noted to state token counts, or not to."""
    if not answer.replayed:
        configured.states_usage[call.model] = answer.counts is not None
    return Purchase(
        fingerprint(call, configured.provider.address),
        configured.provider.name,
        call.model,
        answer,
        cached=answer.replayed,
        cost=0.0 if answer.replayed else configured.prices.cost(call.model, answer),
        estimate=None if answer.replayed else estimate_usage(call, answer, configured.prices),
    )


def estimate_usage(call: Call, answer: Answer, prices: PriceTable) -> UsageEstimate | None:
    """The estimated usage of a call. None: the answer states it."""
    if answer.counts is not None:
        return None
    schema = "" if call.json_form is None else call.json_form.text
    prompt = _bytes(schema) + sum(
        _bytes(message.texts) + MESSAGE_TOKENS + IMAGE_TOKENS * len(message.images)
        for message in call.messages
    )
    completion = MESSAGE_TOKENS + sum(map(_bytes, (answer.text, answer.refusal, answer.reasoning)))
    counts = TokenCounts(prompt, completion)
    return UsageEstimate(prompt + completion, prices.cost(call.model, answer, counts))


def _bytes(text: str) -> int:
    return len(text.encode(errors="replace"))


class _SharedWork(Generic[T]):
    """Work in progress, and its waiters. As a deadline: the last of the waiters'."""

    def __init__(self) -> None:
        self.waiters: dict[asyncio.Future[T], Deadline] = {}
        self.failure: Exception | None = None
        self.task: asyncio.Task[T]

    def remaining(self) -> float:
        return latest(self.waiters.values())

    def land(self) -> None:
        """Gives all waiters the outcome of the work."""
        error = None if self.task.cancelled() else self.task.exception()
        for waiter in self.waiters:
            if waiter.done():
                continue
            if self.task.cancelled():
                waiter.cancel()
            elif error is not None:
                _fail(waiter, error)
            else:
                waiter.set_result(self.task.result())


class SingleFlight(Generic[T]):
    """Work by key. It continues while any caller waits for it.

    A waiter that is cancelled, or whose deadline passes, leaves the others the work that was begun; with
    the last waiter the work is cancelled. An outcome is given to those who wait for it and then forgotten.
    """

    def __init__(self) -> None:
        self._under_way: dict[str, _SharedWork[T]] = {}

    async def join(
        self, key: str, deadline: Deadline, work: Callable[[Deadline], Coroutine[Any, Any, T]]
    ) -> tuple[T, bool]:
        """Waits for the work of ``key``, which is begun if it is not in progress.

        Returns:
            The outcome, and whether it was begun for this caller.

        Raises:
            DeadlinePassedError: The caller's deadline passed before the work ended or failed once.
            Exception: The work's error, or at the caller's deadline its latest failure.
        """
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[T] = loop.create_future()
        flight = self._under_way.get(key)
        begun = flight is None
        if flight is None:
            flight = self._begin(key, waiter, deadline, work)
        else:
            flight.waiters[waiter] = deadline
        limit = timeout(deadline)
        timer = None if limit is None else loop.call_later(limit + _GRACE, _give_up, waiter, flight)
        try:
            return await waiter, begun
        finally:
            if timer is not None:
                timer.cancel()
            self._leave(key, flight, waiter)

    def _begin(
        self,
        key: str,
        waiter: asyncio.Future[T],
        deadline: Deadline,
        work: Callable[[Deadline], Coroutine[Any, Any, T]],
    ) -> _SharedWork[T]:
        flight: _SharedWork[T] = _SharedWork()
        self._under_way[key] = flight
        flight.waiters[waiter] = deadline

        def landed(task: asyncio.Task[T]) -> None:
            del task
            self._forget(key, flight)
            flight.land()

        flight.task = asyncio.create_task(work(flight))
        flight.task.add_done_callback(landed)
        return flight

    def _leave(self, key: str, flight: _SharedWork[T], waiter: asyncio.Future[T]) -> None:
        del flight.waiters[waiter]
        if not flight.waiters and not flight.task.done():
            self._forget(key, flight)
            flight.task.cancel()

    def _forget(self, key: str, flight: _SharedWork[T]) -> None:
        if self._under_way.get(key) is flight:
            del self._under_way[key]


def _give_up(waiter: asyncio.Future[T], work: _SharedWork[T]) -> None:
    if not waiter.done():
        _fail(waiter, work.failure or DeadlinePassedError("no answer before the deadline"))


def _fail(waiter: asyncio.Future[T], error: BaseException) -> None:
    waiter.set_exception(error)
    waiter.exception()  # seen, also where the waiter leaves in the same moment


class CachePolicy(Enum):
    """How the ledger is used."""

    USE = auto()
    """Read stored completions and store new ones."""
    REFRESH = auto()
    """Ignore stored completions, and replace them by the new one."""
    BYPASS = auto()
    """Neither read nor store."""


class Completer:
    """Completes requests."""

    def __init__(
        self,
        registry: Registry,
        ledger: Ledger,
        repair_request: Callable[[str], str],
        doubled_default: int = 8192,
        *,
        shared: bool = False,
        lane: BatchLane | None = None,
    ) -> None:
        """Makes a completer.

        Args:
            registry: The providers.
            ledger: The stored completions.
            repair_request: Makes the text of the request to repair an answer from the description of its
                error.
            doubled_default: The token cap of the second request after a truncated answer, where the first
                request set no cap and the provider counted no tokens.
            shared: Whether tenants share completions.
            lane: The calls that wait for batches. None: there are none.
        """
        self._lane = lane
        self._registry = registry
        self._ledger = ledger
        self._flights: SingleFlight[Completion] = SingleFlight()
        self._remedies = Remedies(repair_request, doubled_default)
        self._shared = shared

    async def complete(
        self, call: Call, deadline: Deadline, policy: CachePolicy = CachePolicy.USE
    ) -> Completion:
        """Completes ``call``, whose model is "provider/model", for the current tenant.

        Raises:
            ModelUnknownError: No model can be chosen.
            ProviderError, NotRecordedError: The provider gave no answer.
            DeadlinePassedError: The deadline passed.
        """
        configured, model = self._registry.resolve(call.model)
        call = call.bought_for("" if self._shared else caller.current().tenant, model)
        completion = await self._complete(configured, call, deadline, policy)
        COMPLETIONS.add(configured.provider.name, completion.status.value)
        return completion

    async def _complete(
        self, configured: ConfiguredProvider, call: Call, deadline: Deadline, policy: CachePolicy
    ) -> Completion:
        if policy is CachePolicy.BYPASS:
            return self._settled(await self._buy(configured, call, deadline, None))
        key = fingerprint(call, configured.provider.address)
        if policy is CachePolicy.REFRESH:
            return await self._buy_and_keep(configured, call, deadline, key, None)
        kept = None if configured.provider.keeps else await self._kept(call, key)
        if kept is not None:
            return _counted(kept)
        # A call that is made live shares nothing with one that waits.
        waits = "" if call.batch_until is None else "batch/"
        completion, begun = await self._flights.join(
            f"{waits}{configured.provider.name}/{key}",
            deadline,
            lambda shared: self._buy_and_keep(configured, call, shared, key, self._lane),
        )
        return completion if begun else _counted(_at_no_cost(completion))

    async def _kept(self, call: Call, key: str) -> Completion | None:
        try:
            purchases = await self._ledger.get(key)
        except LedgerUnavailableError:
            LEDGER_FAILURES.add("read")
            raise
        completion = await _read(purchases, call) if purchases else None
        return completion if completion is not None and completion.status is Status.OK else None

    async def _buy_and_keep(
        self,
        configured: ConfiguredProvider,
        call: Call,
        deadline: Deadline,
        key: str,
        lane: BatchLane | None,
    ) -> Completion:
        completion = await self._buy(configured, call, deadline, lane)
        if configured.provider.keeps:
            return self._settled(completion)
        # What a batch answered, and in the lane every answer, is recorded with the requests of batches.
        requests = [one for one in completion.purchases if one.answer.batched or call.batch_until is not None]
        fingerprints = [one.fingerprint for one in requests]
        stored = completion.status is Status.OK and await self._store(key, completion.purchases, fingerprints)
        if requests and not stored and lane is not None:
            await lane.tell(configured, call, requests)
        unstored = [
            purchase for purchase in completion.purchases if not stored or purchase.fingerprint != key
        ]
        if unstored:
            self._ledger.mark_unstored(call_numbers(unstored))
        return completion

    async def _store(self, key: str, purchases: Sequence[Purchase], batch_requests: Sequence[str]) -> bool:
        begun = time.perf_counter()
        try:
            await self._ledger.put(key, purchases, batch_requests)
        except OSError:
            LEDGER_FAILURES.add("put")
            # The answer is paid for and usable, so the caller receives it. The log reports the disk.
            logger.exception("a completion could not be stored; the same request may be charged again")
            return False
        except BaseException:
            self._ledger.abandon(call_numbers(purchases))
            raise
        finally:
            LEDGER_SECONDS.observe(time.perf_counter() - begun, "put")
        return True

    def _settled(self, completion: Completion) -> Completion:
        self._ledger.settle(call_numbers(completion.purchases))
        return completion

    async def _buy(
        self, configured: ConfiguredProvider, call: Call, deadline: Deadline, lane: BatchLane | None
    ) -> Completion:
        purchases: list[Purchase] = []
        try:
            return await self._ask(configured, call, deadline, purchases, lane)
        except BaseException:
            # The calls are charged and unusable without the failed request; a repeat is charged again.
            self._ledger.abandon(call_numbers(purchases))
            raise

    async def _ask(
        self,
        configured: ConfiguredProvider,
        call: Call,
        deadline: Deadline,
        purchases: list[Purchase],
        lane: BatchLane | None,
    ) -> Completion:
        provider = configured.provider
        tried: set[Status] = set()
        ask = call
        may_wait = call.batch_until is not None
        while True:
            try:
                answer = None
                if lane is not None:
                    answer = await lane.answer(configured, ask, may_wait=may_wait)
                if answer is None:
                    answer = await provider.complete(ask, deadline)
                    may_wait = False  # what was paid for waits for no batch
            except (ProviderError, DeadlinePassedError, LedgerUnavailableError) as fault:
                if not purchases:
                    raise
                # Return the first answer, so that its cost reaches the caller.
                # Not its words: they may quote the request.
                logger.info("the request for a better answer failed: %s", type(fault).__name__)
                return await _read(purchases, call)
            purchases.append(bought(configured, ask, answer))
            count_purchase(purchases[-1])
            completion = await _read(purchases, call)
            if completion.status in tried or completion.status in FINAL:
                return completion
            tried.add(completion.status)
            ask = self._remedies.ask_again(ask, completion)


async def _read(purchases: Sequence[Purchase], call: Call) -> Completion:
    return await threads.parse(len(purchases[-1].answer.text), read_outcome, purchases, call)


def _counted(completion: Completion) -> Completion:
    for purchase in completion.purchases:
        count_purchase(purchase)
    return completion


def _at_no_cost(completion: Completion) -> Completion:
    """The completion for callers that waited for a call made by another caller: no cost."""
    purchases = tuple(
        replace(purchase, cached=True, cost=0.0, answer=replace(purchase.answer, retried=0))
        for purchase in completion.purchases
    )
    return replace(completion, purchases=purchases)
