"""``POST /v1/evaluate``: a whole evaluation in one JSON call, for clients that know no Connect.

The body has one field, named like the result of a sample of a run, e.g. "texts", with the request of that
kind. It is forwarded to the streaming method of the kind, and the answer is its last event, which has the
result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor

from dramaturg.api.common.v1.limits_pb2 import FieldLimits, limits
from dramaturg.api.evaluation.v1 import evaluation_service_pb2
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from gateway.http.bodies import JsonCodec, UnreadableMessageError, in_turn, parsed_object

PATH = "/v1/evaluate"
DOCUMENT_PATH = "/v1/openapi.json"
_SERVICE = evaluation_service_pb2.DESCRIPTOR.services_by_name["EvaluationService"]
_METHODS: Mapping[str, MethodDescriptor] = {
    field.name: method
    for field in RunSample.DESCRIPTOR.oneofs_by_name["result"].fields
    for method in _SERVICE.methods
    if "result" in method.output_type.fields_by_name
    and method.output_type.fields_by_name["result"].message_type is field.message_type
}
"""The methods that end with a result, by the name of their result in a run."""
UNREAD = next(iter(_METHODS.values()))
"""The method to which a request is forwarded that is refused before its kind is known."""


class EvaluateCodec:
    """Reads the request of a kind, and writes the last event of its method.

    Args:
        caller: Identifies the caller, for turns in the conversion of large messages.

    Attributes:
        method: The method of the request; before it is read ``UNREAD``.
    """

    def __init__(self, caller: str = "") -> None:
        self.method = UNREAD
        self._caller = caller

    @property
    def path(self) -> str:
        """The path of the method."""
        return f"/{_SERVICE.full_name}/{self.method.name}"

    async def decode(self, data: bytes) -> bytes:
        kind, request = await in_turn(self._caller, len(data), lambda: _opened(data))
        self.method = _METHODS[kind]
        return await JsonCodec(self.method, self._caller).decode(request)

    async def encode(self, data: bytes) -> bytes:
        return await JsonCodec(self.method, self._caller).encode(data)


def _opened(data: bytes) -> tuple[str, bytes]:
    body = parsed_object(data)
    if len(body) != 1 or not set(body) <= set(_METHODS):
        raise UnreadableMessageError.of(f"the body has exactly one of the fields {', '.join(_METHODS)}")
    ((kind, request),) = body.items()
    if not isinstance(request, dict):
        raise UnreadableMessageError.of_field(kind, "is no object")
    return kind, json.dumps(request).encode()


@cache
def document() -> bytes:
    """The OpenAPI document of the call, made of the contracts and their limits."""
    schemas: dict[str, Any] = {}
    requests = {kind: _reference(method.input_type, schemas) for kind, method in _METHODS.items()}
    results = [_reference(_result(method), schemas) for method in _METHODS.values()]
    schemas["Error"] = {
        "type": "object",
        "properties": {
            "code": {"type": "string"},
            "message": {"type": "string"},
            "details": {"type": "array", "items": {"type": "object"}},
        },
        "required": ["code", "message"],
    }
    schemas["Request"] = {
        "oneOf": [
            {"type": "object", "properties": {kind: one}, "required": [kind], "additionalProperties": False}
            for kind, one in requests.items()
        ]
    }
    schemas["Response"] = {
        "type": "object",
        "properties": {"result": {"anyOf": results}},
        "required": ["result"],
        "additionalProperties": False,
    }
    error = {"description": "The call failed.", "content": _json("Error")}
    operation = {
        "operationId": "evaluate",
        "summary": "Evaluates one sample and returns the whole result.",
        "security": [{}, {"token": []}],
        "parameters": [
            {
                "name": "Connect-Timeout-Ms",
                "in": "header",
                "description": "The timeout of the call in milliseconds.",
                "schema": {"type": "string", "pattern": "^[0-9]{1,10}$"},
            }
        ],
        "requestBody": {"required": True, "content": _json("Request")},
        "responses": {"200": {"description": "The result.", "content": _json("Response")}, "default": error},
    }
    return json.dumps(
        {
            "openapi": "3.1.0",
            "info": {"title": "dramaturg", "version": "v1"},
            "paths": {PATH: {"post": operation}},
            "components": {
                "schemas": schemas,
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            },
        }
    ).encode()


def _json(name: str) -> Mapping[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}


def _result(method: MethodDescriptor) -> Descriptor:
    result = method.output_type.fields_by_name["result"].message_type
    assert result is not None
    return result


_WELL_KNOWN: Mapping[str, Mapping[str, Any]] = {
    "google.protobuf.Duration": {"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]{1,9})?s$"},
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    "google.protobuf.Struct": {"type": "object"},
    "google.protobuf.Value": {},
}
_NUMBERS = {FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT}
_LARGE = {FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64}


def _reference(message: Descriptor, schemas: dict[str, Any]) -> Mapping[str, Any]:
    """The schema of a message; adds those of all messages that it holds."""
    if message.full_name in _WELL_KNOWN:
        return _WELL_KNOWN[message.full_name]
    name = message.full_name
    if name not in schemas:
        properties: dict[str, Any] = {}
        made = {"type": "object", "properties": properties, "additionalProperties": False}
        schemas[name] = made
        required = []
        for field in message.fields:
            bounds: FieldLimits = field.GetOptions().Extensions[limits]
            properties[field.json_name] = _field(field, bounds, schemas)
            if bounds.required:
                required.append(field.json_name)
        if required:
            made["required"] = required
    return {"$ref": f"#/components/schemas/{name}"}


def _field(field: FieldDescriptor, bounds: FieldLimits, schemas: dict[str, Any]) -> Mapping[str, Any]:
    entry = field.message_type
    sizes = {"maxItems": bounds.max_items, "minItems": bounds.min_items or int(bounds.required)}
    if entry is not None and entry.GetOptions().map_entry:
        value = entry.fields_by_name["value"]
        held = _set({"maxProperties": bounds.max_items})
        return {"type": "object", "additionalProperties": _value(value, bounds, schemas), **held}
    value_schema = _value(field, bounds, schemas)
    return {"type": "array", "items": value_schema, **_set(sizes)} if field.is_repeated else value_schema


def _value(field: FieldDescriptor, bounds: FieldLimits, schemas: dict[str, Any]) -> Mapping[str, Any]:
    if field.message_type is not None:
        return _reference(field.message_type, schemas)
    if field.enum_type is not None:
        return {"enum": [one.name for one in field.enum_type.values]}
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return {"type": "boolean"}
    if kind == FieldDescriptor.CPPTYPE_STRING:
        minimum = int(bounds.required and not field.is_repeated)
        pattern = f"^({bounds.pattern})?$" if bounds.pattern else ""
        return {
            "type": "string",
            **_set({"maxLength": bounds.max_length, "minLength": minimum, "pattern": pattern}),
        }
    ends = {name: getattr(bounds, name) for name in ("minimum", "maximum") if bounds.HasField(name)}
    if kind in _NUMBERS:
        return {"type": "number", **ends}
    return {"type": "string", "pattern": "^-?[0-9]+$"} if kind in _LARGE else {"type": "integer", **ends}


def _set(keywords: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: value for key, value in keywords.items() if value}
