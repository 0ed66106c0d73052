"""Reads Parquet: columns named and nested as the request's fields, or by their paths as those of CSV."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO, NoReturn

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from dramaturg.datasets.columns import TEXTS, assemble, find_columns, is_map
from dramaturg.datasets.errors import DatasetError, missing
from dramaturg.datasets.formats import MAX_LINE_BYTES
from dramaturg.datasets.records import Record
from dramaturg.service.errors import Violation

BATCH_BYTES = 4 << 20
"""About how much is decoded at once, by what the file says of its row groups."""
BATCH_ROWS = 256
"""The most rows that are decoded at once."""
BUFFER_BYTES = 1 << 20
"""How much of a column is read at once."""

_PANDAS_INDEX = "__index_level_"


def read_parquet(file: BinaryIO, message: Descriptor) -> Iterator[Record]:
    """The rows of a file that is open in binary and can be read at any place.

    Raises:
        DatasetError: It is no Parquet file, or damaged; a column is no field; pyarrow is not installed.
    """
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise missing("Parquet", "pyarrow") from error
    row = 0
    try:
        table = parquet.ParquetFile(file, buffer_size=BUFFER_BYTES, pre_buffer=False)
        names = [name for name in table.schema_arrow.names if not name.startswith(_PANDAS_INDEX)]
        if table.metadata.num_rows and not names:
            raise DatasetError("has rows and no columns")
        columns = find_columns(names, message)
        for batch in table.iter_batches(_batch_rows(table.metadata), columns=names, use_threads=False):
            # One row at a time: as Python's objects a whole batch takes many times its bytes.
            for cells in zip(*(map(_as_python, array) for array in batch.columns), strict=True):
                row += 1
                value = assemble(columns, cells, _read)
                yield Record(row, None, value) if isinstance(value, Violation) else Record(row, value)
    except (ArrowException, OSError) as error:
        place = f" after row {row}" if row else ""
        raise DatasetError(f"cannot be read as Parquet{place}: {error}") from error


def _batch_rows(metadata: Any) -> int:
    """How many rows to decode at once.

    Raises:
        DatasetError: A row is larger than a line may be.
    """
    groups = (metadata.row_group(index) for index in range(metadata.num_row_groups))
    size = max((group.total_byte_size / group.num_rows for group in groups if group.num_rows), default=1.0)
    if size > MAX_LINE_BYTES:
        limit = f"{MAX_LINE_BYTES >> 20} MiB"
        raise DatasetError(f"has rows of {size / 2**20:.0f} MiB on average; at most {limit} are allowed")
    return max(1, min(BATCH_ROWS, int(BATCH_BYTES / max(size, 1.0))))


def _read(value: Any, field: FieldDescriptor, is_element: bool) -> Any:
    """The value in protobuf's JSON. Nulls are nothing."""
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


def _as_python(scalar: Any) -> Any:
    return scalar.as_py()


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
        # What is no field is left for the parser to name.
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
        return aware.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return f"{value.total_seconds():.9f}s"
    return value
