"""Cells of tables: names, counts, shares, estimates, and their formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil, floor, log10
from urllib.parse import urlencode

from google.protobuf.message import Message

from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.results.groups import Grouped
from dramaturg.results.quantities import money
from dramaturg.tables.model import ABSENT, Cell, Scale

SHARE: Scale = (0.0, 1.0)
SHARES = "0 to 100 %"
"""The scale of intervals of shares in words."""
SMALLEST_P = 0.001
"""A smaller p-value is shown as less than it."""

_ROUNDING = 1e-9


def samples_link(tags: Mapping[str, str] | None = None, /, **filters: str) -> str:
    """The fragment that shows the samples of a cell.

    Args:
        tags: The values of tags.
        filters: Other filters of the page: model, measure, outcome ("pass", "fail", "abstain" or "failed")
            and reason.
    """
    parts = {**filters, **{f"tag.{name}": value for name, value in (tags or {}).items()}}
    return "#" + urlencode(parts) if parts else "#samples"


def count(value: int, link: str = "") -> Cell:
    """A number of things."""
    return Cell(f"{value:,}", value, link=link if value else "")


def percent(value: float | None, digits: int = 0) -> str:
    """A share, e.g. "98 %"; a share that is not all, or not none, is not rounded to 100 % or 0 %."""
    if value is None:
        return ABSENT
    text = f"{100 * value:.{digits}f}"
    if (float(text) in {0.0, 100.0}) and value not in {0.0, 1.0}:
        text = f"{100 * value:.{digits + 1}f}"
    return f"{text} %"


def percent_of(value: float | None) -> str:
    """A share with one digit."""
    return percent(value, 1)


def points(text: str) -> str:
    """A difference of two shares that is formatted as a share, as percentage points, e.g. "0.2 pp"."""
    return f"{text.removesuffix('%')}pp" if text.endswith("%") else text


def p_value(p: float | None) -> str:
    """A p-value with three digits; none is shown as 0."""
    if p is None:
        return ABSENT
    return f"{p:.3f}" if p >= SMALLEST_P else f"<{SMALLEST_P}"


def p_sentence(p: float) -> str:
    """A p-value in a sentence, e.g. "p = 0.012"."""
    return f"p = {p_value(p)}" if p >= SMALLEST_P else f"p < {SMALLEST_P}"


def words(name: str) -> str:
    """The name of a reason or a choice in words, e.g. "timed out"; other texts are as they are."""
    return name.replace("_", " ").lower() if name.isupper() else name


def figure(value: float | None, digits: int = 2) -> str:
    """A figure with a fixed number of digits."""
    return ABSENT if value is None else f"{value:.{digits}f}"


def format_cost(usage: Usage) -> str:
    """The cost; "≥" marks a lower bound, "unknown" a cost without prices."""
    if not usage.HasField("cost_usd"):
        return "unknown" if usage.provider_call_count else "none"
    mark = "≥ " if usage.unpriced_call_count else ""
    return f"{mark}{money(usage.cost_usd)}"


def value_of(found: Estimate) -> float | None:
    """The value of an estimate, or None."""
    return found.value if found.HasField("value") else None


def estimate_cell(
    found: Estimate,
    link: str = "",
    *,
    scale: Scale = SHARE,
    heat: bool = False,
    show: Callable[[float | None], str] = percent_of,
) -> Cell:
    """An estimate with its interval, its coverage, and why it is undefined."""
    value = value_of(found)
    known = found.HasField("lower") and found.HasField("upper")
    return Cell(
        show(value),
        value,
        bounds=(found.lower, found.upper) if known else None,
        ends=ends_of(found.lower, found.upper, show) if known else "",
        scale=scale,
        judged=found.count if found.total else None,
        total=found.total or None,
        withheld=f"no interval: {found.interval_withheld}" if found.interval_withheld else "",
        note=f"undefined: {found.undefined}" if found.undefined else "",
        heat=heat_of(value, scale) if heat else None,
        link=link,
    )


def fitted(scale: Scale, values: Iterable[float]) -> Scale:
    """The part of a scale that has all values, between round numbers. No values: the whole scale."""
    found = list(values)
    if not found:
        return scale
    low, high = min(found), max(found)
    whole = scale[1] - scale[0]
    step = 10.0 ** floor(log10(max(high - low, whole / 100)))
    ends = floor(low / step + _ROUNDING) * step, ceil(high / step - _ROUNDING) * step
    return max(scale[0], min(ends[0], ends[1] - step)), min(scale[1], ends[1])


def ends_of(lower: float, upper: float, show: Callable[[float | None], str]) -> str:
    """The ends of an interval, e.g. "50 to 75 %"."""
    first, last = show(lower), show(upper)
    unit = f" {last.split()[-1]}"
    return f"{first.removesuffix(unit) if last.endswith(unit) else first} to {last}"


def share_cell(value: float | None, judged: int | None = None, total: int | None = None) -> Cell:
    """A share without an interval."""
    return Cell(percent_of(value), value, judged=judged, total=total)


def optional(message: Message, field: str) -> float | None:
    """A figure of a message, or None if it is absent."""
    return float(getattr(message, field)) if message.HasField(field) else None


def heat_of(value: float | None, scale: Scale) -> float | None:
    """The place of a value on a scale, in [0, 1]; None outside of it."""
    low, high = scale
    if value is None or not low <= value <= high or high <= low:
        return None
    return (value - low) / (high - low)


def name_cell(name: str, link: str = "", absent: str = "(unnamed)") -> Cell:
    """A name, or a placeholder for an empty one."""
    return Cell(name or absent, link=link)


def group_name(tags: Mapping[str, str]) -> str:
    """A group, for example "level hard, topic (none)"; "all" without tags."""
    return ", ".join(f"{name} {value or '(none)'}" for name, value in sorted(tags.items())) or "all"


def group_key(tags: Mapping[str, str], names: Sequence[str]) -> str:
    """The values of a group as one key, in the order of the grouping."""
    return "\x1f".join(tags[name] for name in names)


def group_rows(names: Sequence[str], rows: Iterable[Grouped]) -> Sequence[tuple[Sequence[Cell], str]]:
    """The header cells and the key of each group, for ``matrix``."""
    groups = {group_key(one.tags, names): one.tags for one in rows}
    return [(group_cells(names, tags), key) for key, tags in groups.items()]


def group_cells(names: Sequence[str], tags: Mapping[str, str]) -> Sequence[Cell]:
    """The values of a group."""
    return [name_cell(tags[name], absent="(none)") for name in names]
