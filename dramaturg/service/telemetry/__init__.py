"""What is told of a process while it works: traces by OpenTelemetry, metrics for Prometheus.

Both are off unless they are configured, and then cost next to nothing. The packages that they need come with
the extra ``platform``; without them they stay off, with a warning in the log.
"""

from dramaturg.service.telemetry.running import telemetry

__all__ = ["telemetry"]
