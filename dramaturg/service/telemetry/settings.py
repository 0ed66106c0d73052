"""What can be configured of metrics and traces."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from pydantic import Field

from dramaturg.service.settings import Settings


class MetricsSettings(Settings):
    """Section ``metrics``."""

    section: ClassVar[str] = "metrics"

    port: int = Field(default=0, ge=0, le=65535)
    """The port on which ``/metrics`` is served, in plain text and to whoever can reach it. 0: nowhere. On
    Kubernetes: 9464.
    """
    host: str = ""
    """The address for it. Empty: the one that the server listens on."""


def _endpoint() -> str:
    """The variables of OpenTelemetry's own specification ("OTLP Exporter")."""
    names = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def _delay() -> Any:
    """The variable of OpenTelemetry's own specification ("Batch Span Processor"), in seconds."""
    milliseconds = os.environ.get("OTEL_BSP_SCHEDULE_DELAY") or "5000"
    try:
        return float(milliseconds) / 1000
    except ValueError:
        return milliseconds  # is no number of seconds either


class TracesSettings(Settings):
    """Section ``traces``.

    OpenTelemetry's own variables count too: ``OTEL_SERVICE_NAME``, ``OTEL_RESOURCE_ATTRIBUTES``,
    ``OTEL_SDK_DISABLED``, and ``OTEL_EXPORTER_OTLP_*`` for headers and certificates.
    """

    section: ClassVar[str] = "traces"

    endpoint: str = Field(default_factory=_endpoint)
    """The collector that takes spans by OTLP over gRPC, such as "http://collector:4317"; "https://" encrypts.
    Absent: that of ``OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`` or ``OTEL_EXPORTER_OTLP_ENDPOINT``. Empty: there
    are no traces.
    """
    sample_ratio: float = Field(default=1.0, ge=0, le=1)
    """The share of traces that are kept, drawn where a trace begins. A caller with a trace of its own has
    decided already.
    """
    contents: bool = False
    """Whether spans of calls to models hold the prompts and the answers, up to 262,144 characters each. They
    may hold personal data, and whoever reads the traces reads them.
    """
    queue_size: int = Field(default=8192, ge=512)
    """The most spans that wait to be sent, with up to 64 MiB of prompts and answers; further ones are dropped
    and counted.
    """
    delay_seconds: float = Field(default_factory=_delay, gt=0, le=3600)
    """How long a span waits for others to be sent with. Absent: the milliseconds of
    ``OTEL_BSP_SCHEDULE_DELAY``, or 5 seconds.
    """
    flush_seconds: float = Field(default=3.0, ge=0, le=60)
    """How long the process waits at its end, after everything else, for the collector to take the last spans.
    What it has not taken then is dropped. (``OTEL_EXPORTER_OTLP_TIMEOUT`` holds for each batch.)
    """

    @property
    def enabled(self) -> bool:
        """Whether there are traces."""
        return bool(self.endpoint) and os.environ.get("OTEL_SDK_DISABLED", "").lower() != "true"
