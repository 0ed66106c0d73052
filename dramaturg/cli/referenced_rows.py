"""Rows that the gateway reads itself: what a command sets in each row becomes the options of the run."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from google.protobuf.message import Message

from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.cli.evaluation_runs import RunRows
from dramaturg.cli.fields import Setting
from dramaturg.cli.platform import fail
from dramaturg.cli.runs.spec import make_dataset
from dramaturg.datasets import Format
from dramaturg.kinds import find_request_kind

_OF_THE_RUN = ("models", "judges", "options", "unusable_outputs_abstain")
"""The fields of a row that a run has too, beside the options of its kind."""


def referenced_rows(
    file: str,
    form: Format | None,
    limit: int | None,
    requests: Sequence[Message],
    models: Sequence[str],
    settings: Sequence[Setting],
) -> RunRows:
    """The rows of a file or an address as the gateway will find them.

    Args:
        file: The path or the address.
        form: How the rows are written. None: as the end of the name tells.
        limit: The number of rows. None: all.
        requests: What the command makes of an empty row.
        models: Models that write a candidate for every row.
        settings: The fields of rows that the command sets.

    Raises:
        typer.Exit: 2 with a message where a run has no such options, or the file has no address.
    """
    if len(requests) != 1:
        fail("--by-reference: each row is one sample, and the command makes several of it")
    (row,) = requests
    kind = find_request_kind(row.DESCRIPTOR.name)
    assert kind is not None
    spec = RunSpec(dataset=make_dataset(file, form, limit=limit), models=models)
    options = getattr(spec, kind.name)
    options.SetInParent()
    if unset := [one.path for one in settings if one.value == "false"]:
        fail(f"--by-reference: a run cannot set {unset[0]} to false; rows may")
    for field, value in row.ListFields():
        if field.name in ("id", "tags"):
            continue  # what a command notes of a row, such as its line
        owner = spec if field.name in _OF_THE_RUN else options
        if field.name not in owner.DESCRIPTOR.fields_by_name:
            fail(f"--by-reference: {field.name} cannot be set for a run; rows may bring it")
        if field.message_type is not None and not field.is_repeated:
            getattr(owner, field.name).CopyFrom(value)
        elif field.is_repeated:
            getattr(owner, field.name).extend(value)
        else:
            setattr(owner, field.name, value)
    digest = hashlib.sha256(spec.SerializeToString(deterministic=True)).digest()
    return RunRows(None, kind.name, models=models, digest=digest, referenced=spec)
