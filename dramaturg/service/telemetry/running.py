"""Switches telemetry on for the life of a process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from dramaturg.service.settings import SettingsError
from dramaturg.service.telemetry import instruments, tracing
from dramaturg.service.telemetry.endpoint import serve_metrics
from dramaturg.service.telemetry.settings import MetricsSettings, TracesSettings
from dramaturg.service.telemetry.spans import Recorder

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

logger = logging.getLogger(__name__)

_EXTRA = 'install "dramaturg[platform]"'


@asynccontextmanager
async def telemetry(service: str, host: str) -> AsyncIterator[None]:
    """Serves metrics and sends spans within an ``async with`` block, as the environment configures it.

    A process has one registry and one tracer, however many servers it runs.

    Args:
        service: What the process is called in traces.
        host: The address for metrics, unless the settings name one.

    Raises:
        OSError: The port for metrics cannot be listened on.
        SettingsError: The endpoint of traces, or one of OpenTelemetry's variables, cannot be used.
        pydantic.ValidationError: The settings cannot be used.
    """
    metrics, traces = MetricsSettings(), TracesSettings()
    with _metrics(metrics, host):
        async with _traces(traces, service):
            yield


@contextmanager
def _metrics(settings: MetricsSettings, host: str) -> Iterator[None]:
    registry = new_registry() if settings.port else None
    if registry is None:
        if settings.port:
            logger.warning("metrics.port is set, and prometheus-client is missing: %s", _EXTRA)
        yield
        return
    instruments.count_into(registry)
    try:
        with serve_metrics(settings.host or host, settings.port, registry) as port:
            logger.info("metrics are served", extra={"fields": {"port": port}})
            yield
    finally:
        instruments.count_into(None)


def new_registry() -> CollectorRegistry | None:
    """A registry with what is known of any process; None where ``prometheus-client`` is missing."""
    try:
        import prometheus_client
    except ImportError:
        return None
    # Their only use is to tell a restart, which the process's start time tells too.
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call] # the package leaves it out
    registry = prometheus_client.CollectorRegistry()
    prometheus_client.ProcessCollector(registry=registry)
    prometheus_client.PlatformCollector(registry=registry)
    prometheus_client.GCCollector(registry=registry)
    return registry


@asynccontextmanager
async def _traces(settings: TracesSettings, service: str) -> AsyncIterator[None]:
    if not settings.enabled:
        yield
        return
    try:
        # Here, since OpenTelemetry takes longer to load than most commands to run.
        from dramaturg.service.telemetry.exporting import open_sender
    except ImportError:
        logger.warning("traces.endpoint is set, and OpenTelemetry is missing: %s", _EXTRA)
        yield
        return
    try:
        sender = open_sender(service, settings)
    except Exception as error:
        raise SettingsError(f"traces.endpoint or OTEL_EXPORTER_OTLP_* cannot be used: {error}") from error
    tracing.trace_with(Recorder(sender.take, settings.sample_ratio), contents=settings.contents)
    logger.info("spans are sent", extra={"fields": {"endpoint": settings.endpoint}})
    try:
        yield
    finally:
        tracing.trace_with(None)
        await asyncio.to_thread(sender.shutdown)
