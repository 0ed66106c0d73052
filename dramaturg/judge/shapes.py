"""The shapes that a model's JSON answer is built from.

One description gives both the JSON Schema that is enforced and the sketch that the model is shown, so that
the two cannot drift apart. Schemas keep to what providers enforce strictly: every member required, no
others allowed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


class Shape(Protocol):
    """What a JSON value must look like. It does not change."""

    def __hash__(self) -> int: ...

    def schema(self) -> dict[str, Any]:
        """Its JSON Schema (draft 2020-12)."""

    def sketch(self, indent: str = "") -> str:
        """How it is shown to a model: JSON with hints in place of the values."""


@dataclass(frozen=True)
class Text:
    """A string."""

    hint: str
    """What it should say."""

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
    """What it counts."""

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
    """Each of its items."""

    def schema(self) -> dict[str, Any]:
        """Its JSON Schema."""
        return {"type": "array", "items": self.item.schema()}

    def sketch(self, indent: str = "") -> str:
        """One item, and that more may follow."""
        return f"[{self.item.sketch(indent)}, ...]"


@dataclass(frozen=True, eq=False)
class Record:
    """An object. Its members are written in this order, so a reason that stands first is given first.

    It equals no other one, so that what is made of it can be kept beside it.
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
        """The members, one a line."""
        inner = indent + "  "
        lines = [f'{inner}"{name}": {shape.sketch(inner)}' for name, shape in self.members.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
