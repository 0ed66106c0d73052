"""Tables of the page: cells with links to samples, colours and intervals. The template draws them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.report.charts import Interval, PointMap, interval_of
from dramaturg.results.groups import Grouped

ABSENT = "–"
"""The text of a figure that does not exist."""
HEAT_STEPS = 10
"""The strongest of the colours of a cell; the weakest is 0."""

INTERVAL = "95 % interval"
"""The name of a column with the ends of intervals."""
RELATIVE = "relative to the largest"
"""The name of a column with bars of counts."""

Scale = tuple[float, float]
"""The lowest and the highest value of a measure."""

SHARE: Scale = (0.0, 1.0)


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str
    link: str = ""
    """The fragment of a filter of samples, see ``samples_link``. Empty: none."""
    heat: int | None = None
    """The colour, from 0 to ``HEAT_STEPS``. None: none."""
    title: str = ""
    """What the figure rests on, e.g. "12 of 14 judged". Also read by screen readers."""
    interval: Interval | None = None
    """An interval drawn instead of the text, which describes it."""
    value: float | None = None
    """The figure in full precision. None: the cell has none."""


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    number: bool = True
    """Whether its cells are figures, which are aligned to the right."""


@dataclass(frozen=True)
class Table:
    """A table. Rows start with ``heads`` header cells."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    heads: int = 1
    folded: str = ""
    """The label under which the table is folded. Empty: it is open."""


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading."""

    title: str
    tables: Sequence[Table] = ()
    note: str = ""
    lines: Sequence[str] = field(default=())
    """Sentences below the tables."""
    maps: Sequence[PointMap] = ()
    """Maps above the tables, which have the same points."""


def columns(*names: str, figures: Iterable[str] = ()) -> list[Column]:
    """Columns of names, then columns of figures."""
    return [*(Column(name, number=False) for name in names), *(Column(name) for name in figures)]


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
    return Cell(f"{value:,}", link if value else "", value=value)


def percent(value: float | None, digits: int = 0) -> str:
    """A share, e.g. "98 %"; a share that is not all, or not none, is not rounded to 100 % or 0 %."""
    if value is None:
        return ABSENT
    text = f"{100 * value:.{digits}f}"
    if (float(text) in {0.0, 100.0}) and value not in {0.0, 1.0}:
        text = f"{100 * value:.{digits + 1}f}"
    return f"{text} %"


def figure(value: float | None, digits: int = 2) -> str:
    """A figure with a fixed number of digits."""
    return ABSENT if value is None else f"{value:.{digits}f}"


def format_cost(usage: Usage) -> str:
    """The cost; "≥" marks a lower bound, "unknown" a cost without prices."""
    if not usage.HasField("cost_usd"):
        return "unknown" if usage.provider_call_count else "none"
    mark = "≥ " if usage.unpriced_call_count else ""
    return f"{mark}${usage.cost_usd:,.4f}"


def share_cell(value: float | None, link: str = "", *, heat: bool = False, title: str = "") -> Cell:
    """A share as a percentage."""
    return Cell(percent(value, 1), link, heat_of(value, SHARE) if heat else None, title)


def value_of(found: Estimate) -> float | None:
    """The value of an estimate, or None."""
    return found.value if found.HasField("value") else None


def estimate_cell(
    found: Estimate,
    link: str = "",
    *,
    scale: Scale = SHARE,
    heat: bool = False,
    show: Callable[[float | None], str] = lambda value: percent(value, 1),
) -> Cell:
    """An estimate; the title states its interval and its coverage."""
    value = value_of(found)
    parts = [f"{found.count:,} of {found.total:,} judged"] if found.total else []
    if found.HasField("lower") and found.HasField("upper"):
        parts.append(f"95 % interval {show(found.lower)} to {show(found.upper)}")
    if found.undefined:
        parts.append(f"undefined: {found.undefined}")
    heated = heat_of(value, scale) if heat else None
    return Cell(show(value), link, heated, ", ".join(parts), value=value)


def interval_text(found: Estimate, show: Callable[[float | None], str]) -> str:
    """The interval of an estimate as text, e.g. "0.50 to 0.75"."""
    if not (found.HasField("lower") and found.HasField("upper")):
        return ABSENT
    return f"{show(found.lower)} to {show(found.upper)}"


def interval_cell(found: Estimate, scale: Scale, show: Callable[[float | None], str]) -> Cell:
    """An estimate with its interval, drawn on a scale."""
    text = f"{show(value_of(found))}, 95 % interval {interval_text(found, show)}"
    bounds = (found.lower, found.upper) if found.HasField("lower") and found.HasField("upper") else None
    return Cell(text, interval=interval_of(value_of(found), bounds, scale))


def heat_of(value: float | None, scale: Scale) -> int | None:
    """The colour of a value on a scale; None outside of it."""
    low, high = scale
    if value is None or not low <= value <= high or high <= low:
        return None
    return round(HEAT_STEPS * (value - low) / (high - low))


def name_cell(name: str, link: str = "", absent: str = "(unnamed)") -> Cell:
    """A name, or a placeholder for an empty one."""
    return Cell(name or absent, link)


def group_key(tags: Mapping[str, str], names: Sequence[str]) -> str:
    """The values of a group as one key, in the order of the grouping."""
    return "\x1f".join(tags[name] for name in names)


def group_rows(names: Sequence[str], rows: Iterable[Grouped]) -> Sequence[tuple[Sequence[Cell], str]]:
    """The header cells and the key of each group, for ``matrix``."""
    groups = {group_key(one.tags, names): one.tags for one in rows}
    return [([name_cell(tags[name], absent="(none)") for name in names], key) for key, tags in groups.items()]


def matrix(
    caption: str,
    head: Sequence[str],
    rows: Sequence[tuple[Sequence[Cell], str]],
    across: Sequence[str],
    cell: Callable[[str, str], Cell | None],
) -> Table:
    """A table with a cell for each row and each name across; cells that do not exist are blank.

    Args:
        caption: The caption.
        head: The names of the header columns.
        rows: The header cells of each row, and its key.
        across: The names of the other columns.
        cell: Makes the cell of a row's key and a column.
    """
    made = [[*heads, *(cell(key, name) or Cell(ABSENT) for name in across)] for heads, key in rows]
    shown = [name or "(unnamed)" for name in across]
    return Table(caption, columns(*head, figures=shown), made, heads=len(head))
