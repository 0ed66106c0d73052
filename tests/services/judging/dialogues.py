"""What tests of judges of dialogues share: a judge in front of the real generation service."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dramaturg.api.common.v1 import dialogue_pb2
from dramaturg.api.common.v1.dialogue_pb2 import SimulationTask, Utterance
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from services.generation.app import App as GenerationApp
from tests.support.generation import endpoint, generation_settings
from tests.support.openai_server import OpenAIServer

TASK = SimulationTask(name="Linux terminal", description="Act as a terminal. My first command is pwd.")


def dialogue(*texts: str) -> list[Utterance]:
    """Utterances in turn, the user's first."""
    speakers = (dialogue_pb2.SPEAKER_USER, dialogue_pb2.SPEAKER_SIMULATOR)
    return [Utterance(speaker=speakers[index % 2], text=text) for index, text in enumerate(texts)]


def fenced(label: str, text: str) -> str:
    """A fence, made by other means than the service's."""
    marker = hashlib.sha256(f"{label}\n{text}".encode()).hexdigest()[:8]
    return f"[BEGIN {label} {marker}]\n{text}\n[END {label} {marker}]"


@asynccontextmanager
async def generation_target(server: OpenAIServer) -> AsyncIterator[str]:
    """Serves the generation service in front of an endpoint and yields its target."""
    app = GenerationApp(generation_settings(providers={"p0": endpoint(server)}))
    async with app.open() as contracts, Server(contracts, ServerSettings.loopback()) as serving:
        yield serving.target
