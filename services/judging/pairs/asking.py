"""Asks a model for an answer together with its tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.generation.v1.generation_service_pb2 import Completion, GenerateRequest, GenerateResponse
from dramaturg.judge.answers import AnswerForm
from dramaturg.judge.asking import ask_or_abstain
from dramaturg.judge.excerpts import Excerpt
from dramaturg.judge.llm import Answer, Asker
from dramaturg.judge.prompts import Prompt

if TYPE_CHECKING:
    from dramaturg.api.generation.v1.generation_service_pb2_grpc import GenerationServiceAsyncStub

Parsed = TypeVar("Parsed")


class TokenAsker:
    """Asks like ``dramaturg.judge.asking``, and hands over the completion too.

    Args:
        stub: The generation service.
        model: The model to use where the options name none. Empty: the service's default.
        max_output_tokens: The cap on an answer where the options set none. None: the provider's.
        logprobs: Whether the tokens' log-probabilities are asked for.
    """

    def __init__(
        self,
        stub: GenerationServiceAsyncStub,
        *,
        model: str = "",
        max_output_tokens: int | None = None,
        logprobs: bool = True,
    ) -> None:
        self._stub = stub
        self._model = model
        self._max_output_tokens = max_output_tokens
        self._logprobs = logprobs

    async def ask(
        self,
        prompt: Prompt,
        shown: Mapping[str, Excerpt],
        form: AnswerForm[Parsed],
        options: JudgeOptions,
        values: Mapping[str, str],
    ) -> tuple[Answer[Parsed], Completion]:
        """Asks one question; see ``dramaturg.judge.asking.ask_or_abstain``.

        Returns:
            The answer, and the completion that it was read from; an empty one where there is none.

        Raises:
            ServiceError: The model's configuration keeps it from ever answering.
        """
        call = _OneCall(self._stub, logprobs=self._logprobs)
        asker = Asker(
            cast("GenerationServiceAsyncStub", call),
            model=self._model,
            max_output_tokens=self._max_output_tokens,
        )
        answer = await ask_or_abstain(asker, prompt, shown, form, options, values)
        return answer, call.completion


class _OneCall:
    """Stands in for the stub in one call: adds what is asked for, and keeps what is answered."""

    def __init__(self, stub: Any, *, logprobs: bool) -> None:
        self._stub = stub
        self._logprobs = logprobs
        self.completion = Completion()

    async def Generate(self, request: GenerateRequest) -> GenerateResponse:
        request.logprobs = self._logprobs
        response: GenerateResponse = await self._stub.Generate(request)
        self.completion = response.completion
        return response
