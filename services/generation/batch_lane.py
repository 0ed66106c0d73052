"""Calls that wait for batches of their providers, and the task that sends and collects the batches.

A call that may wait is recorded in the ledger and fails with ``BatchPendingError``; asked again, it finds the
answer. Every process with the provider sends and collects. A batch is recorded before it is sent: if the
process dies in between, the batch is looked for at the provider. At the deadline a batch is cancelled, and
what it did not answer is called live.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

from pydantic_core import to_json

from services.generation.calls import (
    Answer,
    BatchPendingError,
    Call,
    DeadlinePassedError,
    FailureKind,
    NotRecordedError,
    ProviderError,
    Purchase,
    Until,
)
from services.generation.ledger import Ledger, LedgerUnavailableError
from services.generation.providers.base import BatchProvider, Reading
from services.generation.records import (
    batch_answer_from_text,
    batch_answer_to_text,
    call_from_text,
    call_to_text,
    fingerprint,
)
from services.generation.registry import ConfiguredProvider
from services.generation.settings import BatchSettings

if TYPE_CHECKING:  # loads SQLAlchemy
    from services.generation.ledger.batches import Batch, Group

CANCEL_SECONDS = 900.0
"""How long a call waits beyond its deadline for the answers of a cancelled batch. OpenAI states that a
cancellation takes up to ten minutes."""
KEPT_SECONDS = 86_400.0
"""How long requests without use are kept after their deadline."""
UNREAD_SECONDS = 30 * 86_400.0
"""How long answers that no call asked for are kept after the deadline."""
LIVE_SECONDS = 600.0
"""The longest that the first call of a kind takes, which is made live."""
_MISSES = 2
"""How often a batch is looked for in vain before it counts as not sent."""
_AFTER_FAILURE = frozenset({FailureKind.RATE_LIMITED, FailureKind.TRANSIENT})

logger = logging.getLogger(__name__)


class BatchLane:
    """The calls that wait for batches.

    Args:
        ledger: Where they are recorded.
        providers: The providers.
        settings: When batches are sent and looked at.
    """

    def __init__(
        self, ledger: Ledger, providers: Sequence[ConfiguredProvider], settings: BatchSettings
    ) -> None:
        self._ledger = ledger
        self._settings = settings
        self._providers = {
            (one.provider.name, one.provider.address): one for one in providers if one.batches is not None
        }
        self._is_used = False
        """Whether the ledger may have requests."""
        self._sending: set[str] = set()
        """The batches that this process is sending."""

    async def answer(self, configured: ConfiguredProvider, call: Call, *, may_wait: bool) -> Answer | None:
        """The answer of a batch to a call. None: the call is to be made live.

        Args:
            configured: The provider.
            call: The call.
            may_wait: Whether it may wait for a batch until ``call.batch_until``.

        Raises:
            BatchPendingError: The call waits.
            LedgerUnavailableError: The store fails.
        """
        may_wait = may_wait and configured.batches is not None
        if not may_wait and not self._is_used:
            return None
        from services.generation.ledger.batches import RequestState

        key = fingerprint(call, configured.provider.address)
        found = await self._ledger.find_batch_request(key)
        if found is not None and found.answer:
            answer = batch_answer_from_text(found.answer)
            answer.replayed = found.state is RequestState.TOLD
            return answer
        if not may_wait or (found is not None and found.state is RequestState.LIVE):
            return None
        assert call.batch_until is not None
        left = call.batch_until - time.time()
        if left > 0:
            await self._wait(configured, call, key)
            raise self._pending(configured)
        if found is not None:
            await self._end_wait(configured, key, left)
        return None

    async def _end_wait(self, configured: ConfiguredProvider, key: str, left: float) -> None:
        """Has a recorded call whose deadline has passed made live.

        Raises:
            BatchPendingError: It waits on for the answers of its batch.
        """
        from services.generation.ledger.batches import RequestState

        if await self._ledger.batch(lambda store: store.release(key, RequestState.WAITING)):
            return
        if left > -CANCEL_SECONDS:
            raise self._pending(configured)
        # Its batch may still answer and be charged.
        self._ledger.abandon([await self._ledger.record_call(key)])
        await self._ledger.batch(lambda store: store.release(key, RequestState.SENT))

    async def _wait(self, configured: ConfiguredProvider, call: Call, key: str) -> None:
        from services.generation.ledger.batches import WaitingRequest

        assert call.batch_until is not None
        provider = configured.provider
        self._is_used = True
        await self._ledger.wait_for_batch(
            WaitingRequest(
                key,
                provider.name,
                provider.address,
                call.model,
                call_to_text(call),
                time.time(),
                call.batch_until,
            )
        )

    def _pending(self, configured: ConfiguredProvider) -> BatchPendingError:
        return BatchPendingError(configured.provider.name, self._settings.poll_seconds)

    async def tell(self, configured: ConfiguredProvider, call: Call, purchases: Sequence[Purchase]) -> None:
        """Records answers of no use, so that a sample that waits for other calls buys none of them again."""
        from services.generation.ledger.batches import RequestState, WaitingRequest

        self._is_used = True
        now = time.time()
        provider = configured.provider
        told = [
            WaitingRequest(
                one.fingerprint,
                provider.name,
                provider.address,
                one.requested_model,
                "",
                now,
                call.batch_until or now,
                RequestState.TOLD,
                batch_answer_to_text(one.answer),
            )
            for one in purchases
        ]
        try:
            await self._ledger.note_told(told)
        except LedgerUnavailableError:
            logger.exception("answers could not be recorded; the same requests may be charged again")

    @asynccontextmanager
    async def collecting(self) -> AsyncIterator[None]:
        """Sends and collects batches within an ``async with`` block."""
        await self._look_for_requests()
        task = asyncio.create_task(self._collect())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _look_for_requests(self) -> None:
        self._is_used = await self._ledger.batch(lambda store: store.is_used())

    async def _collect(self) -> None:
        while True:
            await asyncio.sleep(self._settings.poll_seconds)
            try:
                # Another process may record requests.
                await self._look_for_requests()
                if self._is_used:
                    await self._turn()
            except LedgerUnavailableError as error:
                logger.warning("batches wait for the ledger: %s", error)
            except Exception:
                logger.exception("batches cannot be collected")

    async def _turn(self) -> None:
        now, seconds = time.time(), self._settings.poll_seconds
        providers = frozenset(self._providers)
        # Half of the time: a look that came late moves no other.
        for batch in await self._ledger.batch(lambda store: store.due(providers, now, seconds / 2)):
            await self._guarded(batch.provider, self._look_at(batch))
        gather = self._settings.gather_seconds
        for group in await self._ledger.batch(lambda store: store.ready(now, gather)):
            if (group.provider, group.address) in self._providers:
                await self._guarded(group.provider, self._send(group, now))
        await self._ledger.batch(lambda store: store.purge(now - KEPT_SECONDS, now - UNREAD_SECONDS))

    async def _guarded(self, provider: str, work: object) -> None:
        try:
            await work  # type: ignore[misc]
        except (ProviderError, DeadlinePassedError, NotRecordedError) as error:
            logger.warning("batches of provider %s: %s", provider, error)

    async def _look_at(self, batch: Batch) -> None:
        """Collects a batch that has ended, and cancels one whose deadline has passed."""
        from services.generation.ledger.batches import RequestState

        provider = self._batches(batch.provider, batch.address)
        remote = batch.remote or await self._find(batch, provider)
        if not remote:
            return
        stored = await self._ledger.batch(lambda store: store.readings(batch.id))
        readings = {
            key: Reading(tuple(how.get("omitted", ())), tuple(how.get("stop", ())))
            for key, how in stored.items()
        }
        answers = await provider.collect(remote, readings)
        if answers is not None:
            texts = {key: batch_answer_to_text(answer) for key, answer in answers.items()}
            await self._ledger.batch(lambda store: store.answer(batch.id, texts))
            await self._ledger.batch(lambda store: store.end(batch.id, RequestState.LIVE))
            logger.info("a batch of provider %s answered %d of %d", batch.provider, len(texts), len(readings))
        elif time.time() >= batch.deadline and not batch.cancelled:
            await provider.cancel(remote)
            await self._ledger.batch(lambda store: store.cancelled(batch.id))

    async def _find(self, batch: Batch, provider: BatchProvider) -> str:
        """The provider's id of a batch whose sender may have died before it had the id. Empty: not found."""
        from services.generation.ledger.batches import RequestState

        is_mine = batch.process == self._ledger.process_id
        if batch.id in self._sending or (not is_mine and not await self._ledger.is_dead(batch.process)):
            return ""
        requests = await self._ledger.batch(lambda store: store.readings(batch.id))
        remote = await provider.find(batch.id, batch.created_at, len(requests))
        if remote is None:
            return ""
        if remote:
            await self._ledger.batch(lambda store: store.sent(batch.id, remote))
        elif batch.misses + 1 < _MISSES:
            await self._ledger.batch(lambda store: store.missed(batch.id))
        else:
            await self._ledger.batch(lambda store: store.end(batch.id, RequestState.WAITING))
        return remote

    async def _send(self, group: Group, now: float) -> None:
        """Sends the requests of a group that are ready, as one batch."""
        from services.generation.ledger.batches import RequestState

        settings, provider = self._settings, self._batches(group.provider, group.address)
        ready = await self._ledger.batch(
            lambda store: store.peek(group, now, settings.gather_seconds, settings.max_requests)
        )
        calls = {key: call_from_text(text) for key, text in ready}
        answered = await self._make_first_calls(group, provider, calls)
        requests: dict[str, object] = {}
        readings: dict[str, str] = {}
        size = 0
        for key, call in calls.items():
            if key in answered:
                continue
            try:
                request, reading = provider.request(call)
            except (ValueError, TypeError):  # its call, made live, tells why
                await self._ledger.batch(lambda store, key=key: store.release(key, RequestState.WAITING))  # type: ignore[misc]
                continue
            size += len(to_json(request))
            if size > provider.most_bytes and requests:
                break
            requests[key] = request
            readings[key] = json.dumps(asdict(reading))
        if requests:
            await self._submit(group, provider, requests, readings)

    async def _make_first_calls(
        self, group: Group, provider: BatchProvider, calls: Mapping[str, Call]
    ) -> frozenset[str]:
        """Makes the first call of each kind live, so that a batch has no parameter that the model refuses.

        Returns:
            The keys of the calls that were made.

        Raises:
            ProviderError: The provider does not answer now.
        """
        made = set()
        for key, call in calls.items():
            if not provider.knows(call):
                made.add(key)
                await self._make_first_call(group, key, call)
        return frozenset(made)

    async def _make_first_call(self, group: Group, key: str, call: Call) -> None:
        """Makes a call live and records its answer, as a batch of one request: one process makes it."""
        from services.generation.ledger.batches import RequestState

        batch = self._new_batch(group)
        self._sending.add(batch.id)
        try:
            claimed = await self._ledger.batch(lambda store: store.claim(batch, {key: "{}"}))
            state = RequestState.WAITING
            try:
                if claimed:
                    answer = await self._providers[group.provider, group.address].provider.complete(
                        call, Until(LIVE_SECONDS)
                    )
                    text = batch_answer_to_text(answer)
                    await self._ledger.batch(lambda store: store.answer(batch.id, {key: text}))
                    if answer.call_number is not None:
                        self._ledger.settle([answer.call_number])
            except ProviderError as error:
                if error.kind in _AFTER_FAILURE:
                    raise
                state = RequestState.LIVE  # its caller is told when it makes the call
            finally:
                await self._ledger.batch(lambda store: store.end(batch.id, state))
        finally:
            self._sending.discard(batch.id)

    def _new_batch(self, group: Group) -> Batch:
        from services.generation.ledger.batches import Batch

        process = self._ledger.process_id
        return Batch(
            uuid.uuid4().hex,
            process,
            group.provider,
            group.address,
            "",
            group.deadline,
            time.time(),
            0,
            False,
        )

    async def _submit(
        self,
        group: Group,
        provider: BatchProvider,
        requests: Mapping[str, object],
        readings: Mapping[str, str],
    ) -> None:
        from services.generation.ledger.batches import Batch, RequestState

        process = self._ledger.process_id
        batch = Batch(
            uuid.uuid4().hex,
            process,
            group.provider,
            group.address,
            "",
            group.deadline,
            time.time(),
            0,
            False,
        )
        self._sending.add(batch.id)
        try:
            claimed = await self._ledger.batch(lambda store: store.claim(batch, readings))
            if not claimed:
                await self._ledger.batch(lambda store: store.end(batch.id, RequestState.WAITING))
                return
            try:
                remote = await provider.submit(batch.id, {key: requests[key] for key in claimed})
            except ProviderError as error:
                if not error.settled:
                    raise  # it may have arrived: it is looked for
                passes = error.kind in _AFTER_FAILURE
                state = RequestState.WAITING if passes else RequestState.LIVE
                await self._ledger.batch(lambda store: store.end(batch.id, state))
                raise
            await self._ledger.batch(lambda store: store.sent(batch.id, remote))
        finally:
            self._sending.discard(batch.id)
        logger.info("a batch of %d calls was sent to provider %s", len(claimed), group.provider)

    def _batches(self, provider: str, address: str) -> BatchProvider:
        batches = self._providers[provider, address].batches
        assert batches is not None
        return batches
