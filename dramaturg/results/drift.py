"""The monitor of a judge in words."""

from __future__ import annotations

from dramaturg.api.evaluation.v1.judge_monitor_pb2 import JudgeMonitor


def drift_text(monitor: JudgeMonitor) -> str:
    """What the check that found drift found, as a predicate."""
    check = monitor.drift
    return (
        f"drifted: {check.changed_count} of {check.compared_count} candidates are judged differently than "
        f"before (p = {check.p_value:.2g}), by a check of {check.check_time.ToDatetime():%Y-%m-%d %H:%M} UTC"
    )


def monitor_text(monitor: JudgeMonitor) -> str:
    """The state of a monitor, for a cell of a table."""
    if monitor.HasField("drift"):
        return drift_text(monitor)
    last = monitor.last_check
    if last.error:
        return f"check failed ({last.check_time.ToDatetime():%Y-%m-%d %H:%M} UTC): {last.error}"
    if monitor.detectable_count > monitor.anchor_count:
        return f"cannot be found: {monitor.detectable_count} candidates are needed, of {monitor.anchor_count}"
    if not monitor.check_count:
        return f"no check yet; next {monitor.next_check_time.ToDatetime():%Y-%m-%d %H:%M} UTC"
    missing = monitor.anchor_count - last.compared_count
    return (
        f"none in {monitor.check_count} checks; last {last.check_time.ToDatetime():%Y-%m-%d %H:%M} UTC: "
        f"{last.changed_count} of {last.compared_count} changed"
        + (f", {missing} without answers" if missing > 0 else "")
    )
