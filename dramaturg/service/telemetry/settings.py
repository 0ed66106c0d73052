"""Settings of metrics and traces."""

from __future__ import annotations

import os
from typing import ClassVar

from pydantic import Field

from dramaturg.service.settings import Settings


class MetricsSettings(Settings):
    """Section ``metrics``."""

    section: ClassVar[str] = "metrics"

    port: int = Field(default=0, ge=0, le=65535)
    """The port on which ``/metrics`` is served, in plain text and without authentication. 0: nowhere. On
    Kubernetes: 9464.
    """
    host: str = ""
    """The address for metrics. Empty: the server's address."""

    @property
    def sent(self) -> bool:
        """Whether they are also sent by OTLP: where ``OTEL_METRICS_EXPORTER`` is or has "otlp"."""
        disabled = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
        exporters = os.environ.get("OTEL_METRICS_EXPORTER", "").lower().split(",")
        return "otlp" in {one.strip() for one in exporters} and not disabled


def _endpoint() -> str:
    """The variables of OpenTelemetry's own specification ("OTLP Exporter")."""
    names = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


MAX_TEXT_LENGTH = 60_000
"""The most characters of an attribute of a span; the rest is cut off."""


class TracesSettings(Settings):
    """Section ``traces``.

    The variables of OpenTelemetry's specification configure the rest: ``OTEL_TRACES_SAMPLER`` and
    ``OTEL_TRACES_SAMPLER_ARG``, ``OTEL_BSP_*``, ``OTEL_SERVICE_NAME``, ``OTEL_RESOURCE_ATTRIBUTES``,
    ``OTEL_SDK_DISABLED``, and ``OTEL_EXPORTER_OTLP_*`` for the protocol, headers, certificates and timeouts.
    """

    section: ClassVar[str] = "traces"

    endpoint: str = Field(default_factory=_endpoint)
    """The collector that takes spans by OTLP, for example "http://collector:4317"; "https://" encrypts. It is
    spoken to over gRPC, or over HTTP where ``OTEL_EXPORTER_OTLP_PROTOCOL`` is "http/protobuf", then at
    "/v1/traces" below this address. Absent: ``OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`` or
    ``OTEL_EXPORTER_OTLP_ENDPOINT``. Empty: there are no traces.
    """
    sample_ratio: float | None = Field(default=None, ge=0, le=1)
    """The share of traces that are recorded, drawn where a trace begins; other services follow the caller's
    decision. Absent: the sampler of ``OTEL_TRACES_SAMPLER``, by default every trace.
    """
    contents: bool = False
    """Whether spans of calls to models hold the prompts and the answers, and events of verdicts their
    explanations, up to 60,000 characters each. They may hold personal data, and every reader of the traces
    reads them.
    """
    flush_seconds: float = Field(default=3.0, ge=0, le=60)
    """The time limit for sending the last spans at the end of the process, in seconds. Remaining spans are
    dropped. (``OTEL_EXPORTER_OTLP_TIMEOUT`` holds for each batch.)
    """

    @property
    def enabled(self) -> bool:
        """Whether there are traces."""
        disabled = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
        return bool(self.endpoint) and not disabled
