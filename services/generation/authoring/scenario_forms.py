"""The forms of a scenario: a verb phrase, or a person's profile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dramaturg.judge.answers import UnclearAnswerError
from dramaturg.judge.shapes import ListOf, Record, Text
from dramaturg.judge.steps import is_blank


class PhraseForm:
    """A verb phrase, after how it leads to the way taken."""

    name = "scenario"
    shape = Record(
        {
            "idea": Text("what could lead there, and how"),
            "scenario": Text("the verb phrase alone, such as would follow the person's name"),
        }
    )

    def parse(self, value: Any) -> str:
        """The phrase on one line, without a full stop.

        Raises:
            UnclearAnswerError: There is none.
        """
        phrase = value.get("scenario") if isinstance(value, Mapping) else None
        if not isinstance(phrase, str) or is_blank(phrase):
            raise UnclearAnswerError("the answer has no scenario")
        return " ".join(phrase.split()).removesuffix(".")


class ProfileForm:
    """A profile, line by line, after what it lets one conclude."""

    name = "profile"
    shape = Record(
        {
            "idea": Text("which trait of the person leads to the way taken, and how"),
            "profile": ListOf(Text("one line of the profile, such as Name: Doe")),
        }
    )

    def parse(self, value: Any) -> str:
        """The profile as a list with dashes.

        Raises:
            UnclearAnswerError: There is none.
        """
        lines = value.get("profile") if isinstance(value, Mapping) else None
        if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
            raise UnclearAnswerError("the answer has no profile")
        written = [" ".join(line.split()).removeprefix("- ") for line in lines if not is_blank(line)]
        if not written:
            raise UnclearAnswerError("the profile is empty")
        return "\n".join(f"- {line}" for line in written)
