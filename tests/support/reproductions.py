"""Runs ``research reproduce`` as a process against a scripted model, and reads the folder that it writes."""

from __future__ import annotations

import asyncio
import csv
import fnmatch
import json
import random
import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from tests.support.command_line import Finished, finish, start
from tests.support.openai_server import OpenAIServer, Responder, in_thread

SECONDS = 500.0
"""The longest wait for a command: text metrics take minutes on a machine with other work."""
Grid = list[dict[str, str]]
"""The rows of a CSV table by column."""


def environment(server: OpenAIServer, folder: Path) -> Mapping[str, str]:
    """The variables of a process whose provider is a server, with a ledger of its own."""
    return {
        "OPENAI_BASE_URL": server.base_url,
        "OPENAI_API_KEY": "key",
        "MODEL": "judge",
        "XDG_DATA_HOME": str(folder / "data-home"),
    }


def reproduce(paper: str, data: Path, out: Path, *options: str) -> Finished:
    """Runs the command without a model."""
    return asyncio.run(_run({}, "research", "reproduce", paper, "--data", data, "-o", out, *options))


def reproduce_with(
    responder: Responder, paper: str, data: Path, out: Path, *options: str
) -> tuple[Finished, OpenAIServer]:
    """Runs the command against a model that answers as told; the server has counted its calls."""
    models = [value for name, value in pairwise(options) if name == "--model"]
    with in_thread(OpenAIServer(responder, models=(*models, "judge"))) as server:
        variables = environment(server, out)
        finished = asyncio.run(
            _run(variables, "research", "reproduce", paper, "--data", data, "-o", out, *options)
        )
    return finished, server


async def _run(variables: Mapping[str, str], *arguments: str | Path) -> Finished:
    async with start(*arguments, environment=variables) as process:
        return await finish(process, timeout=SECONDS)


def check_outputs(out: Path, paper: str, *, offline: bool = False) -> None:
    """Asserts that a folder has the outputs which docs/research/papers.md lists for a paper, and no others.

    Args:
        out: The folder of the reproduction.
        paper: The name of the paper.
        offline: Whether no model was named.
    """
    page = (Path(__file__).parents[2] / "docs" / "research" / "papers.md").read_text(encoding="utf-8")
    (section,) = (one for one in page.split("\n## ") if f"dramaturg research reproduce {paper} " in one)
    tables = section.partition("| file | content | offline |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`[^|]+`) \| [^|]+ \| ([^|]+) \|$", tables, re.MULTILINE)
    absent = {"from completed sheets", *(["absent"] if offline else [])}
    listed = {name: without for names, without in rows for name in re.findall(r"`([^`]+)`", names)}
    forms: dict[str, set[str]] = {}
    for file in out.iterdir():
        if re.match(r"(table|figure|section|appendix|ablations|released)", file.name):
            forms.setdefault(file.stem, set()).add(file.suffix)
    whole = ({".csv", ".md", ".tex"}, {".png", ".svg"})
    assert all(found in (*whole, whole[0] | whole[1]) for found in forms.values()), forms
    for name, without in listed.items():
        assert bool(fnmatch.filter(forms, name)) == (without not in absent), (paper, name)
    assert not [one for one in forms if not any(fnmatch.fnmatch(one, name) for name in listed)], paper


def read_csv(file: Path) -> Grid:
    """The rows of a table."""
    with file.open(encoding="utf-8-sig", newline="") as opened:
        return list(csv.DictReader(opened))


def normalized(text: str) -> str:
    """Letters and digits alone, in lower case."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


def last_message(body: Mapping[str, object]) -> str:
    """The text of the last message of a request."""
    messages = body["messages"]
    assert isinstance(messages, list)
    return str(messages[-1]["content"])


def released_pairs(file: Path, seed: int = 0) -> list[tuple[str, str, bool]]:
    """Each pair of DRPE's human study in the order shown, and whether the first is the better one."""
    pairs = []
    for key, article in json.loads(file.read_text()).items():
        chosen = []
        for choice in ("best_summary", "worst_summary"):
            votes = [one[choice][0] for one in article["annotators"]]
            chosen += [system for system in set(votes) if votes.count(system) >= 2]
        if len(chosen) < 2 or chosen[0] == chosen[1]:
            continue
        best, worst = (article[system]["text"] for system in chosen)
        first = random.Random(f"{seed}/{key}").random() < 0.5
        pairs.append((best, worst, True) if first else (worst, best, False))
    return pairs
