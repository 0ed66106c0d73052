"""Names of calls in metrics and spans.

They are those of OpenTelemetry's semantic conventions for RPC, and of gRFC A66 ("OpenTelemetry Metrics"). The
``grpc.aio`` instrumentation of OpenTelemetry is not used: it is a beta, and has no metrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from google.protobuf import descriptor_pool

from dramaturg.service.telemetry.instruments import OTHER

INFRASTRUCTURE = ("/grpc.health.v1.Health/", "/grpc.reflection.")
"""Methods that are not observed: probes would outnumber the rest, and watches have no end."""


def method_name(path: str) -> str:
    """The method as ``package.Service/Method``; "other" for one of no contract known to this process."""
    try:
        return _registered(path)
    except KeyError:
        return OTHER


@cache
def call_attributes(method: str) -> Mapping[str, str]:
    """The attributes of the spans of a method's calls."""
    return {"rpc.system.name": "grpc", "rpc.method": method}


@cache
def _registered(path: str) -> str:
    service, _, method = path.lstrip("/").partition("/")
    descriptor_pool.Default().FindServiceByName(service).methods_by_name[method]
    return f"{service}/{method}"
