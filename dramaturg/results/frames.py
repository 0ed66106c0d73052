"""Judgements as Python objects, Arrow tables and pandas frames; the columns of these and of exports.

An absent value is absent: a protobuf message returns 0.0 for an absent number; here it is None, and null in
tables.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from google.protobuf.json_format import MessageToDict

from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.results.names import outcome_name, reason_name

if TYPE_CHECKING:
    import pandas
    import pyarrow


COLUMNS: Mapping[str, Callable[[RunResult], Any]] = {
    "sample_index": lambda result: result.sample_index,
    "sample_id": lambda result: result.sample_id,
    "model": lambda result: result.model,
    "candidate_id": lambda result: result.candidate_id,
    "measure": lambda result: result.measure,
    "outcome": lambda result: outcome_name(result.outcome) or None,
    "abstain_reason": lambda result: reason_name(result.abstain_reason) or None,
    "failure_reason": lambda result: reason_name(result.failure_reason) or None,
    "value": lambda result: result.value if result.HasField("value") else None,
    "confidence": lambda result: result.confidence if result.HasField("confidence") else None,
    "measured_confidence": lambda result: (
        result.measured_confidence if result.HasField("measured_confidence") else None
    ),
    "label": lambda result: result.label,
    "role": lambda result: result.role,
    "judge": lambda result: result.judge,
    "rationale": lambda result: result.rationale,
    "findings": lambda result: (
        compact_json([MessageToDict(finding) for finding in result.findings]) if result.findings else None
    ),
    "provenance": lambda result: (
        compact_json(MessageToDict(result.provenance)) if result.HasField("provenance") else None
    ),
}
"""The columns of a table of judgements before those of tags, with their values. None: absent."""


def header(tags: Sequence[str]) -> list[str]:
    """The names of all columns.

    Args:
        tags: The tags with a column "tags.<name>".
    """
    return [*COLUMNS, *(f"tags.{tag}" for tag in tags)]


def table_row(result: RunResult, tags: Sequence[str]) -> list[Any]:
    """The cells of a judgement: those of COLUMNS, then one for each tag."""
    return [*(cell(result) for cell in COLUMNS.values()), *(result.tags.get(tag) for tag in tags)]


def arrow_schema(pyarrow: Any, tags: Sequence[str]) -> Any:
    """The schema of a table of judgements: numbers, and text for all other columns.

    Args:
        pyarrow: The module, which is imported only where it is used.
        tags: The tags with a column.
    """
    numbers = {
        "sample_index": pyarrow.uint64(),
        **dict.fromkeys(("value", "confidence", "measured_confidence"), pyarrow.float64()),
    }
    return pyarrow.schema([(name, numbers.get(name, pyarrow.string())) for name in header(tags)])


def compact_json(value: Any) -> str:
    """JSON without spaces between values."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_FIELDS = RunResult.DESCRIPTOR.fields_by_name
_EXTRA = "install the extra dramaturg[frames]"


class ResultRow:
    """One judgement: the fields of ``evaluation.v1.RunResult``, with None for absent ones.

    Args:
        message: The message.

    Attributes:
        message: The message.
    """

    __slots__ = ("message",)

    def __init__(self, message: RunResult) -> None:
        self.message = message

    @property
    def value(self) -> float | None:
        """The value; None for an abstention."""
        return self.message.value if self.message.HasField("value") else None

    @property
    def confidence(self) -> float | None:
        """The judge's probability that the judgement is right; None if it is not stated."""
        return self.message.confidence if self.message.HasField("confidence") else None

    def __getattr__(self, name: str) -> Any:
        """A field of the message; None for a message that is absent.

        Raises:
            AttributeError: There is no such field.
        """
        if name not in _FIELDS:
            raise AttributeError(f"RunResult has no field {name!r}")
        if _FIELDS[name].has_presence and not self.message.HasField(name):  # type: ignore[arg-type]  # a field
            return None
        return getattr(self.message, name)

    def __eq__(self, other: object) -> bool:
        """Whether the other is a row with an equal message."""
        return isinstance(other, ResultRow) and self.message == other.message

    __hash__ = None  # type: ignore[assignment]  # messages are mutable

    def __repr__(self) -> str:
        """The fields that are set."""
        return f"ResultRow({' '.join(str(self.message).split())})"


class ResultStream(AsyncIterator[ResultRow]):
    """Judgements of a run. They are requested while they are read, once.

    Args:
        rows: The messages, in order.
    """

    def __init__(self, rows: AsyncGenerator[RunResult]) -> None:
        self._rows = rows

    async def __anext__(self) -> ResultRow:
        """The next judgement."""
        return ResultRow(await anext(self._rows))

    async def aclose(self) -> None:
        """Ends the requests."""
        await self._rows.aclose()

    async def to_arrow(self) -> pyarrow.Table:
        """The judgements that are not yet read as a table; see ``arrow_table``.

        Raises:
            ImportError: pyarrow is not installed. The message names the extra.
            ServiceError: A request fails.
        """
        build = _Builder()
        async for row in self._rows:
            build.add(row)
        return build.table()

    async def to_pandas(self) -> pandas.DataFrame:
        """The table of ``to_arrow`` as a frame; see ``pandas_frame``.

        Raises:
            ImportError: pyarrow or pandas is not installed. The message names the extra.
            ServiceError: A request fails.
        """
        _require_pandas()
        return _frame(await self.to_arrow())


def arrow_table(rows: Iterable[RunResult]) -> pyarrow.Table:
    """A table of judgements, with the columns of exports and one for each tag, "tags.<name>".

    An absent value is null, e.g. the value of an abstention. Findings and provenance are JSON.

    Raises:
        ImportError: pyarrow is not installed. The message names the extra.
    """
    build = _Builder()
    for row in rows:
        build.add(row)
    return build.table()


def pandas_frame(rows: Iterable[RunResult]) -> pandas.DataFrame:
    """The table of ``arrow_table`` as a frame of Arrow's types, in which an absent value is ``pandas.NA``.

    Raises:
        ImportError: pyarrow or pandas is not installed. The message names the extra.
    """
    _require_pandas()
    return _frame(arrow_table(rows))


class _Builder:
    """Collects the columns; those of tags are known after the last row."""

    def __init__(self) -> None:
        try:
            import pyarrow
        except ImportError as error:
            raise ImportError(f"tables need pyarrow: {_EXTRA}") from error
        self._pyarrow = pyarrow
        self._columns: list[list[Any]] = [[] for _ in COLUMNS]
        self._tags: dict[str, list[str | None]] = {}
        self._count = 0

    def add(self, row: RunResult) -> None:
        for column, cell in zip(self._columns, table_row(row, ()), strict=True):
            column.append(cell)
        for name in row.tags:
            self._tags.setdefault(name, [None] * self._count)
        for name, values in self._tags.items():
            values.append(row.tags.get(name))
        self._count += 1

    def table(self) -> pyarrow.Table:
        tags = sorted(self._tags)
        schema = arrow_schema(self._pyarrow, tags)
        columns: Sequence[Sequence[Any]] = [*self._columns, *(self._tags[tag] for tag in tags)]
        arrays = [
            self._pyarrow.array(values, type=field.type)
            for values, field in zip(columns, schema, strict=True)
        ]
        return self._pyarrow.Table.from_arrays(arrays, schema=schema)


def _require_pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ImportError(f"frames need pandas: {_EXTRA}") from error
    return pandas


def _frame(table: pyarrow.Table) -> pandas.DataFrame:
    frame: pandas.DataFrame = table.to_pandas(types_mapper=_require_pandas().ArrowDtype)
    return frame
