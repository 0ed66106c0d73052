"""Writes the source of the documentation site, from which `make docs` builds the pages.

    python docs/build.py OUT

OUT gets the pages of ``docs/``; the reference of commands, settings and contracts, from the command tree, the
classes of settings and the protos; below ``files/``, each file that a page links to, as a page; and the style
sheet, which gives the theme of the site the tokens of the report.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import pkgutil
import re
import shutil
import sys
import tempfile
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import typer.main
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc
from pydantic import BaseModel
from pydantic_core import PydanticUndefined
from typer.core import TyperGroup

from dramaturg.cli.lazy_group import LazyCommand
from dramaturg.cli.main import app
from dramaturg.report import tokens
from dramaturg.service.settings import Settings

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
_LINK = re.compile(r"""(\]\(|\bsrc(?:set)?=")([^)\s#"]+)(#[^)\s"]*)?(?=[)"])""")
_LANGUAGES = {
    ".py": "python",
    ".ts": "typescript",
    ".toml": "toml",
    ".yaml": "yaml",
    ".proto": "proto",
    ".go": "go",
}
STYLE = "tokens.css"
"""The style sheet in the source of the site."""
_THEME = {
    "primary-fg-color": "panel",
    "primary-fg-color--light": "panel",
    "primary-fg-color--dark": "panel",
    "primary-bg-color": "ink",
    "primary-bg-color--light": "soft",
    "accent-fg-color": "accent",
    "accent-bg-color": "paper",
    "default-bg-color": "paper",
    "default-fg-color": "ink",
    "default-fg-color--light": "soft",
    "default-fg-color--lighter": "soft",
    "default-fg-color--lightest": "line",
    "typeset-a-color": "accent",
    "typeset-mark-color": "marked",
    "typeset-kbd-color": "panel",
    "typeset-kbd-accent-color": "paper",
    "typeset-kbd-border-color": "line",
    "typeset-table-color": "line",
    "typeset-table-color--light": "panel",
    "code-bg-color": "panel",
    "code-fg-color": "ink",
    "code-hl-color": "accent",
    "code-hl-color--light": "marked",
    "code-hl-keyword-color": "accent",
    "code-hl-function-color": "accent",
    "code-hl-constant-color": "accent",
    "code-hl-string-color": "pass",
    "code-hl-number-color": "fail",
    "code-hl-special-color": "fail",
    "footer-bg-color": "panel",
    "footer-bg-color--dark": "panel",
    "footer-fg-color": "ink",
    "footer-fg-color--light": "soft",
    "footer-fg-color--lighter": "soft",
    "text-font": "sans",
    "code-font": "mono",
}
"""The token of each property of the theme of the site."""


class Site:
    """The source of the site.

    Args:
        out: The folder of the source. It is replaced.
    """

    def __init__(self, out: Path) -> None:
        self._out = out
        self._files: list[Path] = []
        shutil.rmtree(out, ignore_errors=True)

    def write(self, generated: Mapping[str, str]) -> None:
        """Writes all pages.

        Args:
            generated: What is not in ``docs/``: texts by path.
        """
        shutil.copytree(DOCS, self._out, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        for name, text in generated.items():
            (self._out / name).write_text(text, encoding="utf-8")
        for source in sorted(DOCS.rglob("*.md")):
            page = source.relative_to(DOCS)
            (self._out / page).write_text(self._linked(source, page), encoding="utf-8")
        for file in self._files:  # which grows: files have links too
            self._write_file(file)

    def _write_file(self, file: Path) -> None:
        page = _page_of(file)
        (self._out / page).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / file).suffix == ".md":
            text = self._linked(ROOT / file, page)
        elif (ROOT / file).is_dir():
            members = sorted(child.relative_to(ROOT) for child in (ROOT / file).iterdir() if child.is_file())
            self._files += [member for member in members if member not in self._files]
            links = (f"- [{member.name}]({_relative(_page_of(member), page)})" for member in members)
            text = "\n".join([f"# {file}", "", *links, ""])
        else:
            code = (ROOT / file).read_text(encoding="utf-8")
            text = f"# {file}\n\n````{_LANGUAGES.get(file.suffix, 'text')}\n{code}\n````\n"
        (self._out / page).write_text(text, encoding="utf-8")

    def _linked(self, source: Path, page: Path) -> str:
        """The text of a Markdown file, whose links lead to pages of the site."""

        def replace(link: re.Match[str]) -> str:
            start, address, anchor = link.groups(default="")
            target = (source.parent / address).resolve()
            if ":" in address or not target.exists():
                return link[0]
            if target.is_relative_to(DOCS):
                return start + _relative(target.relative_to(DOCS), page) + anchor
            file = target.relative_to(ROOT)
            if file not in self._files:
                self._files.append(file)
            return start + _relative(_page_of(file), page) + anchor

        return _LINK.sub(replace, source.read_text(encoding="utf-8"))


def _page_of(file: Path) -> Path:
    return Path("files", file if file.suffix == ".md" else f"{file}.md")


def _relative(target: Path, page: Path) -> str:
    return os.path.relpath(target, page.parent)


def commands() -> str:
    """The reference of the commands and all their options."""
    lines = ["# Commands", "", "Every command with its arguments and options.", ""]
    for context in _tree(typer.main.get_command(app), "dramaturg", None):
        command = context.command
        lines += [f"## {context.command_path}", "", *_paragraphs(command.help or ""), ""]
        options = [option for option in command.params if option.name not in ("help", "help_all")]
        rows = [_option(option, context) for option in options]
        if isinstance(command, TyperGroup):
            lines += [
                "Commands: " + ", ".join(f"`{name}`" for name in command.list_commands(context)) + ".",
                "",
            ]
        if rows:
            lines += ["| argument or option | meaning |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def _tree(command: Any, name: str, parent: Any) -> Iterator[Any]:
    """The contexts of a command and of those below it."""
    loaded = command.load() if isinstance(command, LazyCommand) else command
    context = loaded.context_class(loaded, parent=parent, info_name=name)
    yield context
    if isinstance(loaded, TyperGroup):
        for member in loaded.list_commands(context):
            if not loaded.commands[member].hidden:
                yield from _tree(loaded.commands[member], member, context)


def _option(option: Any, context: Any) -> str:
    value = option.metavar or option.display_type(context)
    if option.param_type_name == "argument":
        name = option.metavar or option.name.upper()
    else:
        names = ", ".join([*option.opts, *option.secondary_opts])
        name = names if option.is_flag else f"{names} {value}"
    text = option.help or ""
    default = option.default
    if default not in (None, (), [], False, "") and not callable(default) and "efault" not in text:
        text += f" Default: `{default}`."
    return f"| {_code(name)} | {_cell(text)} |"


def _code(text: str) -> str:
    return "`" + " ".join(text.split()).replace("|", "\\|") + "`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;") if text else ""


def _paragraphs(text: str) -> list[str]:
    """A help text as Markdown: its indented lines are examples."""
    lines = []
    for part in inspect.cleandoc(text.replace("\b", "")).split("\n\n"):
        lines += [part if part.startswith("    ") else " ".join(part.split()).replace("<", "&lt;"), ""]
    return lines


class _Field(NamedTuple):
    name: str
    type: str
    default: str
    text: str


def settings() -> str:
    """The reference of the settings of all services."""
    for package in ("dramaturg", "services", "gateway"):
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if module.name.rsplit(".", 1)[1] in {"settings", "judge"} or module.name.endswith(".spec"):
                importlib.import_module(module.name)
    sections: dict[str, list[type[BaseModel]]] = defaultdict(list)
    for kind in _subclasses(Settings):
        if isinstance(section := getattr(kind, "section", None), str) and section not in sections:
            sections[section].append(kind)
    lines = [
        "# Settings",
        "",
        "A setting is a key of the table `[SECTION]` in the file that `DRAMATURG_CONFIG` names, or a",
        "variable `DRAMATURG_<SECTION>_<KEY>`, which takes precedence; keys of a nested table follow `__`.",
        "",
    ]
    for section, kinds in sorted(sections.items()):
        lines += [f"## [{section}]", ""]
        parts, done = [*kinds], []
        while parts:
            part = parts.pop(0)
            done.append(part)
            summary = inspect.cleandoc(part.__doc__ or "").partition("\n\n")[0].replace("``", "`")
            if part not in kinds:
                lines += [f"### {section}: {part.__name__}", ""]
            lines += [summary, "", "| key | type | default | meaning |", "|---|---|---|---|"]
            for field in _fields(part):
                lines.append(f"| `{field.name}` | {field.type} | {field.default} | {_cell(field.text)} |")
            lines.append("")
            for nested in _nested(part):
                if nested not in done and nested not in parts:
                    parts.append(nested)
    return "\n".join(lines)


def _subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    for child in kind.__subclasses__():
        yield child
        yield from _subclasses(child)


def _fields(kind: type[BaseModel]) -> Iterator[_Field]:
    texts = {name: text for base in reversed(kind.__mro__) for name, text in _texts(base).items()}
    for name, field in kind.model_fields.items():
        default = field.get_default(call_default_factory=False)
        shown = (
            "required"
            if field.is_required()
            else ""
            if default in (None, PydanticUndefined)
            else f"`{default!r}`"
        )
        if isinstance(default, BaseModel) or len(shown) > 80:
            shown = ""
        type_ = re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", inspect.formatannotation(field.annotation))
        yield _Field(name, _code(type_), _cell(shown), texts.get(name, ""))


def _texts(kind: type[Any]) -> dict[str, str]:
    """The strings that follow the fields of a class."""
    if kind.__module__.partition(".")[0] not in {"dramaturg", "services", "gateway"}:
        return {}
    body: Any = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    texts: dict[str, str] = {}
    for field, after in zip(body.body, body.body[1:], strict=False):
        is_field = isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if is_field and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            texts[field.target.id] = inspect.cleandoc(str(after.value.value)).replace("``", "`")
    return texts


def _nested(kind: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """The models that the fields of a model have, directly or in a container."""

    def search(annotation: Any) -> Iterator[type[BaseModel]]:
        if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
            yield annotation
        for argument in getattr(annotation, "__args__", ()):
            yield from search(argument)

    for field in kind.model_fields.values():
        yield from search(field.annotation)


def contracts() -> str:
    """The reference of the gRPC services and their messages."""
    lines = ["# Contracts", "", "The services of gRPC, their methods and messages, from the protos.", ""]
    for file in _descriptors():
        comments = {tuple(place.path): place.leading_comments for place in file.source_code_info.location}
        for number, service in enumerate(file.service):
            lines += [f"## {file.package}.{service.name}", "", *_comment(comments.get((6, number)))]
            for index, method in enumerate(service.method):
                streams = ("stream " * method.client_streaming, "stream " * method.server_streaming)
                request, answer = (_link(name) for name in (method.input_type, method.output_type))
                lines += [
                    f"### {service.name}.{method.name}",
                    "",
                    f"{streams[0]}{request} → {streams[1]}{answer}",
                    "",
                ]
                lines += _comment(comments.get((6, number, 2, index)))
        for number, message in enumerate(file.message_type):
            lines += _message(file.package, message, (4, number), comments)
        for number, enum in enumerate(file.enum_type):
            lines += _enum(f"{file.package}.{enum.name}", enum, (5, number), comments)
    return "\n".join(lines)


def _descriptors() -> list[FileDescriptorProto]:
    names = sorted(str(path.relative_to(ROOT / "protos")) for path in (ROOT / "protos").rglob("*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "set.binpb")
        included = Path(str(protoc.__file__)).parent / "_proto"
        arguments = [
            f"-I{ROOT / 'protos'}",
            f"-I{included}",
            f"--descriptor_set_out={out}",
            "--include_source_info",
        ]
        if protoc.main(["protoc", *arguments, *names]):
            raise SystemExit("the protos cannot be read")
        return list(FileDescriptorSet.FromString(out.read_bytes()).file)


def _message(
    package: str, message: Any, path: tuple[int, ...], comments: Mapping[tuple[int, ...], str]
) -> list[str]:
    if message.options.map_entry:
        return []
    name = f"{package}.{message.name}"
    lines = [f"### {name}", "", *_comment(comments.get(path))]
    if message.field:
        lines += ["| field | type | meaning |", "|---|---|---|"]
    for number, field in enumerate(message.field):
        text = " ".join(_comment(comments.get((*path, 2, number))))
        lines.append(f"| `{field.name}` | {_field_type(field, message)} | {_cell(text)} |")
    lines.append("")
    for number, nested in enumerate(message.nested_type):
        lines += _message(name, nested, (*path, 3, number), comments)
    for number, enum in enumerate(message.enum_type):
        lines += _enum(f"{name}.{enum.name}", enum, (*path, 4, number), comments)
    return lines


def _enum(name: str, enum: Any, path: tuple[int, ...], comments: Mapping[tuple[int, ...], str]) -> list[str]:
    lines = [
        f"### {name}",
        "",
        *_comment(comments.get(path)),
        "| value | number | meaning |",
        "|---|---|---|",
    ]
    for number, value in enumerate(enum.value):
        text = " ".join(_comment(comments.get((*path, 2, number))))
        lines.append(f"| `{value.name}` | {value.number} | {_cell(text)} |")
    return [*lines, ""]


def _field_type(field: FieldDescriptorProto, message: Any) -> str:
    repeated = field.label == FieldDescriptorProto.LABEL_REPEATED
    if not field.type_name:
        name = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
        return f"{'repeated ' * repeated}{name}"
    entries = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    if entry := entries.get(field.type_name.rpartition(".")[2]):
        key, value = (_field_type(part, entry) for part in entry.field)
        return f"map of {key} to {value}"
    return f"{'repeated ' * repeated}{_link(field.type_name)}"


def _link(name: str) -> str:
    full = name.removeprefix(".")
    short = full.rpartition(".")[2]
    return f"[{short}](#{full.lower().replace('.', '')})" if full.startswith("dramaturg.") else short


def _comment(text: str | None) -> list[str]:
    if not text:
        return []
    return [textwrap.dedent(text).strip().replace("<", "&lt;"), ""]


def style() -> str:
    """The style sheet of the site: the tokens in both themes, and the properties of its theme."""
    theme = "".join(f"  --md-{name}: var(--{token});\n" for name, token in _THEME.items())
    links = ".md-typeset :is(p, li, td) > a:not(.md-button) { text-decoration: underline 1px; }\n"
    return f"[data-md-color-scheme] {{\n{tokens.declarations()}{theme}}}\n{links}"


def main() -> None:
    """Writes the source of the site."""
    pages = {"commands.md": commands(), "settings.md": settings(), "contracts.md": contracts()}
    generated = {f"reference/{name}": text for name, text in pages.items()}
    Site(Path(sys.argv[1]).resolve()).write({STYLE: style(), **generated})


if __name__ == "__main__":
    main()
