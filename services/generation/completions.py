"""Completes a request from the ledger or by calls to a provider.

An unusable answer leads to one further request. After a truncated answer it has a doubled token cap, after an
empty answer it is unchanged, and after an answer that does not fit its form it describes the error. The
completion lists every call. Only usable completions are stored.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum, auto

from dramaturg.judge import text_pool
from dramaturg.service.auth import caller
from services.generation.calls import (
    Call,
    Completion,
    Purchase,
    Status,
)
from services.generation.deadlines import Deadline
from services.generation.errors import DeadlinePassedError, ProviderError
from services.generation.fingerprints import fingerprint
from services.generation.ledger import Ledger, LedgerUnavailableError
from services.generation.metrics import (
    COMPLETIONS,
    LEDGER_FAILURES,
    LEDGER_SECONDS,
    count_purchase,
)
from services.generation.outcomes import FINAL, Remedies, read_outcome
from services.generation.purchases import bought
from services.generation.records import call_numbers
from services.generation.registry import ConfiguredProvider, Registry
from services.generation.single_flight import SingleFlight

logger = logging.getLogger(__name__)


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
        """
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
            return self._settled(await self._buy(configured, call, deadline))
        key = fingerprint(call, configured.provider.address)
        if policy is CachePolicy.REFRESH:
            return await self._buy_and_keep(configured, call, deadline, key)
        kept = None if configured.provider.keeps else await self._kept(call, key)
        if kept is not None:
            return _counted(kept)
        completion, begun = await self._flights.join(
            f"{configured.provider.name}/{key}",
            deadline,
            lambda shared: self._buy_and_keep(configured, call, shared, key),
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
        self, configured: ConfiguredProvider, call: Call, deadline: Deadline, key: str
    ) -> Completion:
        completion = await self._buy(configured, call, deadline)
        if configured.provider.keeps:
            return self._settled(completion)
        stored = completion.status is Status.OK and await self._store(key, completion.purchases)
        unstored = [
            purchase for purchase in completion.purchases if not stored or purchase.fingerprint != key
        ]
        if unstored:
            self._ledger.mark_unstored(call_numbers(unstored))
        return completion

    async def _store(self, key: str, purchases: Sequence[Purchase]) -> bool:
        begun = time.perf_counter()
        try:
            await self._ledger.put(key, purchases)
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

    async def _buy(self, configured: ConfiguredProvider, call: Call, deadline: Deadline) -> Completion:
        purchases: list[Purchase] = []
        try:
            return await self._ask(configured, call, deadline, purchases)
        except BaseException:
            # The calls are charged and unusable without the failed request; a repeat is charged again.
            self._ledger.abandon(call_numbers(purchases))
            raise

    async def _ask(
        self, configured: ConfiguredProvider, call: Call, deadline: Deadline, purchases: list[Purchase]
    ) -> Completion:
        provider = configured.provider
        tried: set[Status] = set()
        ask = call
        while True:
            try:
                answer = await provider.complete(ask, deadline)
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
    return await text_pool.parse(len(purchases[-1].answer.text), read_outcome, purchases, call)


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
