from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from dramaturg.testing.schemas import smallest_instance

STEP = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
SCHEMAS: list[dict[str, Any]] = [
    {"const": "x"},
    {"enum": ["pass", "fail"]},
    {"type": "string", "minLength": 4},
    {"type": ["number", "null"], "minimum": 0.5},
    {"type": "boolean"},
    {"type": "null"},
    {"type": "array", "items": STEP, "minItems": 2},
    {"anyOf": [{"type": "null"}, {"type": "string"}]},
    {
        "type": "object",
        "properties": {"s": {"$ref": "#/$defs/step"}},
        "required": ["s"],
        "$defs": {"step": STEP},
    },
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_an_instance_fits_its_schema(schema: dict[str, Any]) -> None:
    jsonschema.validate(smallest_instance(schema), schema)
