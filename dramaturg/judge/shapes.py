"""The shapes that a model's JSON answer is built from.

A shape defines the enforced JSON Schema, the schema that is enough for an answer, and the sketch shown to the
model. Schemas use only features that providers enforce strictly: all members are required, and no others are
allowed. In the schema that is enough, optional members are not required.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol


class Shape(Protocol):
    """The shape of a JSON value. Shapes are immutable."""

    def __hash__(self) -> int: ...

    def schema(self, *, accepted: bool = False) -> dict[str, Any]:
        """Its JSON Schema (draft 2020-12).

        Args:
            accepted: Whether to make the schema that is enough for an answer, without optional members.
        """

    def sketch(self, indent: str = "") -> str:
        """The sketch for a model: JSON with hints in place of the values."""


MOST_CHARACTERS = 2000
"""The longest text that a form asks for, in characters."""
ENTRY_CHARACTERS = 300
"""The longest text in an entry of a list: a model that repeats itself does so in each entry."""


@dataclass(frozen=True)
class Text:
    """A string."""

    hint: str
    """A description of the expected text."""
    optional: bool = False
    """Whether an answer without it is accepted, for example one without a reason."""
    most: int = 600
    """The maximum number of characters that a model may write: one that repeats itself goes on with the next
    member. A longer text is accepted.
    """

    def schema(self, *, accepted: bool = False) -> dict[str, Any]:
        """Its JSON Schema."""
        return {"type": "string"} if accepted else {"type": "string", "maxLength": self.most}

    def sketch(self, indent: str = "") -> str:
        """The hint, as a string."""
        del indent
        return json.dumps(f"<{self.hint}>", ensure_ascii=False)


@dataclass(frozen=True)
class Number:
    """A whole number."""

    hint: str
    """A description of the number."""
    most: int | None = None
    """The highest number that a model may write, from 1. Any other number is accepted, so that one invalid
    number does not invalidate the rest of an answer. None: unlimited.
    """

    def schema(self, *, accepted: bool = False) -> dict[str, Any]:
        """Its JSON Schema."""
        if accepted or self.most is None:
            return {"type": "integer"}
        return {"type": "integer", "minimum": 1, "maximum": self.most}

    def sketch(self, indent: str = "") -> str:
        """The hint, bare."""
        del indent
        return f"<{self.hint}>"


@dataclass(frozen=True)
class Choice:
    """One of several strings."""

    options: tuple[str, ...]
    """The strings."""
    hint: str = ""
    """A description of the choice. Empty: the sketch lists the strings."""
    accepts_any: bool = False
    """Whether any string is enough, so that one invalid choice does not invalidate the rest of an answer."""
    optional: bool = False
    """Whether an answer without it is accepted."""

    def schema(self, *, accepted: bool = False) -> dict[str, Any]:
        """Its JSON Schema."""
        if accepted and self.accepts_any:
            return {"type": "string"}
        return {"type": "string", "enum": list(self.options)}

    def sketch(self, indent: str = "") -> str:
        """The hint, as a string; else the strings, with bars between them."""
        del indent
        if self.hint:
            return json.dumps(f"<{self.hint}>", ensure_ascii=False)
        return " | ".join(json.dumps(option) for option in self.options)


@dataclass(frozen=True)
class ListOf:
    """A list, possibly empty."""

    item: Shape
    """The shape of the items."""
    ELLIPSIS: ClassVar[str] = ", ...]"
    """The end of a list in a sketch."""
    optional: bool = False
    """Whether an answer without it is accepted."""
    least: int = 0
    """The minimum number of items that a model may write. A shorter list is accepted."""
    most: int | None = None
    """The maximum number of items that a model may write. A longer list is accepted. None: unlimited."""

    def schema(self, *, accepted: bool = False) -> dict[str, Any]:
        """Its JSON Schema."""
        schema: dict[str, Any] = {"type": "array", "items": self.item.schema(accepted=accepted)}
        if not accepted and self.least:
            schema["minItems"] = self.least
        if not accepted and self.most is not None:
            schema["maxItems"] = self.most
        return schema

    def sketch(self, indent: str = "") -> str:
        """One item on one line, followed by an ellipsis."""
        item = self.item.inline() if isinstance(self.item, Record) else self.item.sketch(indent)
        return f"[{item}{self.ELLIPSIS}"


def _is_optional(shape: Shape) -> bool:
    return isinstance(shape, Text | Choice | ListOf | Record) and shape.optional


@dataclass(frozen=True, eq=False)
class Record:
    """An object. Models write the members in this order, for example the reason before the verdict.

    Records compare by their members and the order of these, so that texts derived from them can be cached.
    """

    members: Mapping[str, Shape]
    """The members by name."""
    optional: bool = False
    """Whether an answer without it is accepted."""

    @cached_property
    def _key(self) -> tuple[object, ...]:
        return type(self), self.optional, *self.members.items()

    @cached_property
    def _hash(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Record) and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash

    def schema(self, *, accepted: bool = False) -> dict[str, Any]:
        """Its JSON Schema."""
        return {
            "type": "object",
            "properties": {name: shape.schema(accepted=accepted) for name, shape in self.members.items()},
            "required": [
                name for name, shape in self.members.items() if not accepted or not _is_optional(shape)
            ],
            "additionalProperties": False,
        }

    def inline(self) -> str:
        """The members on one line."""
        return "{" + ", ".join(f'"{name}": {shape.sketch()}' for name, shape in self.members.items()) + "}"

    def sketch(self, indent: str = "") -> str:
        """The members, one per line."""
        inner = indent + "  "
        lines = [
            f'{inner}"{name}": {shape.inline() if isinstance(shape, Record) else shape.sketch(inner)}'
            for name, shape in self.members.items()
        ]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
