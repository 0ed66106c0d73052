"""Measures rows of Parquet before they are decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

VALUE_BYTES = 64
"""The size counted for each value besides its text: about that of a Python object."""


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
