"""Telemetry of a process: traces of OpenTelemetry, metrics for Prometheus.

Both are off unless they are configured, and then cost next to nothing. OpenTelemetry's SDK and
prometheus-client come with the extra ``platform``; without them both stay off, with a warning in the log.
"""

from dramaturg.service.telemetry.process import telemetry

__all__ = ["telemetry"]
