"""Counters, gauges and histograms, declared where they are counted; and the metrics of calls.

An instrument is declared once a process, at import. It counts nothing until the process has a registry, and
needs no library until then. The registry is that of ``prometheus-client``.

    ANSWERS = Counter("dramaturg_answers_total", "Answers by outcome.", ("outcome",))
    ANSWERS.add("ok")

The names of calls in metrics and spans are those of OpenTelemetry's semantic conventions for RPC, and of gRFC
A66 ("OpenTelemetry Metrics"). The ``grpc.aio`` instrumentation of OpenTelemetry is not used: it is a beta,
and has no metrics.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakSet

from google.protobuf import descriptor_pool
from opentelemetry import trace

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Upper bounds for durations in seconds: from a cheap call to the longest deadline."""
_EXEMPLAR_SECONDS = 1.0
OTHER = "other"
"""The label value that replaces all values above the limit."""


class _Series(dict[tuple[str, ...], Any]):
    """What counts in the series of a metric, by the values of its labels, made at their first use.

    Args:
        metric: The metric.
        counts: What counts in one of its series.
    """

    def __init__(self, metric: Any, counts: Callable[[Any], Any]) -> None:
        self._metric = metric
        self._counts = counts

    def __missing__(self, labels: tuple[str, ...]) -> Any:
        made = self[labels] = self._counts(self._metric.labels(*labels) if labels else self._metric)
        return made


# A call counts a dozen times. The methods of the package check each time what is known here.
def _adder(child: Any) -> Any:
    return child._value.inc


def _itself(child: Any) -> Any:
    return child


class Instrument:
    """A metric.

    Args:
        name: Its name.
        description: One sentence.
        labels: The names of its labels. Every one has few values.
        shown: Values of the labels that are exposed from the start, at zero. Prometheus sees no increase in a
            series that begins at one, so alerts on the first event need them.
    """

    kind: ClassVar[str]
    """Its type in Prometheus."""
    _counts: Callable[[Any], Any] = staticmethod(_itself)

    def __init__(
        self, name: str, description: str, labels: Sequence[str] = (), shown: Sequence[tuple[str, ...]] = ()
    ) -> None:
        if name in _declared:
            raise ValueError(f"the metric {name} is declared twice")
        self.name = name
        self.description = description
        self.labels = tuple(labels)
        self._shown = tuple(shown)
        self._series: _Series | None = None
        """None: nothing is counted. Read once a call: a thread may count while the registry changes."""
        _declared[name] = self
        if _registry is not None:
            self.bind(_registry)

    def bind(self, registry: CollectorRegistry | None) -> None:
        """Counts into a registry from now on, from zero; into none where there is none."""
        self._series = series = None if registry is None else _Series(self._make(registry), self._counts)
        if series is not None:
            for values in self._shown:
                series[values]

    def _make(self, registry: CollectorRegistry) -> Any:
        raise NotImplementedError


class Counter(Instrument):
    """A count of events. Its name ends in ``_total``."""

    kind = "counter"
    _counts = staticmethod(_adder)

    def _make(self, registry: CollectorRegistry) -> Any:
        from prometheus_client import Counter as Metric

        return Metric(self.name, self.description, self.labels, registry=registry)

    def add(self, *labels: str, amount: float = 1) -> None:
        """Adds to the count. An amount is never negative."""
        if (series := self._series) is not None:
            series[labels](amount)


class Gauge(Instrument):
    """A value that goes up and down."""

    kind = "gauge"

    def _make(self, registry: CollectorRegistry) -> Any:
        from prometheus_client import Gauge as Metric

        return Metric(self.name, self.description, self.labels, registry=registry)

    def add(self, *labels: str, amount: float = 1) -> None:
        """Adds to the value; a negative amount lowers it."""
        if (series := self._series) is not None:
            series[labels].inc(amount)

    def set(self, value: float, *labels: str) -> None:
        """Sets the value."""
        if (series := self._series) is not None:
            series[labels].set(value)

    def watch(self, read: Callable[[], float], *labels: str) -> None:
        """Reads the value at every scrape, on the thread of the scrape."""
        if (series := self._series) is not None:
            series[labels].set_function(read)


class Histogram(Instrument):
    """The distribution of values.

    Args:
        name: Its name, without ``_bucket`` and the like.
        description: One sentence.
        labels: The names of its labels.
        bounds: The upper bounds of its buckets.
    """

    kind = "histogram"

    def __init__(
        self, name: str, description: str, labels: Sequence[str] = (), bounds: Sequence[float] = SECONDS
    ) -> None:
        self._bounds = bounds
        self._exemplar_due: dict[tuple[tuple[str, ...], int], float] = {}
        """When a bucket of the labels gets its next exemplar, by the monotonic clock."""
        super().__init__(name, description, labels)

    def _make(self, registry: CollectorRegistry) -> Any:
        from prometheus_client import Histogram as Metric

        self._exemplar_due = {}

        return Metric(self.name, self.description, self.labels, registry=registry, buckets=self._bounds)

    def observe(self, value: float, *labels: str) -> None:
        """Adds a value, with the current span as an exemplar where it is recorded.

        A bucket gets a new exemplar once a second: it shows the latest one alone.
        """
        if (series := self._series) is None:
            return
        child, index, now = series[labels], bisect_left(self._bounds, value), time.monotonic()
        if now >= self._exemplar_due.get((labels, index), 0.0):
            current = trace.get_current_span().get_span_context()
            if current.trace_flags.sampled:
                self._exemplar_due[labels, index] = now + _EXEMPLAR_SECONDS
                exemplar = {"trace_id": f"{current.trace_id:032x}", "span_id": f"{current.span_id:016x}"}
                child.observe(value, exemplar)
                return
        child._sum.inc(value)
        child._buckets[index].inc(1)


class Bounded:
    """Bounds the values of a label: the first ones in a registry pass, the rest are "other".

    Args:
        most: The most values.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()
        _bounds.add(self)

    def forget(self) -> None:
        """Begins anew."""
        self._known.clear()

    def __call__(self, value: str) -> str:
        """The value, or "other"."""
        if value in self._known:
            return value
        if len(self._known) >= self._most:
            return OTHER
        self._known.add(value)
        return value


_declared: dict[str, Instrument] = {}
_bounds: WeakSet[Bounded] = WeakSet()
_registry: CollectorRegistry | None = None


def count_into(registry: CollectorRegistry | None) -> None:
    """Makes every instrument count into a registry, those declared later too. None: they stop."""
    global _registry
    _registry = registry
    for bounded in _bounds:
        bounded.forget()
    for instrument in _declared.values():
        instrument.bind(registry)


def counting() -> bool:
    """Whether anything is counted: skip computations that only metrics need where it is false."""
    return _registry is not None


def declared() -> Sequence[Instrument]:
    """The instruments of all modules that were imported, by name."""
    return [_declared[name] for name in sorted(_declared)]


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
