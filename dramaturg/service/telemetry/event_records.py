"""Events as log records of OTLP.

They are not made by OpenTelemetry's SDK: that takes ten times as long, and a script has an event for each of
its criteria. What the events of a process have in common is encoded once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from google.protobuf.any_pb2 import Any
from google.protobuf.wrappers_pb2 import BytesValue
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.trace import SpanContext
from opentelemetry.util.types import AttributeValue

from dramaturg.service.telemetry.events import Event


class Requests:
    """Makes the requests that hand events over.

    Args:
        resource: The attributes of the process.
        schema_url: The schema of these.
        scope: The instrumentation scope of the events.
    """

    def __init__(self, resource: Mapping[str, AttributeValue], schema_url: str, scope: str) -> None:
        described = Resource(attributes=[_pair(*attribute) for attribute in resource.items()])
        self._resource = ResourceLogs(resource=described, schema_url=schema_url).SerializeToString()
        self._scope = ScopeLogs(scope=InstrumentationScope(name=scope)).SerializeToString()

    def __call__(self, records: Sequence[bytes]) -> bytes:
        """An encoded ``ExportLogsServiceRequest`` with a batch of events."""
        return _first_field(self._resource + _second_field(b"".join((self._scope, *records))))


def records(name: str, events: Iterable[Event], span: SpanContext) -> Iterator[bytes]:
    """Events that happen now, each encoded as a member ``log_records`` of ``ScopeLogs``."""
    now = time.time_ns()
    made = LogRecord(
        time_unix_nano=now,
        observed_time_unix_nano=now,
        event_name=name,
        trace_id=span.trace_id.to_bytes(16, "big"),
        span_id=span.span_id.to_bytes(8, "big"),
        flags=span.trace_flags,
    ).SerializeToString()
    # Encoded messages one after the other are merged when they are read; repeated fields are appended.
    for shared, own in events:
        yield _second_field(made + _kept(*shared.items()) + _encoded(*own.items()))


# A message within another is encoded as bytes are. These two well-known messages have the field numbers of
# "ExportLogsServiceRequest.resource_logs", and of "ResourceLogs.scope_logs" and "ScopeLogs.log_records".
def _first_field(encoded: bytes) -> bytes:
    return BytesValue(value=encoded).SerializeToString()


def _second_field(encoded: bytes) -> bytes:
    return Any(value=encoded).SerializeToString()


def _encoded(*attributes: tuple[str, AttributeValue]) -> bytes:
    """A log record with nothing but these attributes."""
    return LogRecord(attributes=[_pair(*one) for one in attributes]).SerializeToString()


_kept = lru_cache(2048)(_encoded)


def _pair(name: str, value: AttributeValue) -> KeyValue:
    if isinstance(value, Sequence) and not isinstance(value, str):
        array = ArrayValue(values=[_any(one) for one in value])
        return KeyValue(key=name, value=AnyValue(array_value=array))
    return KeyValue(key=name, value=_any(value))


def _any(value: object) -> AnyValue:
    if isinstance(value, str):
        return AnyValue(string_value=value)
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    return AnyValue(double_value=value) if isinstance(value, float) else AnyValue(string_value=str(value))
