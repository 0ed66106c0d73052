"""Asks the models of this process, for those who write with them.

What is asked for a form of answer goes through the same ``Asker`` as every judge's question, with the
service's own completer in the place of the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.provenance_pb2 import PromptReference, Provenance
from dramaturg.api.generation.v1.generation_service_pb2 import (
    Completion,
    GenerateRequest,
    GenerateResponse,
    Message,
)
from dramaturg.judge import abstentions
from dramaturg.judge.abstentions import Abstention
from dramaturg.judge.llm import Asker, request_parameters
from services.generation.generator import Generator

if TYPE_CHECKING:
    from dramaturg.api.generation.v1.generation_service_pb2_grpc import GenerationServiceAsyncStub


SHORT_ANSWER_TOKENS = 2048
"""A cap for answers of a word or a line. One as short as they are (Choice-75 has 30, section 3) would cut off
every model that reasons before it answers; one that does not stops by itself long before, so that the cap
costs nothing.
"""


@dataclass(frozen=True)
class Written:
    """What came of asking for plain text."""

    text: str
    """The answer as it came, of use or not; a refusal's words where the model declined."""
    abstention: Abstention | None
    """Why it is of no use. None: it is."""
    completion: Completion
    """The completion."""
    provenance: Provenance
    """The prompts, the calls, what they cost and the parameters; the author's own name is still missing."""


class Author:
    """Asks the models.

    Args:
        generator: Completes conversations.

    Attributes:
        asker: Asks for answers of a form. Its errors are those of ``GenerationService.Generate``.
    """

    def __init__(self, generator: Generator) -> None:
        self._generation = _InProcess(generator)
        self.asker = Asker(cast("GenerationServiceAsyncStub", self._generation))

    async def write(
        self,
        messages: Sequence[Message],
        options: JudgeOptions,
        *,
        prompts: Sequence[PromptReference] = (),
        top_logprobs: int = 0,
    ) -> Written:
        """Asks for plain text.

        Args:
            messages: The conversation.
            options: The model, the sampling and which repeat this is; see ``with_defaults``.
            prompts: The prompts that the conversation was made with.
            top_logprobs: How many alternatives are asked for at each token. 0: no log-probabilities at all.

        Raises:
            ServiceError: There is no answer; as ``GenerationService.Generate`` says it.
        """
        request = GenerateRequest(
            model=options.model,
            messages=messages,
            sampling=options.sampling,
            logprobs=top_logprobs > 0,
            top_logprobs=top_logprobs,
            repeat_index=options.repeat_index,
            request_id=options.request_id,
        )
        completion = (await self._generation.Generate(request)).completion
        provenance = Provenance(
            prompts=prompts,
            completions=completion.calls,
            usage=completion.usage,
            parameters=request_parameters(request),
        )
        return Written(completion.text, abstentions.of_completion(completion), completion, provenance)


def with_defaults(
    options: JudgeOptions, *, temperature: float | None = None, max_output_tokens: int | None = None
) -> JudgeOptions:
    """The options, completed.

    Args:
        options: What the request says.
        temperature: The temperature where the request sets none. None: the provider's.
        max_output_tokens: The token cap where the request sets none. None: the provider's.
    """
    complete = JudgeOptions()
    complete.CopyFrom(options)
    if temperature is not None and not options.sampling.HasField("temperature"):
        complete.sampling.temperature = temperature
    if max_output_tokens is not None and not options.sampling.HasField("max_output_tokens"):
        complete.sampling.max_output_tokens = max_output_tokens
    return complete


class _InProcess:
    """GenerationService.Generate without the network, for ``Asker``, which knows it as a stub."""

    def __init__(self, generator: Generator) -> None:
        self._generator = generator

    async def Generate(self, request: GenerateRequest) -> GenerateResponse:
        return await self._generator.generate(request)
