"""What this process sends its spans with: OpenTelemetry's exporter, by OTLP over gRPC."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.metadata import version

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace.export import SpanExportResult

from dramaturg.service.telemetry import otlp
from dramaturg.service.telemetry.sending import SpanSender
from dramaturg.service.telemetry.settings import TracesSettings
from dramaturg.service.telemetry.spans import RecordedSpan


def open_sender(service: str, settings: TracesSettings) -> SpanSender:
    """What sends spans to the settings' endpoint.

    Shutting it down sends what is left, and blocks for about ``settings.flush_seconds`` at most.

    Args:
        service: The name of the service, unless ``OTEL_SERVICE_NAME`` says another.
        settings: Where spans go.
    """
    return SpanSender(
        OtlpExporter(settings.endpoint, resource_of(service)),
        size=settings.queue_size,
        flush_seconds=settings.flush_seconds,
        delay_seconds=settings.delay_seconds,
    )


def resource_of(service: str) -> Resource:
    """What sends the spans: the service, and what OpenTelemetry's variables say of it."""
    attributes = {SERVICE_VERSION: version("dramaturg")}
    if not os.environ.get("OTEL_SERVICE_NAME"):
        attributes[SERVICE_NAME] = service
    return Resource.create(attributes)


class OtlpExporter(OTLPSpanExporter):
    """OpenTelemetry's exporter, given spans of ours.

    It knows the variables for headers, certificates and timeouts, and what is to be tried again.

    Args:
        endpoint: Where the collector is.
        resource: What sends the spans.
    """

    def __init__(self, endpoint: str, resource: Resource) -> None:
        super().__init__(endpoint)
        self._sender = otlp.resource_spans(resource.attributes, resource.schema_url)

    def send(self, spans: Sequence[RecordedSpan]) -> bool:
        """Sends a batch, and says whether it was taken."""
        return self.export(spans) is SpanExportResult.SUCCESS  # type: ignore[arg-type] # see below

    # All that it does with spans is to count them, and to have them encoded here.
    def _translate_data(
        self,
        data: Sequence[RecordedSpan],  # type: ignore[override]
    ) -> ExportTraceServiceRequest:
        return otlp.export_request(self._sender, data)
