"""Applies UpdateRunRequest to a spec by its update mask (AIP-134)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from google.protobuf.message import Message

from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.api.evaluation.v1.run_service_pb2 import UpdateRunRequest
from dramaturg.service.errors import Violation, invalid_fields

_PARTS = ("limits", "budget")
"""The messages that the request has in common with the spec."""
_ALL = "*"


def update_paths(request: UpdateRunRequest) -> Sequence[str]:
    """The fields that a request sets, each as "limits.priority".

    Without a mask these are the fields of its messages that have a value.

    Raises:
        ServiceError: INVALID_ARGUMENT: the mask names an unknown field.
    """
    mask = request.update_mask.paths
    if not mask:
        return [f"{part}.{field.name}" for part in _PARTS for field, _ in getattr(request, part).ListFields()]
    unknown = [path for path in mask if not list(_expand(path))]
    if unknown:
        known = ", ".join([_ALL, *_PARTS, *_expand(_ALL)])
        raise invalid_fields(
            [Violation("update_mask", f"names {path!r}; the fields are {known}") for path in unknown]
        )
    return list(dict.fromkeys(field for path in mask for field in _expand(path)))


def updated_spec(spec: RunSpec, request: UpdateRunRequest, paths: Sequence[str]) -> RunSpec:
    """A copy of a spec with the fields of a request. A field that is absent in the request is cleared."""
    updated = RunSpec()
    updated.CopyFrom(spec)
    for path in paths:
        part, _, field = path.partition(".")
        source: Message = getattr(request, part)
        target: Message = getattr(updated, part)
        if any(descriptor.name == field for descriptor, _ in source.ListFields()):
            setattr(target, field, getattr(source, field))
        else:
            target.ClearField(field)
    return updated


def _expand(path: str) -> Iterator[str]:
    """The fields that a path of a mask names; none if it is unknown."""
    for part in _PARTS:
        message: Message = getattr(UpdateRunRequest(), part)
        for field in message.DESCRIPTOR.fields:
            if path in {_ALL, part, f"{part}.{field.name}"}:
                yield f"{part}.{field.name}"
