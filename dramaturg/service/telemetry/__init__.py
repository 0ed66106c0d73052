"""Telemetry of a process, as configured: traces of OpenTelemetry, metrics for Prometheus."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from opentelemetry import trace

from dramaturg.service.settings import SettingsError
from dramaturg.service.telemetry import instruments, tracing
from dramaturg.service.telemetry.settings import MetricsSettings, TracesSettings

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


logger = logging.getLogger(__name__)

_EXTRA = 'install "dramaturg[platform]"'


@asynccontextmanager
async def telemetry(service: str, host: str) -> AsyncIterator[None]:
    """Serves metrics and sends spans and events within an ``async with`` block.

    A process has one registry and one tracer provider, however many servers it runs. A tracer provider that
    the program has installed before stays the global one; the spans of this package go to the collector of
    the settings.

    Args:
        service: The name of the service in traces.
        host: The address for metrics, unless the settings name one.

    Raises:
        OSError: The port for metrics cannot be listened on.
        SettingsError: The endpoint of traces, or one of OpenTelemetry's variables, cannot be used.
        pydantic.ValidationError: The settings cannot be used.
    """
    metrics, traces = MetricsSettings(), TracesSettings()
    with _metrics(metrics, host) as registry:
        async with _sent(registry if metrics.sent else None, traces, service), _traces(traces, service):
            yield


@contextmanager
def _metrics(settings: MetricsSettings, host: str) -> Iterator[CollectorRegistry | None]:
    registry = new_registry() if settings.port or settings.sent else None
    if registry is None:
        if settings.port or settings.sent:
            logger.warning("metrics are configured, and prometheus-client is missing: %s", _EXTRA)
        yield None
        return
    if not settings.port:
        instruments.count_into(registry)
        try:
            yield registry
        finally:
            instruments.count_into(None)
        return
    from prometheus_client import start_http_server

    address = (settings.host or host).strip("[]")
    try:
        server, thread = start_http_server(settings.port, address, registry)
    except OSError as error:
        raise OSError(
            f"metrics.port: cannot listen on {address}:{settings.port}: {error.strerror}"
        ) from error
    instruments.count_into(registry)
    logger.info("metrics are served", extra={"fields": {"port": server.server_port}})
    try:
        yield registry
    finally:
        instruments.count_into(None)
        server.shutdown()
        server.server_close()
        thread.join()


def new_registry() -> CollectorRegistry | None:
    """A registry with the collectors of the process; ``None`` where ``prometheus-client`` is missing."""
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
async def _sent(
    registry: CollectorRegistry | None, settings: TracesSettings, service: str
) -> AsyncIterator[None]:
    """Sends the metrics of a registry by OTLP."""
    if registry is None:
        yield
        return
    try:
        from dramaturg.service.telemetry import metric_export
    except ImportError:
        logger.warning("OTEL_METRICS_EXPORTER is otlp, and OpenTelemetry's SDK is missing: %s", _EXTRA)
        yield
        return
    try:
        stop = metric_export.start(service, registry)
    except Exception as error:
        raise SettingsError(f"OTEL_METRICS_EXPORTER: OTEL_* cannot be used: {error}") from error
    logger.info("metrics are sent")
    try:
        yield
    finally:
        await asyncio.to_thread(stop, settings.flush_seconds)


@asynccontextmanager
async def _traces(settings: TracesSettings, service: str) -> AsyncIterator[None]:
    if not settings.enabled:
        yield
        return
    try:
        # Imported here: the SDK takes longer to load than most commands take to run.
        from dramaturg.service.telemetry.sdk import Tracing
    except ImportError:
        logger.warning("traces.endpoint is set, and OpenTelemetry's SDK is missing: %s", _EXTRA)
        yield
        return
    try:
        sending = Tracing(service, settings)
    except Exception as error:
        raise SettingsError(f"traces.endpoint or OTEL_* cannot be used: {error}") from error
    tracing.configure(sending.provider, contents=settings.contents)
    tracing.configure_events(sending.events)
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        trace.set_tracer_provider(sending.provider)
    logger.info("spans are sent", extra={"fields": {"endpoint": settings.endpoint}})
    try:
        yield
    finally:
        tracing.configure(trace.NoOpTracerProvider())
        tracing.configure_events(None)
        await asyncio.to_thread(sending.shutdown)
