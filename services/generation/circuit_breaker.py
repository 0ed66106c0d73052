"""A circuit breaker for models that only fail."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import TypeVar

from services.generation.errors import FailureKind, ProviderError

Key = TypeVar("Key")
Value = TypeVar("Value")

PROOF_SECONDS = 5.0
"""A model without a failure for this time counts as working."""
MAX_ENTRIES = 10_000
"""The number of models, and of circuits, that are remembered; the least recent is forgotten first."""


@dataclass(slots=True)
class _Circuit:
    """The failures in a row of one tenant's calls to one model."""

    failures: int = 0
    failed_at: float = -math.inf
    words: str = ""
    """The last failure. It may quote a request of the tenant, so no other tenant is shown it."""
    wait: float = 0.0
    closed_until: float = -math.inf
    is_open: bool = False


class CircuitBreaker:
    """Stops a tenant's calls to a model of a provider that only fails; single calls then probe it.

    Failures may be caused by what a tenant asks, so a tenant's failures stop its own calls alone. An answer
    to any tenant shows that the model works.

    Args:
        provider: The name of the provider.
        longest: The maximum time between two probes, in seconds.
    """

    FAILURES = 8
    """The consecutive failures that stop calls, and the maximum of attempts at once before a success. Calls
    to a model that worked within the last ``PROOF_SECONDS`` are not stopped."""

    def __init__(self, provider: str, longest: float) -> None:
        self._provider = provider
        self._longest = longest
        self._worked: OrderedDict[str, float] = OrderedDict()
        """When each model last worked."""
        self._circuits: OrderedDict[tuple[str, str], _Circuit] = OrderedDict()
        """By model and tenant."""

    @property
    def has_worked(self) -> bool:
        """Whether the provider ever answered."""
        return bool(self._worked)

    def is_open(self, model: str, tenant: str) -> bool:
        """Whether a tenant's calls to a model are currently stopped."""
        circuit = self._circuit(model, tenant)
        return circuit is not None and circuit.is_open

    def check(self, model: str, tenant: str, now: float) -> None:
        """Admits a call, as a probe where calls are stopped.

        Raises:
            ProviderError: Calls are stopped; the message is that of the tenant's last failure.
        """
        circuit = self._circuit(model, tenant)
        if circuit is None or not circuit.is_open:
            return
        left = circuit.closed_until - now
        if left > 0:
            raise ProviderError(
                FailureKind.TRANSIENT,
                self._provider,
                f"{circuit.words} ({circuit.failures} attempts in a row failed, the next in {left:.0f} s)",
                retry_after=left,
                settled=True,
            )
        circuit.closed_until = now + max(circuit.wait, 1.0)  # until this probe is answered

    def failed(self, model: str, tenant: str, fault: ProviderError, now: float, begun: float) -> None:
        """Records a transient failure of an attempt.

        Args:
            model: The model.
            tenant: The tenant of the call.
            fault: The failure.
            now: When it came.
            begun: When the attempt began. If another succeeded since, the model works: the failure does not
                count.
        """
        worked_at = self._worked.get(model, -math.inf)
        if begun < worked_at:
            return
        circuit = self._circuit(model, tenant) or _Circuit()
        _remember(self._circuits, (model, tenant), circuit)
        circuit.failures += 1
        circuit.failed_at, circuit.words = now, str(fault)
        circuit.is_open = circuit.failures >= self.FAILURES and now - worked_at >= PROOF_SECONDS
        if circuit.is_open:
            circuit.wait = min(self._longest, 2 * circuit.wait or 5.0)
            circuit.closed_until = now + circuit.wait

    def worked(self, model: str, now: float) -> None:
        """Records a response that is no failure of the provider. It ends the stops of all tenants."""
        _remember(self._worked, model, now)

    def _circuit(self, model: str, tenant: str) -> _Circuit | None:
        circuit = self._circuits.get((model, tenant))
        if circuit is not None and circuit.failed_at <= self._worked.get(model, -math.inf):
            del self._circuits[model, tenant]
            return None
        return circuit


def _remember(entries: OrderedDict[Key, Value], key: Key, value: Value) -> None:
    entries[key] = value
    entries.move_to_end(key)
    if len(entries) > MAX_ENTRIES:
        entries.popitem(last=False)
