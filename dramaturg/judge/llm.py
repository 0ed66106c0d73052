"""Asks a language model, through GenerationService, for an answer of a given form.

It asks once: retries and the request to repair an answer are GenerationService's, and only its.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

import grpc

from dramaturg.api.common.v1.judging_pb2 import JudgeOptions, Sampling
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.generation.v1.generation_service_pb2 import Completion, GenerateRequest, JsonFormat
from dramaturg.judge import abstentions, answers
from dramaturg.judge.abstentions import Abstention
from dramaturg.judge.answers import AnswerForm, UnclearAnswerError
from dramaturg.judge.excerpts import Excerpt
from dramaturg.judge.prompts import Prompt
from dramaturg.service.errors import ServiceError, downstream

if TYPE_CHECKING:
    from dramaturg.api.generation.v1.generation_service_pb2_grpc import GenerationServiceAsyncStub

Parsed = TypeVar("Parsed")

ANSWER_PLACEHOLDER = "answer"
"""The placeholder for the form's instruction; every prompt has it."""


@dataclass(frozen=True)
class Answer(Generic[Parsed]):
    """What came of asking: a parsed value or an abstention, and where it comes from."""

    value: Parsed | None
    """What the form read. None: nothing, and there is an abstention."""
    abstention: Abstention | None
    """Why nothing could be read."""
    provenance: Provenance
    """The prompt, the calls, what they cost and the parameters; the judge's own name is still missing."""
    completion: Completion = field(default_factory=Completion)
    """What it was read from. Empty: the model could not be asked."""


class Asker:
    """Asks questions of one GenerationService.

    Args:
        stub: The service.
        model: The model to use where the options name none. Empty: the service's default.
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
            prompt: The prompt, with a placeholder ``answer`` for what the form wants to say.
            values: The values of its other placeholders.
            form: The form of the answer.
            options: The model, the sampling and which repeat this is.
            logprobs: Whether the log-probabilities of the answer's tokens are asked for.

        Raises:
            ServiceError: The call failed, as ``dramaturg.service.errors.downstream`` says it.
        """
        request = GenerateRequest(
            model=options.model or self._model,
            messages=prompt.render({**values, ANSWER_PLACEHOLDER: answers.instruction(form)}),
            sampling=self._sampling(options),
            json_format=JsonFormat(name=form.name, schema=answers.schema(form)),
            logprobs=logprobs,
            repeat_index=options.repeat_index,
            request_id=options.request_id,
        )
        try:
            response = await self._stub.Generate(request)
        except grpc.aio.AioRpcError as error:
            raise downstream(error, "generation") from error
        completion = response.completion
        value, abstention = _read(completion, form)
        provenance = Provenance(
            prompts=[prompt.reference],
            completions=completion.calls,
            usage=completion.usage,
            parameters=request_parameters(request),
        )
        return Answer(value, abstention, provenance, completion)

    def _sampling(self, options: JudgeOptions) -> Sampling:
        sampling = Sampling()
        sampling.CopyFrom(options.sampling)
        if self._temperature is not None and not sampling.HasField("temperature"):
            sampling.temperature = self._temperature
        if self._max_output_tokens is not None and not sampling.HasField("max_output_tokens"):
            sampling.max_output_tokens = self._max_output_tokens
        return sampling


async def ask_or_abstain(
    asker: Asker,
    prompt: Prompt,
    shown: Mapping[str, Excerpt],
    form: AnswerForm[Parsed],
    options: JudgeOptions,
    values: Mapping[str, str] | None = None,
    *,
    logprobs: bool = False,
) -> Answer[Parsed]:
    """Asks one question.

    Args:
        asker: Asks the model.
        prompt: The prompt.
        shown: The parts of the request, by placeholder. What was cut of them is noted in the provenance.
        form: The form of the answer.
        options: The model, the sampling and which repeat this is.
        values: The values of placeholders that show nothing of the request.
        logprobs: Whether the log-probabilities of the answer's tokens are asked for.

    Returns:
        The answer; an abstention also where a passing failure kept the model from answering.

    Raises:
        ServiceError: The model's configuration keeps it from ever answering.
    """
    texts = {name: excerpt.text for name, excerpt in shown.items()}
    try:
        answer = await asker.ask(prompt, {**texts, **(values or {})}, form, options, logprobs=logprobs)
    except ServiceError as error:
        failure = abstentions.of_failure(error)
        if failure is None:
            raise
        answer = Answer(None, failure, Provenance(prompts=[prompt.reference]))
    for excerpt in shown.values():
        answer.provenance.parameters.update(excerpt.parameters)
    return answer


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def request_parameters(request: GenerateRequest) -> dict[str, str]:
    """The sampling settings and the repeat of a request, by name, where they are set; for provenance."""
    parameters = {
        setting.name: ", ".join(value) if setting.name == "stop" else _shown(value)
        for setting, value in request.sampling.ListFields()
    }
    if request.repeat_index:
        parameters["repeat_index"] = str(request.repeat_index)
    return parameters


def _read(completion: Completion, form: AnswerForm[Parsed]) -> tuple[Parsed, None] | tuple[None, Abstention]:
    abstention = abstentions.of_completion(completion)
    if abstention is not None:
        return None, abstention
    try:
        return form.parse(json.loads(completion.json)), None
    except (UnclearAnswerError, ValueError, RecursionError) as error:
        reason = error.reason if isinstance(error, UnclearAnswerError) else answers.UNPARSABLE
        return None, Abstention(reason, f"The model's answer could not be read: {error}.")
