"""Wires the generation service."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from dramaturg.api.generation.v1 import (
    authoring_service_pb2_grpc,
    edge_service_pb2_grpc,
    generation_service_pb2,
    generation_service_pb2_grpc,
)
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.judge.protocols import CALLS_MODELS
from dramaturg.service.server import Contract
from dramaturg.service.settings import SettingsError
from services.generation.author import Author
from services.generation.authoring import servicer as authoring
from services.generation.batch_lane import BatchLane
from services.generation.calls import DeadlinePolicy
from services.generation.completions import Completer
from services.generation.edges import servicer as edges
from services.generation.ledger import Ledger, LedgerError, migrate_ledger, open_ledger
from services.generation.providers.factory import open_providers
from services.generation.registry import Registry
from services.generation.retries import RetryingProvider
from services.generation.servicer import GenerationServicer, Generator
from services.generation.settings import GenerationSettings

PROMPTS = Path(__file__).parent / "prompts"


class App:
    """The generation service, with the providers and the ledger that its settings name."""

    name = "generation"

    def __init__(self, settings: GenerationSettings | None = None) -> None:
        self._settings = settings or GenerationSettings()

    @staticmethod
    def migrate() -> bool:
        """Creates and upgrades the tables of the ledger on PostgreSQL.

        Returns:
            Whether the settings name such a database.

        Raises:
            StoreError: The database is unavailable, or a newer release wrote the tables.
        """
        return migrate_ledger(GenerationSettings().ledger_address())

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Sequence[Contract]]:
        """Opens the providers and the ledger, and closes them at the end.

        Raises:
            SettingsError: a key, a recording, a price table, a prompt or the ledger cannot be used.
        """
        settings, release = self._settings, version("dramaturg")
        prompts = PromptLibrary(PROMPTS, settings.prompts_dir, service=self.name)
        async with AsyncExitStack() as stack:
            ledger = await stack.enter_async_context(_ledger(settings))
            providers = open_providers(settings, os.environ, ledger)
            for configured in providers:
                stack.push_async_callback(configured.provider.close)

            def divide(replicas: int) -> None:
                for one in providers:
                    if isinstance(one.provider, RetryingProvider):
                        one.provider.divide(replicas)

            ledger.watch_replicas(divide)
            registry = Registry(providers, settings.default_model)
            lane = BatchLane(ledger, registry.configured, settings.batches)
            await stack.enter_async_context(lane.collecting())
            completer = Completer(
                registry,
                ledger,
                repair_request(prompts),
                settings.doubled_default_tokens,
                shared=settings.share_completions,
                lane=lane,
            )
            deadlines = DeadlinePolicy(settings.maximum_seconds, settings.deadline_reserve_seconds)
            generator = Generator(completer, deadlines, max_batch_requests=settings.max_batch_requests)
            author = Author(generator)
            servicer = GenerationServicer(generator, registry, ledger)
            contracts = [
                Contract.make(
                    generation_service_pb2.DESCRIPTOR.services_by_name["GenerationService"],
                    generation_service_pb2_grpc.add_GenerationServiceServicer_to_server,
                    servicer,
                    name="generation",
                    version=release,
                    description="Completes conversations with the models of the configured providers.",
                    capabilities=[CALLS_MODELS],
                    weights={"GenerateBatch": lambda request: len(request.requests)},
                ),
                Contract.make(
                    authoring.DESCRIPTOR,
                    authoring_service_pb2_grpc.add_AuthoringServiceServicer_to_server,
                    authoring.AuthoringServicer(author, prompts, version=release),
                    name=authoring.NAME,
                    version=release,
                    description="Writes the texts that are judged, with any model.",
                    capabilities=[CALLS_MODELS],
                ),
                Contract.make(
                    edges.DESCRIPTOR,
                    edge_service_pb2_grpc.add_EdgeServiceServicer_to_server,
                    edges.EdgeServicer(author, prompts, version=release),
                    name=edges.NAME,
                    version=release,
                    description="Predicts, with any model, which event comes before which.",
                    capabilities=[CALLS_MODELS],
                ),
            ]
            # Both authors load their prompts from one library.
            for contract in contracts[1:]:
                prompts.describe(contract.identity)
            yield [replace(contract, models=servicer) for contract in contracts]


def repair_request(prompts: PromptLibrary) -> Callable[[str], str]:
    """Makes the text of the request to repair an answer from the description of its error."""
    prompt = prompts.load("repair_json", content=("error",))
    return lambda error: prompt.render({"error": error})[-1].text


@asynccontextmanager
async def _ledger(settings: GenerationSettings) -> AsyncIterator[Ledger]:
    async with AsyncExitStack() as stack:
        try:
            ledger = await stack.enter_async_context(open_ledger(settings.ledger_address()))
        except LedgerError as error:
            raise SettingsError(f"generation.{settings.ledger_setting()}: {error}") from error
        yield ledger
