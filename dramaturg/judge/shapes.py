"""The shapes that a model's JSON answer is built from.

A shape defines both the enforced JSON Schema and the sketch shown to the model. Schemas use only features
that providers enforce strictly: all members are required, and no others are allowed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


class Shape(Protocol):
    """The shape of a JSON value. Shapes are immutable."""

    def __hash__(self) -> int: ...

    def schema(self) -> dict[str, Any]:
        """Its JSON Schema (draft 2020-12)."""

    def sketch(self, indent: str = "") -> str:
        """The sketch for a model: JSON with hints in place of the values."""


@dataclass(frozen=True)
class Text:
    """A string."""

    hint: str
    """A description of the expected text."""

    def schema(self) -> dict[str, Any]:
        """Its JSON Schema."""
        return {"type": "string"}

    def sketch(self, indent: str = "") -> str:
        """The hint, as a string."""
        del indent
        return json.dumps(f"<{self.hint}>", ensure_ascii=False)


@dataclass(frozen=True)
class Number:
    """A whole number."""

    hint: str
    """A description of the number."""

    def schema(self) -> dict[str, Any]:
        """Its JSON Schema."""
        return {"type": "integer"}

    def sketch(self, indent: str = "") -> str:
        """The hint, bare."""
        del indent
        return f"<{self.hint}>"


@dataclass(frozen=True)
class Choice:
    """One of several strings."""

    options: tuple[str, ...]
    """The strings."""

    def schema(self) -> dict[str, Any]:
        """Its JSON Schema."""
        return {"type": "string", "enum": list(self.options)}

    def sketch(self, indent: str = "") -> str:
        """The strings, with bars between them."""
        del indent
        return " | ".join(json.dumps(option) for option in self.options)


@dataclass(frozen=True)
class ListOf:
    """A list, possibly empty."""

    item: Shape
    """The shape of the items."""

    def schema(self) -> dict[str, Any]:
        """Its JSON Schema."""
        return {"type": "array", "items": self.item.schema()}

    def sketch(self, indent: str = "") -> str:
        """One item, followed by an ellipsis."""
        return f"[{self.item.sketch(indent)}, ...]"


@dataclass(frozen=True, eq=False)
class Record:
    """An object. Models write the members in this order, for example the reason before the verdict.

    Records compare by identity, so that derived values can be cached.
    """

    members: Mapping[str, Shape]
    """The members by name."""

    def schema(self) -> dict[str, Any]:
        """Its JSON Schema."""
        return {
            "type": "object",
            "properties": {name: shape.schema() for name, shape in self.members.items()},
            "required": list(self.members),
            "additionalProperties": False,
        }

    def sketch(self, indent: str = "") -> str:
        """The members, one per line."""
        inner = indent + "  "
        lines = [f'{inner}"{name}": {shape.sketch(inner)}' for name, shape in self.members.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
