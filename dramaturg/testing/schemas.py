"""Small values that fit a JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def smallest_instance(schema: Mapping[str, Any]) -> Any:
    """A small value that fits a schema of the kind that judges ask for.

    Understood are ``const``, ``enum``, ``type``, required ``properties``, ``items`` with ``minItems``,
    ``minimum``, ``minLength``, the first member of ``anyOf``, ``oneOf`` and ``allOf``, and references to
    ``$defs``.

    Args:
        schema: The schema (draft 2020-12).
    """
    return _instance(schema, schema)


def _instance(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    if "$ref" in schema:
        return _instance(_referenced(schema["$ref"], root), root)
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema:
            return _instance(schema[choice][0], root)
    kind = schema.get("type", "object")
    match kind[0] if isinstance(kind, list) else kind:
        case "object":
            members = schema.get("properties", {})
            return {name: _instance(members.get(name, {}), root) for name in schema.get("required", ())}
        case "array":
            return [_instance(schema.get("items", {}), root) for _ in range(schema.get("minItems", 0))]
        case "string":
            return "-" * schema.get("minLength", 1)
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return True
        case _:
            return None


def _referenced(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Any = root
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    return dict(found)
