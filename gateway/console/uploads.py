"""Reads the uploaded file of a run as ``dramaturg eval`` does; a large one in a process with limits."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToJson

from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.formats.evaluated_file import FileError, read_file, request_type
from dramaturg.service.errors import invalid
from gateway.processes.process import Ask, LimitedProcess, ProcessDiedError, ProcessLimits, TaskError

MAX_BYTES = 15 << 20
"""The most bytes of a file, and of the rows that it becomes: those of the content of a run's dataset."""

_SMALL_BYTES = 256 << 10
"""The most bytes of a file that is read in this process, if it is text."""
_LIMITS = ProcessLimits(512 << 20, modules=("pyarrow.compute", "pyarrow.parquet"), cpu_seconds=30)
_GZIP, _ZIP, _PARQUET = b"\x1f\x8b", b"PK", b"PAR1"
_SHOWN, _SHOWN_CHARACTERS = 3, 160


@dataclass(frozen=True)
class UploadedRows:
    """The rows of a file."""

    kind: str = ""
    """The kind of evaluation. Empty: it has none, see ``problem``."""
    described: str = ""
    """What the file was taken for."""
    names: Sequence[str] = ()
    """The columns of a table."""
    columns: Mapping[str, str] | None = None
    """The column of each purpose that a table of texts has."""
    first: Sequence[tuple[str, str, str]] = ()
    """Task, model and text of the first texts."""
    has_criteria: bool = False
    """Whether every row has a rubric."""
    compares: bool = False
    """Whether its judges can be compared with others."""
    problem: str = ""
    """Why the file cannot be evaluated. Empty: it can."""
    content: bytes = b""
    """The requests as JSON Lines."""


def read_upload(
    name: str, data: bytes, given: Mapping[str, str], shadows: Sequence[tuple[str, str]] = ()
) -> UploadedRows:
    """Reads a file. Blocks.

    Args:
        name: Its name, whose end tells how it is written.
        data: Its content.
        given: The columns of a table of texts by purpose; empty ones are inferred.
        shadows: Roles and judges that every request is sent to beside its judges, to compare them.

    Raises:
        ServiceError: INVALID_ARGUMENT: it needs too much memory or time.
    """
    end = "".join(re.findall(r"\.[a-z0-9]{1,8}", name.casefold())[-2:])
    binary = data.startswith((_GZIP, _ZIP, _PARQUET))
    if len(data) <= _SMALL_BYTES and not binary:
        head, content = _read(end, data, given, shadows)
    else:
        try:
            with LimitedProcess(_LIMITS) as process:
                first, *rest = process.pieces(_pieces, end, data, dict(given), list(shadows))
        except (ProcessDiedError, TaskError) as error:
            raise invalid("file", "needs more memory or time than the gateway gives a file") from error
        head, content = json.loads(first), b"".join(rest)
    if len(content) > MAX_BYTES:
        head = {"problem": f"its rows have more than {MAX_BYTES >> 20} MiB"}
    return UploadedRows(**{**head, "content": content if head.get("kind") else b""})


def _pieces(
    ask: Ask, end: str, data: bytes, given: Mapping[str, str], shadows: Sequence[tuple[str, str]]
) -> Iterator[bytes]:
    """The task of the process."""
    del ask
    head, content = _read(end, data, given, shadows)
    yield json.dumps(head).encode()
    yield content[: MAX_BYTES + 1]


def _read(
    end: str, data: bytes, given: Mapping[str, str], shadows: Sequence[tuple[str, str]]
) -> tuple[dict[str, Any], bytes]:
    with tempfile.TemporaryDirectory(prefix="dramaturg-") as folder:
        file = Path(folder) / f"rows{end}"
        file.write_bytes(data)
        try:
            found = read_file(str(file), given=given)
        except FileError as error:
            return {"names": list(error.columns), "problem": str(error)}, b""
        except MemoryError:
            return {"problem": "needs more memory than the gateway gives a file"}, b""
    compares = "shadows" in request_type(found.kind).DESCRIPTOR.fields_by_name
    for request in found.requests if compares else ():
        request.shadows.extend(JudgeSelection(role=role, judge=judge) for role, judge in shadows)
    lines = (MessageToJson(request, indent=None).encode() + b"\n" for request in found.requests)
    texts = found.requests if found.kind == "texts" else ()
    head = {
        "kind": found.kind,
        "described": found.described,
        "names": list(found.names),
        "columns": dict(found.columns) if found.names else None,
        "first": [
            [_short(request.task.goal), one.model, _short(one.text)]
            for request in texts[:_SHOWN]
            for one in request.texts[:_SHOWN]
        ][:_SHOWN],
        "compares": compares,
        "has_criteria": bool(texts) and all(request.criteria for request in texts),
    }
    return head, b"".join(lines)


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"
