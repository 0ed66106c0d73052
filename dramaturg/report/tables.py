"""Tables of the page: cells with links to samples, colours and intervals. The template draws them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import urlencode

from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.report.charts import Interval, PointMap, interval_of
from dramaturg.results.groups import Grouped
from dramaturg.results.quantities import money

ABSENT = "–"
"""The text of a figure that does not exist."""
HEAT_STEPS = 10
"""The strongest of the colours of a cell; the weakest is 0."""
LEAST_HEAT_SPAN = 0.2
"""The least part of a scale over which the colours of a table spread: small differences look small."""

INTERVAL = "95 % interval"
"""The name of a column with the ends of intervals."""
RELATIVE = "relative to the largest"
"""The name of a column with bars of counts."""

Scale = tuple[float, float]
"""The lowest and the highest value of a measure."""

SHARE: Scale = (0.0, 1.0)
SMALLEST_P = 0.001
"""A smaller p-value is shown as less than it."""


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str
    link: str = ""
    """The fragment of a filter of samples, see ``samples_link``. Empty: none."""
    heat: float | None = None
    """The place on its scale, in [0, 1], which gives the colour. None: it has none."""
    title: str = ""
    """What the figure rests on, e.g. "12 of 14 judged". Also read by screen readers."""
    interval: Interval | None = None
    """An interval drawn instead of the text, which describes it."""
    ends: str = ""
    """The ends of the drawn interval, which stand beside it. Empty: another column has them."""
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

    @cached_property
    def heat_range(self) -> tuple[float, float]:
        """The places that have the first colour and the last one.

        The colours spread from the least to the largest place, over at least ``LEAST_HEAT_SPAN``.
        """
        places = [one.heat for row in self.rows for one in row if one.heat is not None]
        low, high = min(places, default=0.0), max(places, default=1.0)
        span = max(high - low, LEAST_HEAT_SPAN)
        start = min(max(0.0, (low + high - span) / 2), 1.0 - span)
        return start, start + span

    def shade(self, cell: Cell) -> int:
        """The colour of a cell with a place on its scale, from 0 to ``HEAT_STEPS``."""
        start, end = self.heat_range
        return round(HEAT_STEPS * min(1.0, max(0.0, ((cell.heat or 0.0) - start) / (end - start))))

    def heat_ends(self) -> Sequence[Cell]:
        """The cells with the least and the largest place, for the legend. Empty: all places are equal."""
        cells = [one for row in self.rows for one in row if one.heat is not None]
        low, high = (find(cells, key=lambda one: one.heat or 0.0, default=None) for find in (min, max))
        return () if low is None or high is None or low.heat == high.heat else (low, high)


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
    value, ends = value_of(found), interval_text(found, show)
    if value is None:
        return Cell(ABSENT, title=f"undefined: {found.undefined}" if found.undefined else "")
    bounds = (found.lower, found.upper) if ends != ABSENT else None
    text = f"{show(value)}, 95 % interval {ends}" if bounds else f"{show(value)}, without an interval"
    return Cell(text, interval=interval_of(value, bounds, scale), ends=ends if bounds else "no interval")


def heat_of(value: float | None, scale: Scale) -> float | None:
    """The place of a value on a scale, in [0, 1]; None outside of it."""
    low, high = scale
    if value is None or not low <= value <= high or high <= low:
        return None
    return (value - low) / (high - low)


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
