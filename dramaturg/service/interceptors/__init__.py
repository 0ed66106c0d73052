"""What happens around every call (see ``calls``)."""

from __future__ import annotations

from collections.abc import Iterable

from dramaturg.service.auth.guard import Guard
from dramaturg.service.contract import Contract
from dramaturg.service.interceptors.admission import Admission
from dramaturg.service.interceptors.calls import CallInterceptor
from dramaturg.service.interceptors.deadline import Deadlines
from dramaturg.service.settings import ServerSettings


def call_interceptor(
    settings: ServerSettings, guard: Guard, contracts: Iterable[Contract]
) -> CallInterceptor:
    """The interceptor of a server, which has but this one."""
    return CallInterceptor(
        guard,
        Admission(settings.max_concurrent_calls, retry_after=settings.overload_retry_seconds),
        Deadlines(
            default=settings.default_deadline_seconds,
            maximum=settings.maximum_deadline_seconds,
            floor=settings.minimum_deadline_seconds,
        ),
        {contract.full_name: contract.gate for contract in contracts},
    )
