"""Prompt files: versioned by content, validated when loaded, replaceable without code.

A prompt file is Markdown. A line ``# system`` or ``# user`` starts the message of that role, ``# part NAME``
starts a text that is used where a request needs it, for example the definition of a criterion. Text before
the first such line is a comment. ``{{name}}`` is a placeholder, ``{{> name}}`` includes the section
``# text`` of another file. A heading, which is a line that ends with a colon, above one placeholder is left
out with it where its value is empty.

The system message is the fixed part: it holds instructions, criteria and the form of the answer, and no
content of a request. Providers cache the common beginning of prompts, so all calls of a judge share it.
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
from dramaturg.api.identity.v1.identity_service_pb2 import Identity
from dramaturg.service.settings import SettingsError

SUFFIX = ".md"
"""The suffix of prompt files."""
SHARED_PROMPTS = Path(__file__).parent / "shared_prompts"
"""The folder of files that the prompts of all services use."""
CHARACTERS_PER_TOKEN = 4
"""The characters that are counted as a token where no tokenizer is known."""
CRITERIA = "criteria"
"""The shared file with the definitions of ABSEval's criteria."""

_ROLES = {
    "system": generation_service_pb2.MESSAGE_ROLE_SYSTEM,
    "user": generation_service_pb2.MESSAGE_ROLE_USER,
}
_TEXT, _PART = "text", "part "
_HEADING = re.compile(r"^# (system|user|text|part [a-z0-9_]+)[ \t]*$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{\{[ \t]*([a-z][a-z0-9_]*)[ \t]*\}\}")
# A heading above a placeholder, to the end of the paragraph.
_OPTIONAL = re.compile(r"[^\n{}]+:\n" + _PLACEHOLDER.pattern)
_INCLUSION = re.compile(r"\{\{>[ \t]*([a-z][a-z0-9_]*)[ \t]*\}\}")


class PromptError(SettingsError):
    """A prompt file cannot be used; the message names the file and the problem."""


@dataclass(frozen=True)
class Prompt:
    """A loaded and validated prompt."""

    name: str
    """The name of the file without the suffix."""
    sha256: str
    """The SHA-256 of the file's text with its inclusions and the parts from other files, in lower-case
    hexadecimal. Line ends count as line feeds.
    """
    messages: Mapping[str, str]
    """The text of the messages by role ("system", "user"), with placeholders."""
    parts: Mapping[str, str]
    """The texts for requests that need them, by name. They have no placeholders."""

    @cached_property
    def placeholders(self) -> frozenset[str]:
        """The placeholders of its messages."""
        return frozenset(name for text in self.messages.values() for name in _PLACEHOLDER.findall(text))

    @cached_property
    def _paragraphs(self) -> Sequence[tuple[MessageRole.ValueType, Sequence[tuple[bool, Sequence[str]]]]]:
        """The messages by role, system first.

        Each paragraph: whether it is a heading above a placeholder; its alternating texts and placeholders.
        Paragraphs without placeholders that follow each other are one.
        """
        roles = []
        for name, role in _ROLES.items():
            if name not in self.messages:
                continue
            paragraphs: list[tuple[bool, list[str]]] = []
            for paragraph in self.messages[name].split("\n\n"):
                pieces = _PLACEHOLDER.split(paragraph)
                if len(pieces) == 1 and paragraphs and len(paragraphs[-1][1]) == 1:
                    paragraphs[-1][1][0] += f"\n\n{paragraph}"
                else:
                    paragraphs.append((_OPTIONAL.fullmatch(paragraph) is not None, pieces))
            roles.append((role, paragraphs))
        return roles

    @cached_property
    def reference(self) -> PromptReference:
        """The reference to the prompt in provenance."""
        return PromptReference(name=self.name, sha256=self.sha256)

    def render(self, values: Mapping[str, str]) -> list[Message]:
        """Returns the messages, system first, with the values in place of the placeholders.

        All placeholders are replaced in one pass: placeholders within values are text. A heading above an
        empty value is left out. Lines around an empty value do not leave a gap at the end of a message.

        Raises:
            KeyError: A placeholder has no value.
        """
        messages = []
        for role, paragraphs in self._paragraphs:
            texts: list[str] = []
            for optional, pieces in paragraphs:
                if len(pieces) == 1:
                    texts += pieces
                    continue
                filled = [*pieces]
                filled[1::2] = [values[placeholder] for placeholder in pieces[1::2]]
                if not optional or filled[1]:
                    texts.append("".join(filled))
            messages.append(Message(role=role, text="\n\n".join(texts).rstrip()))
        return messages

    def definitions(self, names: Sequence[str]) -> str:
        """Returns the parts of these names, in this order, each after its name."""
        return "\n\n".join(f"{name}: {self.parts[name]}" for name in names)


class PromptLibrary:
    """The prompts of a service. Files of a deployment replace the files of the same name.

    Args:
        defaults: The folder of the service's prompts.
        overrides: The deployment's folder. Its files replace the service's files and the shared ones. Files
            in its subfolder ``service`` take precedence, so that one folder can hold the prompts of all
            services.
        service: The name of the service, for the subfolder.

    Raises:
        PromptError: The folder does not exist, or has a prompt with a name unknown to the service, which
            would never be used.
    """

    def __init__(self, defaults: Path, overrides: Path | None = None, *, service: str = "") -> None:
        self._token_counts: dict[str, int] = {}
        self._texts: dict[str, str] = {}
        self._files = _files(SHARED_PROMPTS) | _files(defaults)
        if overrides is None:
            return
        own = _files(overrides)
        if service and (overrides / service).is_dir():
            own |= _files(overrides / service)
        for name in sorted(own.keys() - self._files.keys()):
            known = ", ".join(f"{known}{SUFFIX}" for known in sorted(self._files))
            raise PromptError(f"{own[name]}: there is no such prompt to replace; there are {known}")
        self._files |= own

    def describe(self, identity: Identity) -> None:
        """Writes the loaded prompts into an identity: tokens without content, hash and text of each.

        A token is counted as 4 characters.
        """
        identity.prompt_token_counts.update(self._token_counts)
        identity.prompts.update({name: _digest(text) for name, text in self._texts.items()})
        identity.prompt_texts.update(self._texts)

    def load(
        self,
        name: str,
        *,
        fixed: Collection[str] = (),
        content: Collection[str] = (),
        parts: Collection[str] = (),
        parts_from: str = "",
    ) -> Prompt:
        """Loads and validates a prompt.

        Args:
            name: Its name, without the suffix.
            fixed: The placeholders for texts of the service, allowed in every message.
            content: The placeholders for the content of a request, allowed in the user's message only.
            parts: The names of its parts. Each must exist, and no others.
            parts_from: The file with the parts that the prompt itself does not have. Empty: no file.

        Raises:
            PromptError: The file cannot be read, or its placeholders or parts differ from the expected ones.
        """
        file, text = self._expanded(name)
        sections = _sections(file, text)
        messages = {role: sections[role] for role in _ROLES if role in sections}
        found = _parts(sections)
        if "user" not in messages:
            raise PromptError(f"{file}: there is no '# user' section")
        for part, body in self._missing_parts(found, parts, parts_from).items():
            found[part] = body
            text += f"\n\n# {_PART}{part}\n\n{body}"
        _require_equal(file, "part", found, parts)
        used = [name for body in messages.values() for name in _PLACEHOLDER.findall(body)]
        _require_equal(file, "placeholder", used, {*fixed, *content})
        exposed = sorted({*_PLACEHOLDER.findall(messages.get("system", ""))} & {*content})
        if exposed:
            raise PromptError(f"{file}: placeholder {exposed[0]!r} is allowed in '# user' only")
        if "{{" in _PLACEHOLDER.sub("", "".join(messages.values())) or "{{" in "".join(found.values()):
            raise PromptError(f"{file}: a '{{{{' begins no placeholder")
        fixed_texts = "".join((*messages.values(), *(found[part] for part in parts)))
        self._token_counts[name] = -(-len(_PLACEHOLDER.sub("", fixed_texts)) // CHARACTERS_PER_TOKEN)
        self._texts[name] = text
        return Prompt(name, _digest(text), messages, {part: found[part] for part in parts})

    def _missing_parts(
        self, found: Collection[str], wanted: Collection[str], source: str
    ) -> Mapping[str, str]:
        if not source:
            return {}
        available = _parts(_sections(*self._expanded(source)))
        return {part: available[part] for part in wanted if part not in found and part in available}

    def _expanded(self, name: str) -> tuple[Path, str]:
        """The file of a prompt, and its text with the inclusions."""
        file, text = self._read(name)

        def include(found: re.Match[str]) -> str:
            if found[1] not in self._files:
                raise PromptError(f"{file}: there is no {found[1]}{SUFFIX} to include")
            sections = _sections(*self._read(found[1]))
            if _TEXT not in sections:
                raise PromptError(f"{file}: {found[1]}{SUFFIX} has no '# text' section to include")
            return sections[_TEXT]

        return file, _INCLUSION.sub(include, text)

    def _read(self, name: str) -> tuple[Path, str]:
        try:
            file = self._files[name]
            return file, file.read_bytes().decode("utf-8").replace("\r\n", "\n")
        except KeyError:
            raise PromptError(f"there is no prompt {name!r}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise PromptError(f"{name}{SUFFIX}: {error}") from error


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


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
            raise PromptError(f"{file}: '# {heading}' is repeated")
        if not body.strip():
            raise PromptError(f"{file}: '# {heading}' is empty")
        sections[heading] = body.strip()
    return sections


def _parts(sections: Mapping[str, str]) -> dict[str, str]:
    return {
        heading.removeprefix(_PART): body for heading, body in sections.items() if heading.startswith(_PART)
    }


def _require_equal(file: Path, kind: str, found: Collection[str], wanted: Collection[str]) -> None:
    problems = [f"{kind} {name!r} is missing" for name in sorted(set(wanted) - set(found))]
    problems += [f"{kind} {name!r} is unknown" for name in sorted(set(found) - set(wanted))]
    if problems:
        raise PromptError(f"{file}: {'; '.join(problems)}")
