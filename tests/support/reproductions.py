"""Runs ``dramaturg reproduce`` as a process against a scripted model, and reads the folder that it writes."""

from __future__ import annotations

import asyncio
import csv
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
    return asyncio.run(_run({}, "reproduce", paper, "--data", data, "-o", out, *options))


def reproduce_with(
    responder: Responder, paper: str, data: Path, out: Path, *options: str
) -> tuple[Finished, OpenAIServer]:
    """Runs the command against a model that answers as told; the server has counted its calls."""
    models = [value for name, value in pairwise(options) if name == "--model"]
    with in_thread(OpenAIServer(responder, models=(*models, "judge"))) as server:
        variables = environment(server, out)
        finished = asyncio.run(_run(variables, "reproduce", paper, "--data", data, "-o", out, *options))
    return finished, server


async def _run(variables: Mapping[str, str], *arguments: str | Path) -> Finished:
    async with start(*arguments, environment=variables) as process:
        return await finish(process, timeout=SECONDS)


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
