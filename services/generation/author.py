"""Asks the models of this process on behalf of the authoring and edge services, and signs what they answer.

Questions with an answer form use the same ``Asker`` as judges; calls reach the generator without the network.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

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
from dramaturg.judge.provenance import sign
from services.generation.servicer import Generator

if TYPE_CHECKING:
    from dramaturg.api.generation.v1.generation_service_pb2_grpc import GenerationServiceAsyncStub


SHORT_ANSWER_TOKENS = 2048
"""The token cap for answers of a word or a line. Choice-75 uses 30 (section 3), which truncates models that
reason before they answer. Other models stop by themselves far below the cap.
"""


@dataclass(frozen=True)
class Written:
    """The result of a request for plain text."""

    text: str
    """The raw answer, usable or not; the text of the refusal where the model declined."""
    abstention: Abstention | None
    """The reason why the answer is unusable. None: it is usable."""
    completion: Completion
    provenance: Provenance
    """The prompts, calls, cost and parameters. The author's name is not set."""


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
            options: The model, the sampling and the index of the repeat; see ``with_defaults``.
            prompts: The prompts that the conversation was rendered from.
            top_logprobs: The number of alternatives requested per token. 0: no log-probabilities.

        Raises:
            ServiceError: There is no answer; the errors of ``GenerationService.Generate``.
        """
        request = GenerateRequest(
            model=options.model,
            messages=messages,
            sampling=options.sampling,
            logprobs=top_logprobs > 0,
            top_logprobs=top_logprobs,
            repeat_index=options.repeat_index,
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
    """Fills in the defaults of the options.

    Args:
        options: The options of the request.
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
    """``GenerationService.Generate`` without the network, with the interface of a stub, for ``Asker``."""

    def __init__(self, generator: Generator) -> None:
        self._generator = generator

    async def Generate(self, request: GenerateRequest) -> GenerateResponse:
        return await self._generator.generate(request)


class Signed(Protocol):
    """A response that says how it was made."""

    @property
    def provenance(self) -> Provenance:
        """How it was made."""


Response = TypeVar("Response", bound=Signed)


@dataclass(frozen=True)
class Signature:
    """Who answers: the same as the identity of the contract says."""

    name: str
    version: str
    contract: str

    async def under(self, work: Awaitable[Response]) -> Response:
        """What the work answers, with who answered and how long it took."""
        started = time.perf_counter()
        response = await work
        sign(response.provenance, self, self.contract, started=started)
        return response


_INDENT = "\n    "
_LINE_END = re.compile(r"\r\n?|\n")


def indented(text: str) -> str:
    """Indents the lines after the first, so that none of them looks like a line of the prompt."""
    return _LINE_END.sub(_INDENT, text.strip())


def labelled(parts: Mapping[str, str]) -> str:
    """Returns one labelled line for each part that is not blank."""
    return "\n".join(f"{label}: {indented(text)}" for label, text in parts.items() if text.strip())
