"""Asks a language model, through GenerationService, for answers of given forms.

Each question is one request. GenerationService does the retries and requests repaired answers.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import grpc

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.content_pb2 import Part
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions, Sampling
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.generation.v1.generation_service_pb2 import (
    PROVIDER_FEATURE_USAGE,
    CheckProviderRequest,
    Completion,
    GenerateBatchRequest,
    GenerateBatchResponse,
    GenerateRequest,
    GetRateLimitsRequest,
    JsonFormat,
    ProviderCheck,
)
from dramaturg.judge import abstentions, answers
from dramaturg.judge.abstentions import Abstention
from dramaturg.judge.answers import AnswerForm, UnclearAnswerError
from dramaturg.judge.excerpts import Excerpt
from dramaturg.judge.prompts import Prompt
from dramaturg.judge.streams import MAX_REQUEST_BYTES, collect_responses, merge_streams, split_by_size
from dramaturg.service import context, threads
from dramaturg.service.errors import ServiceError, downstream, from_error_status

if TYPE_CHECKING:
    from dramaturg.api.generation.v1.generation_service_pb2_grpc import GenerationServiceAsyncStub

Parsed = TypeVar("Parsed")

ANSWER_PLACEHOLDER = "answer"
"""The placeholder of the form's instruction, required in every prompt."""
CHECK_SHARE = 0.8
"""The share of the time left that a check of a model may take, so that its failure is reported in time."""
MAX_BATCH = 200
"""The maximum number of requests of a batch (``generation.v1.GenerateBatchRequest``)."""

_GENERATION = "generation"


@dataclass(frozen=True, eq=False)
class Question(Generic[Parsed]):
    """A question to a model about excerpts of a request."""

    prompt: Prompt
    """The prompt, with the placeholder ``answer`` for the form's instruction."""
    shown: Mapping[str, Excerpt]
    """The parts of the request, by placeholder. The provenance reports their truncation."""
    form: AnswerForm[Parsed]
    """The form of the answer."""
    values: Mapping[str, str] = field(default_factory=dict)
    """The values of placeholders without content of the request."""
    parts: Sequence[Part] = ()
    """What follows the prompt: texts and images."""


@dataclass(frozen=True)
class Answer(Generic[Parsed]):
    """A parsed value or an abstention, with its provenance."""

    value: Parsed | None
    """The parsed value. None: see ``abstention``."""
    abstention: Abstention | None
    """The reason why there is no value."""
    provenance: Provenance
    """Prompt, model calls, usage and parameters. The judge's name is not set."""
    completion: Completion = field(default_factory=Completion)
    """The completion that the value is parsed from. Empty: the call failed."""


class Asker:
    """Asks questions of one GenerationService.

    Args:
        stub: The service.
        model: The model where the options name none. Empty: the service's default.
        max_output_tokens: The cap on an answer where the options set none. None: the provider's.
        temperature: The temperature where the options set none. None: the provider's.
    """

    def __init__(
        self,
        stub: GenerationServiceAsyncStub,
        *,
        model: str = "",
        max_output_tokens: int | None = None,
        temperature: float | None = None,
    ) -> None:
        self._stub = stub
        self._model = model
        self._max_output_tokens = max_output_tokens
        self._temperature = temperature

    async def ask(
        self,
        prompt: Prompt,
        values: Mapping[str, str],
        form: AnswerForm[Parsed],
        options: JudgeOptions,
        *,
        logprobs: bool = False,
    ) -> Answer[Parsed]:
        """Asks one question.

        Args:
            prompt: The prompt, with the placeholder ``answer`` for the form's instruction.
            values: The values of its other placeholders.
            form: The form of the answer.
            options: The model, the sampling and the index of the repeat.
            logprobs: Whether the log-probabilities of the answer's tokens are requested.

        Raises:
            ServiceError: The call failed (see ``dramaturg.service.errors.downstream``).
        """
        request = self._request(prompt, values, form, options, self._sampling(options), logprobs=logprobs)
        try:
            response = await self._stub.Generate(request)
        except grpc.aio.AioRpcError as error:
            raise downstream(error, _GENERATION) from error
        completion = response.completion
        return await threads.parse(len(completion.json), _answer, prompt, request, completion, form)

    async def ask_or_abstain(
        self, question: Question[Parsed], options: JudgeOptions, *, logprobs: bool = False
    ) -> Answer[Parsed]:
        """Asks one question. A transient failure makes the answer an abstention.

        Args:
            question: The question.
            options: The model, the sampling and the index of the repeat.
            logprobs: Whether the log-probabilities of the answer's tokens are requested.

        Raises:
            ServiceError: The model's configuration fails every request.
        """
        try:
            answer = await self.ask(
                question.prompt, _values(question), question.form, options, logprobs=logprobs
            )
        except ServiceError as error:
            return _abstained(question, error)
        return _noted(question, answer)

    async def ask_all(
        self, questions: Sequence[Question[Parsed]], options: JudgeOptions
    ) -> AsyncGenerator[tuple[int, Answer[Parsed] | ServiceError]]:
        """Asks several questions by one call, or by several calls where the questions exceed a message.

        Args:
            questions: The questions.
            options: The model, the sampling and the index of the repeat, the same for all.

        Yields:
            The index of each question with its answer, as they arrive. A transient failure makes the answer
            an abstention; a ``ServiceError`` means that the model's configuration fails every request.
        """
        sampling = self._sampling(options)
        requests = [
            self._request(
                question.prompt, _values(question), question.form, options, sampling, parts=question.parts
            )
            for question in questions
        ]
        async with aclosing(self._complete(requests)) as completions:
            async for index, completion in completions:
                question = questions[index]
                if isinstance(completion, Completion):
                    answer = await threads.parse(
                        len(completion.json),
                        _answer,
                        question.prompt,
                        requests[index],
                        completion,
                        question.form,
                    )
                    yield index, _noted(question, answer)
                    continue
                try:
                    yield index, _abstained(question, completion)
                except ServiceError as error:
                    yield index, error

    async def check_model(
        self, model: str, *, configuration_only: bool = False, check_usage: bool = False
    ) -> ProviderCheck:
        """Checks the address, the credentials and the name of a model. Buys nothing without ``check_usage``.

        Args:
            model: The model. Empty: that of questions whose options name none.
            configuration_only: Whether the provider is not called.
            check_usage: Whether it is also found out if answers state token counts, if need be by a call.

        Raises:
            ServiceError: The call failed (see ``dramaturg.service.errors.downstream``).
        """
        remaining = context.remaining()
        timeout = None if remaining is None else CHECK_SHARE * remaining
        request = CheckProviderRequest(
            model=model or self._model,
            configuration_only=configuration_only,
            features=[PROVIDER_FEATURE_USAGE] if check_usage else (),
        )
        try:
            response = await self._stub.CheckProvider(request, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            raise downstream(error, _GENERATION) from error
        return response.check

    async def model_waits(self) -> Sequence[str]:
        """Returns the rate limits that calls to models wait for, as text.

        Raises:
            ServiceError: The call failed (see ``dramaturg.service.errors.downstream``).
        """
        try:
            response = await self._stub.GetRateLimits(GetRateLimitsRequest())
        except grpc.aio.AioRpcError as error:
            raise downstream(error, _GENERATION) from error
        return [
            limits.wait
            for provider in response.providers
            for limits in provider.limits
            if limits.wait and limits.waiting_call_count
        ]

    def _request(
        self,
        prompt: Prompt,
        values: Mapping[str, str],
        form: AnswerForm[Any],
        options: JudgeOptions,
        sampling: Sampling,
        *,
        logprobs: bool = False,
        parts: Sequence[Part] = (),
    ) -> GenerateRequest:
        messages = prompt.render({**values, ANSWER_PLACEHOLDER: answers.instruction(form)})
        if parts:
            messages[-1].parts.extend(parts)
        return GenerateRequest(
            model=options.model or self._model,
            messages=messages,
            sampling=sampling,
            json_format=JsonFormat(
                name=form.name,
                schema=answers.schema(form),
                accepted_schema=answers.accepted_schema(form),
            ),
            logprobs=logprobs,
            repeat_index=options.repeat_index,
        )

    def _complete(
        self, requests: Sequence[GenerateRequest]
    ) -> AsyncGenerator[tuple[int, Completion | ServiceError]]:
        """Yields the completion or the error of each request, as they arrive."""
        if len(requests) == 1:
            return self._complete_one(requests[0])
        parts = split_by_size([request.ByteSize() for request in requests], MAX_BATCH, MAX_REQUEST_BYTES)
        return merge_streams([self._complete_part(requests, part) for part in parts])

    async def _complete_one(
        self, request: GenerateRequest
    ) -> AsyncGenerator[tuple[int, Completion | ServiceError]]:
        try:
            response = await self._stub.Generate(request)
        except grpc.aio.AioRpcError as error:
            yield 0, downstream(error, _GENERATION)
        else:
            yield 0, response.completion

    async def _complete_part(
        self, requests: Sequence[GenerateRequest], part: Sequence[int]
    ) -> AsyncGenerator[tuple[int, Completion | ServiceError]]:
        """Completes requests by one call, repeated for requests that a broken stream lacks."""
        asked: Sequence[int] = ()
        failure = _no_answer()

        def call(indices: Sequence[int]) -> grpc.aio.UnaryStreamCall[Any, GenerateBatchResponse]:
            nonlocal asked
            asked = indices
            return self._stub.GenerateBatch(
                GenerateBatchRequest(requests=[requests[index] for index in indices])
            )

        def index_of(response: GenerateBatchResponse) -> int | None:
            return asked[response.index] if response.index < len(asked) else None

        missing = dict.fromkeys(part)
        try:
            async with aclosing(collect_responses(part, call, index_of)) as responses:
                async for index, response in responses:
                    del missing[index]
                    yield index, _completion(response)
        except grpc.aio.AioRpcError as error:
            failure = downstream(error, _GENERATION)
        for index in missing:
            yield index, failure

    def _sampling(self, options: JudgeOptions) -> Sampling:
        sampling = Sampling()
        sampling.CopyFrom(options.sampling)
        if self._temperature is not None and not sampling.HasField("temperature"):
            sampling.temperature = self._temperature
        if self._max_output_tokens is not None and not sampling.HasField("max_output_tokens"):
            sampling.max_output_tokens = self._max_output_tokens
        return sampling


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def request_parameters(request: GenerateRequest) -> dict[str, str]:
    """Returns the sampling settings and repeat index of a request, where set, by name, for provenance."""
    parameters = {
        setting.name: ", ".join(value) if setting.name == "stop" else _shown(value)
        for setting, value in request.sampling.ListFields()
    }
    if request.repeat_index:
        parameters["repeat_index"] = str(request.repeat_index)
    return parameters


def _values(question: Question[Any]) -> dict[str, str]:
    return {**{name: excerpt.text for name, excerpt in question.shown.items()}, **question.values}


def _answer(
    prompt: Prompt, request: GenerateRequest, completion: Completion, form: AnswerForm[Parsed]
) -> Answer[Parsed]:
    value, abstention = _parse(completion, form)
    provenance = Provenance(
        prompts=[prompt.reference],
        completions=completion.calls,
        usage=completion.usage,
        parameters=request_parameters(request),
    )
    return Answer(value, abstention, provenance, completion)


def _abstained(question: Question[Parsed], error: ServiceError) -> Answer[Parsed]:
    """Returns the abstention for a failed call.

    Raises:
        ServiceError: The failure affects every request.
    """
    failure = abstentions.of_failure(error)
    if failure is None:
        raise error
    provenance = Provenance(prompts=[question.prompt.reference])
    return _noted(question, Answer(None, failure, provenance))


def _noted(question: Question[Parsed], answer: Answer[Parsed]) -> Answer[Parsed]:
    """Adds the truncation of the question to the provenance of the answer."""
    for excerpt in question.shown.values():
        if parameters := excerpt.parameters:
            answer.provenance.parameters.update(parameters)
    return answer


def _completion(response: GenerateBatchResponse) -> Completion | ServiceError:
    result = response.WhichOneof("result")
    if result == "completion":
        return response.completion
    return _no_answer() if result is None else downstream(from_error_status(response.error), _GENERATION)


def _no_answer() -> ServiceError:
    return ServiceError(
        grpc.StatusCode.UNAVAILABLE,
        error_reason_pb2.ERROR_REASON_DEPENDENCY_FAILED,
        "generation sent no completion for this request",
        metadata={"service": _GENERATION},
    )


def _parse(completion: Completion, form: AnswerForm[Parsed]) -> tuple[Parsed, None] | tuple[None, Abstention]:
    abstention = abstentions.of_completion(completion)
    if abstention is not None:
        return None, abstention
    try:
        return form.parse(json.loads(completion.json)), None
    except (UnclearAnswerError, ValueError, RecursionError) as error:
        reason = error.reason if isinstance(error, UnclearAnswerError) else answers.UNPARSABLE
        return None, Abstention(reason, f"The model's answer could not be read: {error}.")
