"""The wording of docs, contracts, help texts, docstrings and comments is that of an API reference."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

BANNED = {
    r"whoever|whomever": "name the caller, the user or the service",
    r"whatever|whichever": "any, every, regardless of",
    r"so many|so much of": "the number, the limit",
    r"what is told|is told (of|what|to)": "receives, is reported",
    r"who knows": "name the component",
    r"holds against": "applies to",
    r"the house|in the house": "the project, the service",
    r"nobody|somebody|anybody|everybody": "no caller, a caller, any caller, all",
    r"at (its|their) word": "literally",
}
"""Regular expressions of phrases, and what to write instead."""

PROSE = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/**/*.md",
    "k8s/*.md",
    "research/*.md",
    "protos/**/*.proto",
)
CODE = tuple(
    f"{top}/**/*.py" for top in ("dramaturg", "services", "gateway", "research", "examples", "bench")
)

_PHRASES = [(re.compile(rf"\b(?:{phrase})\b", re.IGNORECASE), advice) for phrase, advice in BANNED.items()]


def tracked(patterns: tuple[str, ...]) -> list[Path]:
    """The files in git that match; generated code and prompts are not among them."""
    globs = [f":(glob){pattern}" for pattern in patterns]
    listed = subprocess.run(["git", "ls-files", *globs], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def code_prose(source: str) -> Iterator[tuple[int, str]]:
    """The lines of comments, docstrings and help texts of a module. Other strings may be prompts or data."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr):
            texts: list[ast.AST] = [node.value]
        elif isinstance(node, ast.keyword) and node.arg == "help":
            texts = list(ast.walk(node.value))
        else:
            continue
        for text in texts:
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield from enumerate(text.value.split("\n"), start=text.lineno)


def found_phrases(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    lines = code_prose(text) if path.suffix == ".py" else enumerate(text.split("\n"), start=1)
    for number, line in lines:
        for phrase, advice in _PHRASES:
            if match := phrase.search(line):
                yield f"{relative(path)}:{number}: {match[0]!r}; write: {advice}"


@pytest.mark.parametrize("patterns", [PROSE, CODE], ids=["prose", "code"])
def test_banned_phrases_are_absent(patterns: tuple[str, ...]) -> None:
    found = [line for path in tracked(patterns) for line in found_phrases(path)]
    assert not found, "\n".join(found)


def test_phrases_are_found_in_every_kind_of_text() -> None:
    source = (
        '# Whoever calls it.\n"""Takes so many\nitems."""\noption(help="For nobody.")\nprompt = "nobody"\n'
    )
    hits = [
        (number, match[0].lower())
        for number, line in code_prose(source)
        for phrase, _ in _PHRASES
        if (match := phrase.search(line))
    ]
    assert hits == [(1, "whoever"), (2, "so many"), (4, "nobody")]
