"""The interceptors of a server, each for one concern of a call.

They run in this order, the outermost first:

1. ``RequestContexts`` gives the call its request id and deadline.
2. ``CallTelemetry`` counts it and makes its span.
3. ``AccessLog`` logs it, and writes the audit log.
4. ``ErrorMapping`` maps exceptions to a status.
5. ``Authorization`` refuses callers that may not make it. (Credentials in the metadata are checked, and the
   gate of its contract starts the call, before the request is read.)
6. ``Admission`` refuses it above the limit of concurrent calls.
7. ``Deadlines`` ends it at its deadline.
8. ``Gates`` passes it through the gate of its contract.
9. ``Validation`` refuses a request that breaks a limit.
10. ``LargeResponses`` bounds the large responses that a tenant has not received yet.

Interceptors of gRPC that are given to the server follow, in their order, and then the servicer. Health, and
reflection if it is open to all callers, pass none of them: a full server must answer probes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import grpc

from dramaturg.service.auth.guard import Guard
from dramaturg.service.contract import OPEN_GATE, Contract
from dramaturg.service.interceptors.access import Admission, Authorization, Gates
from dramaturg.service.interceptors.access_log import AccessLog, CallTelemetry
from dramaturg.service.interceptors.call import Call, DamagedMessage
from dramaturg.service.interceptors.chain import InterceptorChain
from dramaturg.service.interceptors.deadline import Deadlines, RequestContexts
from dramaturg.service.interceptors.error_mapping import ErrorMapping
from dramaturg.service.interceptors.large_responses import LargeResponses
from dramaturg.service.interceptors.validation import Validation
from dramaturg.service.settings import ServerSettings


def server_interceptor(
    settings: ServerSettings,
    guard: Guard,
    contracts: Sequence[Contract],
    further: Sequence[grpc.aio.ServerInterceptor] = (),
) -> InterceptorChain:
    """The chain of a server.

    Args:
        settings: The limits.
        guard: Authenticates and authorizes callers.
        contracts: The contracts of the server.
        further: Interceptors of gRPC that run inside those of the server.
    """
    weights = {
        f"/{contract.full_name}/{method}": weight
        for contract in contracts
        for method, weight in contract.weights.items()
    }

    def weigh(call: Call) -> int:
        weight = weights.get(call.method)
        if weight is None or isinstance(call.request, DamagedMessage):
            return 1
        return max(1, weight(call.request))

    def named(select: Callable[[Contract], frozenset[str]]) -> frozenset[str]:
        return frozenset(
            f"/{contract.full_name}/{method}" for contract in contracts for method in select(contract)
        )

    retry_after = settings.overload_retry_seconds
    gates = {contract.full_name: contract.gate for contract in contracts if contract.gate is not OPEN_GATE}
    unlimited = named(lambda contract: contract.unlimited)
    large = named(lambda contract: contract.large)
    return InterceptorChain(
        guard,
        (
            RequestContexts(
                default_deadline=settings.default_deadline_seconds,
                maximum_deadline=settings.maximum_deadline_seconds,
                unlimited=unlimited,
                batches=not gates,
            ),
            CallTelemetry(),
            AccessLog(),
            ErrorMapping(),
            Authorization(guard),
            Admission(settings.max_concurrent_calls, retry_after=retry_after, weigh=weigh),
            Deadlines(floor=settings.minimum_deadline_seconds),
            # Each is a step of every call: a server that has no gate or no large response goes without.
            *([Gates(gates, weigh, guard)] if gates else ()),
            Validation(settings.max_message_bytes),
            *([LargeResponses(large)] if large else ()),
        ),
        settings.max_message_bytes,
        further,
        unlimited,
        gates,
    )
