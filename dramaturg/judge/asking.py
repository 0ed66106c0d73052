"""Asks a model about excerpts of a request, and abstains where it cannot be asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.judge import abstentions
from dramaturg.judge.answers import AnswerForm
from dramaturg.judge.excerpts import Excerpt
from dramaturg.judge.llm import Answer, Asker
from dramaturg.judge.prompts import Prompt
from dramaturg.service.errors import ServiceError

Parsed = TypeVar("Parsed")


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


def notices(shown: Mapping[str, Excerpt]) -> str:
    """What was cut of the parts shown, in words for a rationale. Empty: nothing."""
    return " ".join(excerpt.notice for excerpt in shown.values() if excerpt.notice)
