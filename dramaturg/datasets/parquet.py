"""Columns of tables as fields of requests, and tables in Parquet.

A column is named by the path of a field, such as ``task.goal``, ``candidates.0.text`` or ``tags.level``, in
the contract's spelling or that of protobuf's JSON. A path that ends at a list, a map or a message holds all
of it. Columns of Parquet may also be nested as the request's fields.

The sizes in a Parquet file are those of its encoded data: a text that a dictionary holds once may be referred
to any number of times. Columns with a dictionary are therefore kept encoded, and each row is measured before
it is decoded.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any, BinaryIO, NamedTuple, NoReturn

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from dramaturg.datasets.json_lines import Record
from dramaturg.datasets.source import (
    MAX_LINE_BYTES,
    DatasetError,
    check_decoded_bytes,
    check_row_count,
    missing,
)
from dramaturg.service.errors import Violation

MAX_ELEMENTS = 10_000
"""The highest number of an element that a column may name."""
SHOWN_DEPTH = 3
"""How deep fields are looked for that are like a column that is none."""

TEXTS = frozenset({"google.protobuf.Timestamp", "google.protobuf.Duration", "google.protobuf.FieldMask"})
"""Messages that are strings in protobuf's JSON."""

Path = tuple[str | int, ...]


class Column(NamedTuple):
    """A column and the place in the request that it fills."""

    name: str
    """As the header has it."""
    path: Path
    """The names of fields, the numbers of elements, and the keys of maps, from the request on."""
    field: FieldDescriptor
    """The last field of the path."""
    is_element: bool
    """Whether it holds one element of that field, which is a list or a map."""


Read = Callable[[Any, FieldDescriptor, bool], Any]
"""Turns what a table holds for a field, or for one of its elements, into its value in protobuf's JSON. None:
there is nothing. Raises ValueError where it cannot be."""


def find_columns(names: Sequence[str], message: Descriptor) -> Sequence[Column]:
    """The columns of a header.

    Raises:
        DatasetError: A column is no field of the message, or two set the same.
    """
    columns = [_find(name, message) for name in names]
    taken: dict[Path, str] = {}
    for column in columns:
        if column.path in taken:
            raise DatasetError(
                f'has the columns "{taken[column.path]}" and "{column.name}", which set the same field', 1
            )
        taken[column.path] = column.name
    for column in columns:
        for length in range(1, len(column.path)):
            if whole := taken.get(column.path[:length]):
                raise DatasetError(
                    f'has the column "{column.name}", which sets a part of what "{whole}" sets', 1
                )
    return columns


def assemble(columns: Sequence[Column], cells: Sequence[Any], read: Read) -> dict[str, Any] | Violation:
    """The JSON value of a row without empty values and empty elements of lists.

    Args:
        columns: The columns.
        cells: What the row holds, in their order.
        read: Reads one cell.
    """
    value = _Parts()
    for column, cell in zip(columns, cells, strict=True):
        try:
            found = read(cell, column.field, column.is_element)
        except (ValueError, OverflowError) as error:
            return Violation(column.name, str(error))
        if found is None:
            continue
        place = value
        for step in column.path[:-1]:
            place = place.setdefault(step, _Parts())
        place[column.path[-1]] = found
    settled: dict[str, Any] = _settle(value)
    return settled


def is_map(field: FieldDescriptor) -> bool:
    """Whether a field is a map."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


class _Parts(dict[str | int, Any]):
    """What columns make of a message or list, apart from what one cell holds."""


def _settle(value: Any) -> Any:
    """Puts lists where parts are numbered."""
    if not isinstance(value, _Parts):
        return value
    if value and all(isinstance(key, int) for key in value):
        return [_settle(value[key]) for key in sorted(value)]
    return {key: _settle(part) for key, part in value.items()}


def _find(name: str, message: Descriptor) -> Column:
    path: list[str | int] = []
    steps = name.split(".")
    inside: Descriptor | None = message
    field: FieldDescriptor | None = None
    while steps:
        step = steps.pop(0)
        if field is not None and is_map(field):
            # Keys may have dots.
            return Column(name, (*path, ".".join([step, *steps])), _value_of(field), False)
        if field is not None and field.is_repeated:
            if not step.isdecimal() or int(step) > MAX_ELEMENTS:
                fault = f"in which {step!r} is no number from 0 to {MAX_ELEMENTS}"
                raise DatasetError(f'has the column "{name}", {fault}', 1)
            path.append(int(step))
            if not steps:
                return Column(name, tuple(path), field, True)
            inside, field = field.message_type, None
            continue
        if field is not None:
            inside = field.message_type
        field = _field(inside, step) if inside is not None else None
        if field is None:
            raise _unknown(name, message)
        path.append(field.name)
    assert field is not None
    return Column(name, tuple(path), field, False)


def _value_of(field: FieldDescriptor) -> FieldDescriptor:
    assert field.message_type is not None
    return field.message_type.fields_by_name["value"]


def _field(message: Descriptor, name: str) -> FieldDescriptor | None:
    return message.fields_by_name.get(name) or message.fields_by_camelcase_name.get(name)


def _unknown(name: str, message: Descriptor) -> DatasetError:
    shown = name[:200]
    near = get_close_matches(shown, list(_paths(message, SHOWN_DEPTH)), n=3, cutoff=0.6)
    known = f"the nearest are {', '.join(near)}" if near else f"there are {', '.join(message.fields_by_name)}"
    hint = "; columns are separated by commas" if ";" in name or "\t" in name else ""
    return DatasetError(f'has the column "{shown}", which is no field of {message.name}; {known}{hint}', 1)


def _paths(message: Descriptor, depth: int) -> Iterator[str]:
    for field in message.fields:
        yield field.name
        if is_map(field) or field.message_type is None or depth == 1:
            continue
        start = f"{field.name}.0" if field.is_repeated else field.name
        yield from (f"{start}.{rest}" for rest in _paths(field.message_type, depth - 1))


VALUE_BYTES = 64
"""The size counted for each value besides its text: about that of a Python object."""
BATCH_BYTES = 4 << 20
"""The approximate size of a batch, encoded, by the metadata of its row group."""
BATCH_ROWS = 256
"""The most rows of a batch."""
UNBOUNDED_BATCH_ROWS = 16
"""The most rows of a batch where a column has an encoding that expands without a dictionary."""
BUFFER_BYTES = 1 << 20
"""How much of a column is read at once."""

_PANDAS_INDEX = "__index_level_"
_BOUNDED_ENCODINGS = frozenset({"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"})
_SHOWN_LENGTH = 300


def row_sizes(batch: Any) -> Sequence[int]:
    """The size of each row of a record batch as Python objects, in bytes.

    Texts in a dictionary count once for each reference.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    total = pa.repeat(pa.scalar(0, pa.int64()), batch.num_rows)
    for column in batch.columns:
        total = pc.add(total, _sizes(pa, pc, column))
    sizes: list[int] = total.to_pylist()
    return sizes


def _sizes(pa: Any, pc: Any, array: Any) -> Any:
    """The size of each value of an array, as an array of 64-bit integers without nulls."""
    kind = array.type
    types = pa.types
    if types.is_map(kind):
        array = array.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
        kind = array.type
    if types.is_dictionary(kind):
        of_entries = _sizes(pa, pc, array.dictionary)
        return pc.fill_null(pc.take(of_entries, array.indices), VALUE_BYTES)
    if types.is_struct(kind):
        sizes = _fixed(pa, len(array))
        for part in array.flatten():
            sizes = pc.add(sizes, _sizes(pa, pc, part))
        return sizes
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        first = pa.array([0], pa.int64())
        sums = pa.concat_arrays([first, pc.cumulative_sum(_sizes(pa, pc, array.flatten()))])
        lengths = pc.cast(pc.fill_null(pc.list_value_length(array), 0), pa.int64())
        ends = pc.cumulative_sum(lengths)
        inside = pc.subtract(pc.take(sums, ends), pc.take(sums, pc.subtract(ends, lengths)))
        return pc.add(_fixed(pa, len(array)), inside)
    if types.is_fixed_size_binary(kind):
        return pa.repeat(pa.scalar(kind.byte_width + VALUE_BYTES, pa.int64()), len(array))
    try:
        lengths = pc.binary_length(array)
    except pa.ArrowNotImplementedError:  # no text
        return _fixed(pa, len(array))
    return pc.add(_fixed(pa, len(array)), pc.cast(pc.fill_null(lengths, 0), pa.int64()))


def _fixed(pa: Any, count: int) -> Any:
    return pa.repeat(pa.scalar(VALUE_BYTES, pa.int64()), count)


def read_parquet(
    file: BinaryIO, message: Descriptor, max_rows: int | None = None, max_bytes: int | None = None
) -> Iterator[Record]:
    """The rows of a file that is open in binary and seekable.

    Args:
        file: The file.
        message: The type of request that each row is.
        max_rows: The most rows of the file. None: any number.
        max_bytes: The most bytes of all decoded rows. None: any number.

    Raises:
        DatasetError: It is not a Parquet file, or damaged; a column is no field; it exceeds a limit; pyarrow
            is not installed.
    """
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise missing("Parquet", "pyarrow") from error
    row = total = 0
    try:
        metadata = parquet.read_metadata(file)
        check_row_count(metadata.num_rows, max_rows)
        dictionaries, is_bounded = _text_columns(metadata)
        table = parquet.ParquetFile(
            file, metadata=metadata, read_dictionary=dictionaries, buffer_size=BUFFER_BYTES, pre_buffer=False
        )
        names = [name for name in table.schema_arrow.names if not name.startswith(_PANDAS_INDEX)]
        if metadata.num_rows and not names:
            raise DatasetError("has rows and no columns")
        columns = find_columns(names, message)
        most = _batch_rows(metadata, BATCH_ROWS if is_bounded else UNBOUNDED_BATCH_ROWS)
        for batch in _batches(table, most, names):
            # One row at a time: as Python objects a whole batch takes many times its bytes.
            for index, size in enumerate(row_sizes(batch)):
                row += 1
                total += size
                check_decoded_bytes(total, max_bytes)
                yield _record(row, size, columns, batch, index)
    except (ArrowException, OSError) as error:
        place = f" after row {row}" if row else ""
        raise DatasetError(f"cannot be read as Parquet{place}: {_short(str(error))}") from error


def _text_columns(metadata: Any) -> tuple[list[str], bool]:
    """The columns to read as dictionaries, and whether no other column of texts expands."""
    encodings: dict[str, set[str]] = {}
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for index in range(group.num_columns):
            chunk = group.column(index)
            if chunk.physical_type == "BYTE_ARRAY":
                encodings.setdefault(chunk.path_in_schema, set()).update(chunk.encodings)
    bounded = [path for path, names in encodings.items() if names <= _BOUNDED_ENCODINGS]
    return bounded, len(bounded) == len(encodings)


def _batch_rows(metadata: Any, most: int) -> int:
    """How many rows to decode at once.

    Raises:
        DatasetError: A row is larger than a line may be.
    """
    groups = (metadata.row_group(index) for index in range(metadata.num_row_groups))
    size = max((group.total_byte_size / group.num_rows for group in groups if group.num_rows), default=1.0)
    if size > MAX_LINE_BYTES:
        raise DatasetError(f"has rows of {_megabytes(size)} on average; at most {_ROW_LIMIT} are allowed")
    return max(1, min(most, int(BATCH_BYTES / max(size, 1.0))))


def _batches(table: Any, most: int, names: Sequence[str]) -> Iterator[Any]:
    # By row group: nested columns cannot have the dictionaries of two in one batch.
    for group in range(table.num_row_groups):
        yield from table.iter_batches(most, row_groups=[group], columns=names, use_threads=False)


def _record(row: int, size: int, columns: Sequence[Any], batch: Any, index: int) -> Record:
    if size > MAX_LINE_BYTES:
        fault = f"has {_megabytes(size)} when it is decoded; at most {_ROW_LIMIT} are allowed"
        return Record(row, None, Violation("", fault))
    cells = []
    for column, array in zip(columns, batch.columns, strict=True):
        try:
            cells.append(array[index].as_py())
        except MemoryError:
            raise
        # Texts that are not UTF-8, times out of range, unknown time zones and more, each with its own type.
        except Exception as error:
            return Record(row, None, Violation(column.name, _short(f"cannot be decoded: {error}")))
    value = assemble(columns, cells, _read)
    return Record(row, None, value) if isinstance(value, Violation) else Record(row, value)


def _megabytes(size: float) -> str:
    return f"{size / 2**20:.0f} MiB"


_ROW_LIMIT = _megabytes(MAX_LINE_BYTES)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}…"


def _read(value: Any, field: FieldDescriptor, is_element: bool) -> Any:
    """The value in protobuf's JSON. Nulls are left out."""
    if value is None:
        return None
    if is_map(field):
        return _read_map(value, field)
    if field.is_repeated and not is_element:
        if not isinstance(value, list):
            _refuse(value, "list")
        return [_read(element, field, True) for element in value]
    message = field.message_type
    if message is None or message.full_name in TEXTS:
        return _read_scalar(value, field)
    if not isinstance(value, dict):
        _refuse(value, "struct")
    return _read_struct(value, message)


def _refuse(value: Any, wanted: str) -> NoReturn:
    raise ValueError(f"is not a {wanted} but {type(value).__name__}")


def _read_map(value: Any, field: FieldDescriptor) -> Any:
    # A map column comes as pairs, a struct as a dict.
    pairs = value.items() if isinstance(value, dict) else value
    if not isinstance(value, dict | list):
        _refuse(value, "map")
    assert field.message_type is not None
    of_value = field.message_type.fields_by_name["value"]
    read = ((key, _read(part, of_value, False)) for key, part in pairs)
    return {key: part for key, part in read if part is not None}


def _read_struct(value: dict[str, Any], message: Descriptor) -> Any:
    read = {}
    for name, part in value.items():
        field = message.fields_by_name.get(name) or message.fields_by_camelcase_name.get(name)
        # The parser names a member that is no field.
        found = part if field is None else _read(part, field, False)
        if found is not None:
            read[name] = found
    return read


def _read_scalar(value: Any, field: FieldDescriptor) -> Any:
    if isinstance(value, bytes):
        if field.type == FieldDescriptor.TYPE_BYTES:
            return base64.b64encode(value).decode()
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"is not UTF-8: {error.reason} at byte {error.start}") from error
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        try:
            return aware.astimezone(UTC).isoformat().replace("+00:00", "Z")
        except OverflowError as error:
            raise ValueError(f"is out of range: {error}") from error
    if isinstance(value, timedelta):
        return f"{value.total_seconds():.9f}s"
    return value
