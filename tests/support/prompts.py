"""The text of prompt files, read by other means than the library's."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from dramaturg.judge.prompts import SHARED_PROMPTS


def expanded(file: Path) -> str:
    """A prompt file with the files that it includes, which are shared ones or stand beside it."""

    def include(found: re.Match[str]) -> str:
        beside = file.parent / f"{found[1]}.md"
        source = beside if beside.exists() else SHARED_PROMPTS / beside.name
        return source.read_text(encoding="utf-8").split("# text\n")[1].strip()

    return re.sub(r"\{\{> (\w+)\}\}", include, file.read_text(encoding="utf-8"))


def digest(file: Path) -> str:
    """The version of a prompt that takes no part from another file."""
    return hashlib.sha256(expanded(file).encode()).hexdigest()
