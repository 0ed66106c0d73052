"""A model that plays readers: reads the prompts of pairs as a model does, and votes as it is told to."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from services.generation.app import App
from services.generation.settings import GenerationSettings
from tests.support.generation import endpoint
from tests.support.openai_server import Answer, Body, OpenAIServer


@dataclass(frozen=True)
class Shown:
    """What a prompt shows."""

    text_1: str
    text_2: str
    roles: tuple[str, ...]
    """As "type: description"; empty for a judge without a role."""


Prefer = Callable[[Shown, str], str]
"""The vote of a role ("" for a judge without one): "1", "2" or "tie"."""


def fenced(prompt: str, label: str) -> str:
    """What stands in the fence of this label."""
    match = re.search(rf"\[BEGIN {label} ([0-9a-f]+)\]\n(.*?)\n?\[END {label} \1\]", prompt, re.DOTALL)
    assert match is not None, f"no fence {label!r}"
    return match[2]


def outside_fences(prompt: str) -> str:
    """The prompt without all that is fenced."""
    return re.sub(r"\[BEGIN ([a-z0-9 ]+) ([0-9a-f]+)\]\n.*?\[END \1 \2\]", "", prompt, flags=re.DOTALL)


def prompt_of(body: Body) -> str:
    """The text of all messages."""
    return "\n".join(message["content"] for message in body["messages"])


def shown(body: Body) -> Shown:
    """What a request body shows."""
    prompt = prompt_of(body)
    roles = tuple(re.findall(r"^Role \d+: (.*)$", outside_fences(prompt), re.MULTILINE))
    return Shown(fenced(prompt, "text 1"), fenced(prompt, "text 2"), roles)


def entries(seen: Shown, prefer: Prefer) -> dict[str, dict[str, Any]]:
    """The entries of a batch, complete and in order."""
    return {
        f"role_{number}": {"reason": f"{role} says so.", "vote": prefer(seen, role)}
        for number, role in enumerate(seen.roles, start=1)
    }


def votes(prefer: Prefer) -> Callable[[Body], Body]:
    """A responder that votes for every role, or once where there are none."""

    def respond(body: Body) -> Body:
        seen = shown(body)
        if not seen.roles:
            return {"reason": "I say so.", "vote": prefer(seen, "")}
        return entries(seen, prefer)

    return respond


def with_tokens(value: Any, logprob: Callable[[str], float], pattern: str = r"\s*\w+|\W") -> Answer:
    """An answer with its tokens, cut by ``pattern``, each with a log-probability of its own."""
    text = json.dumps(value, ensure_ascii=False)
    tokens = [match[0] for match in re.finditer(pattern, text, re.DOTALL)]
    assert "".join(tokens) == text
    return Answer(text, tokens=[(token, logprob(token)) for token in tokens])


def prefer_text(better: Sequence[str]) -> Prefer:
    """A consistent judge: prefers the text that stands first in ``better``, wherever it is shown."""

    def prefer(seen: Shown, role: str) -> str:
        ranks = [better.index(text) for text in (seen.text_1, seen.text_2)]
        return "tie" if ranks[0] == ranks[1] else "1" if ranks[0] < ranks[1] else "2"

    return prefer


@asynccontextmanager
async def generation_target(server: OpenAIServer, **settings: Any) -> AsyncIterator[str]:
    """Serves the real generation service, with one provider, and yields its target."""
    providers: Mapping[str, Any] = {"p0": endpoint(server)}
    generation = GenerationSettings(**{"ledger": ":memory:", "providers": providers, **settings})
    async with (
        App(generation).open() as contracts,
        Server(contracts, ServerSettings.loopback()) as served,
    ):
        yield served.target
