"""Reads the dataset of a run as samples."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any, BinaryIO

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.error_status_pb2 import STATUS_CODE_INVALID_ARGUMENT
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.run_pb2 import (
    Dataset,
    DatasetFormat,
    DatasetManifest,
    RowError,
    RunSample,
    RunSpec,
    SampleError,
)
from dramaturg.datasets import (
    DatasetError,
    DatasetReader,
    Format,
    InvalidRow,
    format_of,
    sample_id,
)
from dramaturg.datasets.source import ENDS
from dramaturg.service.errors import invalid
from gateway.evaluations.kinds import run_kind
from gateway.runs.dataset_access import URI_SCHEMES, DatasetAccess
from gateway.runs.records import NewSample

__all__ = [
    "URI_SCHEMES",
    "DatasetAccess",
    "SampleReader",
    "check_dataset",
    "dataset_format",
]

_FORMATS = {
    run_pb2.DATASET_FORMAT_JSONL: Format.JSONL,
    run_pb2.DATASET_FORMAT_CSV: Format.CSV,
    run_pb2.DATASET_FORMAT_PARQUET: Format.PARQUET,
}
FORMAT_VALUES = {form: value for value, form in _FORMATS.items()}
"""The values of the formats in the contract."""


def check_dataset(dataset: Dataset, access: DatasetAccess) -> None:
    """Refuses a dataset that is unreadable for a reason known before it is read.

    Raises:
        ServiceError: INVALID_ARGUMENT naming the field.
    """
    source = dataset.WhichOneof("source")
    if source is None:
        raise invalid("spec.dataset", "has neither a uri nor content nor a dataset_id")
    if source == "uri":
        access.check(dataset.uri)
    dataset_format(dataset)


def dataset_format(dataset: Dataset) -> Format:
    """The format of a dataset, from its field or its name.

    Raises:
        ServiceError: INVALID_ARGUMENT: neither tells it.
    """
    if dataset.format in _FORMATS:
        return _FORMATS[dataset.format]
    if dataset.WhichOneof("source") != "uri":
        return Format.JSONL
    found = format_of(dataset.uri)
    if found is None:
        ends = ", ".join(ENDS)
        raise invalid("spec.dataset.format", f"is not set, and the name ends in none of {ends}")
    return found


class SampleReader:
    """The samples of a run's dataset, read once. Iteration blocks.

    Args:
        spec: The spec of the run.
        content: The rows of the request. Ignored if the dataset has a URI.
        access: The datasets that may be read, and how much of each.

    Raises:
        ServiceError: From the iteration: the dataset must not be read.
        DatasetError: From the iteration: it cannot be opened or read to its end.
    """

    def __init__(self, spec: RunSpec, content: bytes, access: DatasetAccess) -> None:
        self._spec = spec
        self._content = content
        self._access = access
        self._manifest = DatasetManifest()

    @property
    def manifest(self) -> DatasetManifest:
        """The manifest of the dataset, complete after the iteration."""
        return self._manifest

    def __iter__(self) -> Iterator[NewSample]:
        """The samples; invalid rows are failed samples."""
        dataset = self._spec.dataset
        form = dataset_format(dataset)
        kind = run_kind(self._spec)
        try:
            with self._open() as file:
                reader = DatasetReader(
                    file,
                    kind.request_type,
                    form,
                    row_limit=dataset.row_limit or None,
                    filled=kind.written_fields(self._spec),
                    max_rows=self._access.max_rows,
                    max_bytes=self._access.max_bytes,
                )
                try:
                    for index, row in enumerate(reader):
                        yield _failed(index, row) if isinstance(row, InvalidRow) else _pending(index, row)
                finally:
                    self._manifest = _manifest(dataset.uri, reader)
        except OSError as error:
            raise DatasetError(f"cannot be read: {error.strerror or error}") from error

    @contextmanager
    def _open(self) -> Iterator[BinaryIO]:
        if self._spec.dataset.WhichOneof("source") == "uri":
            with self._access.open(self._spec.dataset.uri) as file:
                yield file
        else:
            yield BytesIO(self._content)


def _pending(index: int, row: Any) -> NewSample:
    request = row.request
    return NewSample(
        index=index,
        line=row.line,
        sample_id=sample_id(request),
        tags=dict(request.tags),
        request=request.SerializeToString(deterministic=True),
    )


def _failed(index: int, row: InvalidRow) -> NewSample:
    error = _row_error(row)
    described = f"{error.field}: {error.description}" if error.field else error.description
    failure = RunSample(
        index=index,
        line=row.line,
        state=run_pb2.SAMPLE_STATE_FAILED,
        error=SampleError(
            code=STATUS_CODE_INVALID_ARGUMENT,
            reason=error_reason_pb2.ERROR_REASON_FIELD_INVALID,
            message=described,
            field=error.field,
        ),
    )
    return NewSample(index=index, line=row.line, sample_id="", tags={}, request=b"", failure=failure)


def _row_error(row: InvalidRow) -> RowError:
    field, description = row.violations[0]
    others = f" (and {len(row.violations) - 1} more)" if len(row.violations) > 1 else ""
    return RowError(line=row.line, field=field, description=description + others)


def _manifest(uri: str, reader: DatasetReader[Any]) -> DatasetManifest:
    read = reader.manifest
    return DatasetManifest(
        uri=uri,
        format=DatasetFormat.ValueType(FORMAT_VALUES[read.format]),
        sha256=read.sha256,
        byte_count=read.byte_count,
        row_count=read.row_count,
        invalid_row_count=read.invalid_row_count,
        row_errors=map(_row_error, read.errors),
    )
