"""Metrics of calls, and their names in metrics and spans.

The names are those of OpenTelemetry's semantic conventions for RPC, and of gRFC A66 ("OpenTelemetry
Metrics"). The ``grpc.aio`` instrumentation of OpenTelemetry is not used: it is a beta, and has no metrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from google.protobuf import descriptor_pool

from dramaturg.service.telemetry.instruments import OTHER, Bounded, Counter, Gauge, Histogram

SERVED = Histogram(
    "grpc_server_call_duration_seconds",
    "Duration of served calls, by status.",
    ("grpc_method", "grpc_status"),
)
IN_FLIGHT = Gauge("dramaturg_server_calls_in_flight", "Calls in progress at the server.", ("grpc_method",))
SHED = Counter(
    "dramaturg_server_calls_shed_total", "Calls refused at the limit of concurrent calls.", ("grpc_method",)
)
MADE = Histogram(
    "grpc_client_call_duration_seconds",
    "Duration of calls made, including transport retries, by status.",
    ("grpc_method", "grpc_target", "grpc_status"),
)
MAX_TARGETS = 32
"""The most values of ``grpc_target``: judges are registered at run time."""
_target = Bounded(MAX_TARGETS)
_POLLED = frozenset({"IdentityService/GetIdentity", "IdentityService/CheckModel"})


def method_name(path: str) -> str:
    """The method as ``package.Service/Method``; "other" for one of no contract known to this process."""
    try:
        return _registered(path)
    except KeyError:
        return OTHER


def target_label(method: str, target: str) -> str:
    """The value of ``grpc_target``: "other" above ``MAX_TARGETS``, and for methods that poll every target."""
    return OTHER if method.rpartition(".")[2] in _POLLED else _target(target)


@cache
def call_attributes(method: str) -> Mapping[str, str]:
    """The attributes of the spans of a method's calls."""
    return {"rpc.system.name": "grpc", "rpc.method": method}


@cache
def address_attributes(target: str) -> Mapping[str, str | int]:
    """The attributes of the address that calls are made to. A name without a port has none."""
    host, colon, port = target.rpartition("/")[2].rpartition(":")
    if not colon or not port.isdecimal():
        return {"server.address": target}
    return {"server.address": host.strip("[]"), "server.port": int(port)}


@cache
def _registered(path: str) -> str:
    service, _, method = path.lstrip("/").partition("/")
    descriptor_pool.Default().FindServiceByName(service).methods_by_name[method]
    return f"{service}/{method}"
