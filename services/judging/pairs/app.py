"""Wires the judge of pairs: its settings, its prompts, the channel to what it asks, and its contract."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from dramaturg.api.generation.v1.generation_service_pb2_grpc import GenerationServiceStub
from dramaturg.api.judging.v1 import pair_judge_service_pb2_grpc
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.service.channel import open_channel
from dramaturg.service.contract import Contract
from services.judging.pairs.asking import TokenAsker
from services.judging.pairs.judge import LlmPairJudge
from services.judging.pairs.servicer import DESCRIPTOR, PairJudgeServicer
from services.judging.pairs.settings import PairJudgeSettings

PROMPTS = Path(__file__).parent / "prompts"
"""The folder of the service's own prompts."""


class App:
    """The judge of pairs as a service.

    Args:
        settings: By default those of the environment.
    """

    name = PairJudgeSettings.section

    def __init__(self, settings: PairJudgeSettings | None = None) -> None:
        self._settings = settings or PairJudgeSettings()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Sequence[Contract]]:
        """See ``dramaturg.service.app.App``.

        Raises:
            PromptError: A prompt file cannot be used.
        """
        settings = self._settings
        library = PromptLibrary(PROMPTS, settings.prompts_dir)
        async with open_channel(settings.generation_target) as channel:
            asker = TokenAsker(
                GenerationServiceStub(channel),
                model=settings.model,
                max_output_tokens=settings.max_output_tokens,
                logprobs=settings.logprobs,
            )
            yield [_contract(LlmPairJudge(asker, library, settings.excerpts))]


def _contract(judge: LlmPairJudge) -> Contract:
    return Contract.make(
        DESCRIPTOR,
        pair_judge_service_pb2_grpc.add_PairJudgeServiceServicer_to_server,
        PairJudgeServicer(judge),
        name=judge.name,
        version=judge.version,
        description=judge.description,
        capabilities=judge.capabilities,
    )
