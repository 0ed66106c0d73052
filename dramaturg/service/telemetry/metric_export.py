"""Sends the metrics of a process by OTLP: those of ``/metrics``, from the same registry.

Names and labels of the conventions (``gen_ai_*``, ``grpc_*``) get their dots, and ``_seconds`` becomes the
unit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.metrics import Exemplar
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricsData,
    NumberDataPoint,
    PeriodicExportingMetricReader,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from dramaturg.service.telemetry.sdk import GRPC, protocol_of, resource_of
from dramaturg.service.telemetry.tracing import SCOPE

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_CUMULATIVE = AggregationTemporality.CUMULATIVE
_CONVENTIONS = ("gen_ai_", "grpc_")


def start(service: str, registry: CollectorRegistry) -> Callable[[float], None]:
    """Sends the metrics of a registry every minute (``OTEL_METRIC_EXPORT_INTERVAL``) from now on.

    Returns:
        Sends them once more and stops, within the given seconds.

    Raises:
        ValueError: One of OpenTelemetry's variables cannot be used.
    """
    exporter: MetricExporter
    if protocol_of("METRICS") == GRPC:
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter

        exporter = OTLPMetricExporter()
    else:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpExporter

        exporter = HttpExporter()
    resource, begun = resource_of(service), time.time_ns()
    reader: Any = PeriodicExportingMetricReader(exporter)
    # In place of a meter provider: the registry has the values.
    reader._set_collect_callback(lambda *_, **__: _collect(registry, resource, begun))
    return lambda seconds: reader.shutdown(seconds * 1000)


def _collect(registry: CollectorRegistry, resource: Resource, begun: int) -> MetricsData:
    now, metrics = time.time_ns(), []
    for family in registry.collect():
        samples: Sequence[Any] = family.samples
        data: Any
        if family.type == "counter":
            data = Sum(_numbers(samples, begun, now), _CUMULATIVE, is_monotonic=True)
        elif family.type == "histogram":
            data = Histogram(_distributions(samples, begun, now), _CUMULATIVE)
        else:
            data = Gauge(_numbers(samples, begun, now))
        if data.data_points:
            name = f"{family.name}_total" if family.type == "counter" else family.name
            unit = "s" if name.endswith("_seconds") else ""
            if name.startswith(_CONVENTIONS):
                name = _dotted(name.removesuffix("_seconds"))
            metrics.append(Metric(name, family.documentation, unit, data))
    scope = ScopeMetrics(InstrumentationScope(SCOPE), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], resource.schema_url)])


def _numbers(samples: Iterable[Any], begun: int, now: int) -> list[NumberDataPoint]:
    return [NumberDataPoint(_attributes(one.labels), begun, now, one.value) for one in samples]


def _distributions(samples: Iterable[Any], begun: int, now: int) -> list[HistogramDataPoint]:
    series: dict[tuple[tuple[str, str], ...], list[Any]] = {}
    for sample in samples:
        labels = tuple(sorted((name, value) for name, value in sample.labels.items() if name != "le"))
        series.setdefault(labels, []).append(sample)
    return [_distribution(dict(labels), ones, begun, now) for labels, ones in series.items()]


def _distribution(
    labels: Mapping[str, str], samples: Sequence[Any], begun: int, now: int
) -> HistogramDataPoint:
    buckets = [one for one in samples if one.name.endswith("_bucket")]
    # Those of Prometheus include the smaller ones.
    counts = [0, *(int(one.value) for one in buckets)]
    total = next(one.value for one in samples if one.name.endswith("_sum"))
    bounds = [float(one.labels["le"]) for one in buckets]
    return HistogramDataPoint(
        _attributes(labels),
        begun,
        now,
        counts[-1],
        total,
        [after - before for before, after in pairwise(counts)],
        [bound for bound in bounds if not math.isinf(bound)],
        # What is not known is left out.
        min=None,  # type: ignore[arg-type]
        max=None,  # type: ignore[arg-type]
        exemplars=[_exemplar(one.exemplar) for one in buckets if one.exemplar is not None],
    )


def _exemplar(exemplar: Any) -> Exemplar:
    trace, span = (int(exemplar.labels[name], 16) for name in ("trace_id", "span_id"))
    return Exemplar({}, exemplar.value, int(exemplar.timestamp * 1e9), span, trace)


def _attributes(labels: Mapping[str, str]) -> Mapping[str, str]:
    return {_dotted(name) if name.startswith(_CONVENTIONS) else name: one for name, one in labels.items()}


def _dotted(name: str) -> str:
    prefix = next(one for one in _CONVENTIONS if name.startswith(one))
    return f"{prefix[:-1]}.{name.removeprefix(prefix).replace('_', '.')}"
