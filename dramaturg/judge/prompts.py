"""Prompt files: versioned by content, validated when loaded, replaceable without code.

A prompt file is Markdown. A line ``# system`` or ``# user`` starts the message of that role, ``# criterion
NAME`` starts a part for requests with that criterion. Text before the first such line is a comment.
``{{name}}`` is a placeholder.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dramaturg.api.common.v1.provenance_pb2 import PromptReference
from dramaturg.api.generation.v1 import generation_service_pb2
from dramaturg.api.generation.v1.generation_service_pb2 import Message, MessageRole
from dramaturg.service.settings import SettingsError

SUFFIX = ".md"
"""The suffix of prompt files."""

_ROLES = {
    "system": generation_service_pb2.MESSAGE_ROLE_SYSTEM,
    "user": generation_service_pb2.MESSAGE_ROLE_USER,
}
_HEADING = re.compile(r"^# (system|user|criterion [a-z0-9_]+)[ \t]*$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{\{[ \t]*([a-z][a-z0-9_]*)[ \t]*\}\}")


class PromptError(SettingsError):
    """A prompt file cannot be used; the message names the file and the problem."""


@dataclass(frozen=True)
class Prompt:
    """A loaded and validated prompt."""

    name: str
    """The name of the file without the suffix."""
    sha256: str
    """The SHA-256 of the file's content, in lower-case hexadecimal."""
    messages: Mapping[str, str]
    """The text of the messages by role ("system", "user"), with placeholders."""
    criteria: Mapping[str, str]
    """The parts for single criteria. They have no placeholders."""

    @cached_property
    def placeholders(self) -> frozenset[str]:
        """The placeholders of its messages."""
        return frozenset(name for text in self.messages.values() for name in _PLACEHOLDER.findall(text))

    @cached_property
    def _pieces(self) -> Sequence[tuple[MessageRole.ValueType, Sequence[str]]]:
        """The messages by role, system first, each split into alternating texts and placeholders."""
        return [
            (role, _PLACEHOLDER.split(self.messages[name]))
            for name, role in _ROLES.items()
            if name in self.messages
        ]

    @property
    def reference(self) -> PromptReference:
        """The reference to the prompt in provenance."""
        return PromptReference(name=self.name, sha256=self.sha256)

    def render(self, values: Mapping[str, str]) -> list[Message]:
        """Returns the messages, system first, with the values in place of the placeholders.

        All placeholders are replaced in one pass: placeholders within values are text.

        Raises:
            KeyError: A placeholder has no value.
        """
        messages = []
        for role, pieces in self._pieces:
            filled = [*pieces]
            filled[1::2] = [values[placeholder] for placeholder in pieces[1::2]]
            messages.append(Message(role=role, text="".join(filled)))
        return messages

    def part(self, criteria: Sequence[str]) -> str:
        """Returns the parts for these criteria, in this order, each under its name."""
        return "\n\n".join(f"{criterion}\n{self.criteria[criterion]}" for criterion in criteria)


class PromptLibrary:
    """The prompts of a service. Files of a deployment replace the service's files of the same name.

    Args:
        defaults: The folder of the service's prompts.
        overrides: The deployment's folder. A file there replaces the one of the same name.

    Raises:
        PromptError: The folder does not exist, or has a prompt with a name unknown to the service, which
            would never be used.
    """

    def __init__(self, defaults: Path, overrides: Path | None = None) -> None:
        self._files = _files(defaults)
        if overrides is not None:
            own = _files(overrides)
            for name in sorted(own.keys() - self._files.keys()):
                known = ", ".join(f"{known}{SUFFIX}" for known in sorted(self._files))
                raise PromptError(f"{own[name]}: there is no such prompt to replace; there are {known}")
            self._files |= own

    def load(self, name: str, *, placeholders: Collection[str], criteria: Collection[str] = ()) -> Prompt:
        """Loads and validates a prompt.

        Args:
            name: Its name, without the suffix.
            placeholders: The placeholders of its messages. Each must occur, and no others.
            criteria: The criteria of its parts. Each must have a part, and no others.

        Raises:
            PromptError: The file cannot be read, or its placeholders or parts differ from the expected ones.
        """
        try:
            file = self._files[name]
            content = file.read_bytes()
            text = content.decode("utf-8").replace("\r\n", "\n")
        except KeyError:
            raise PromptError(f"there is no prompt {name!r}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise PromptError(f"{name}{SUFFIX}: {error}") from error
        sections = _sections(file, text)
        messages = {role: sections[role] for role in _ROLES if role in sections}
        parts = {
            heading.removeprefix("criterion "): body
            for heading, body in sections.items()
            if heading not in _ROLES
        }
        if "user" not in messages:
            raise PromptError(f"{file}: there is no '# user' section")
        _require_equal(file, "criterion", parts, criteria)
        used = [name for body in messages.values() for name in _PLACEHOLDER.findall(body)]
        _require_equal(file, "placeholder", used, placeholders)
        if "{{" in _PLACEHOLDER.sub("", "".join(messages.values())) or "{{" in "".join(parts.values()):
            raise PromptError(f"{file}: a '{{{{' begins no placeholder")
        return Prompt(name, hashlib.sha256(content).hexdigest(), messages, parts)


def _files(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        raise PromptError(f"{folder} is not a folder")
    # Mounted volumes have hidden folders beside the files.
    files = (file for file in folder.iterdir() if file.suffix == SUFFIX and not file.name.startswith("."))
    return {file.stem: file for file in files}


def _sections(file: Path, text: str) -> dict[str, str]:
    _, *pieces = _HEADING.split(text)
    sections: dict[str, str] = {}
    for heading, body in zip(pieces[::2], pieces[1::2], strict=True):
        if heading in sections:
            raise PromptError(f"{file}: '# {heading}' stands twice")
        if not body.strip():
            raise PromptError(f"{file}: '# {heading}' is empty")
        sections[heading] = body.strip()
    return sections


def _require_equal(file: Path, kind: str, found: Collection[str], wanted: Collection[str]) -> None:
    problems = [f"{kind} {name!r} is missing" for name in sorted(set(wanted) - set(found))]
    problems += [f"{kind} {name!r} is unknown" for name in sorted(set(found) - set(wanted))]
    if problems:
        raise PromptError(f"{file}: {'; '.join(problems)}")
