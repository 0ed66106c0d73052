"""What an answer is worth, and what is asked next where it is of no use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from services.generation.answers.parser import parse_answer
from services.generation.calls import Answer, Call, Completion, FinishReason, Message, Purchase, Role, Status


@dataclass(frozen=True, slots=True)
class Remedies:
    repair_request: Callable[[str], str]
    doubled_default: int

    def ask_again(self, call: Call, completion: Completion) -> Call:
        answer = completion.answer
        if completion.status is Status.EMPTY:
            return replace(call, ask_index=call.ask_index + 1)
        if completion.status is Status.TRUNCATED:
            cap = call.sampling.max_output_tokens or (answer.counts.completion if answer.counts else 0)
            doubled = 2 * cap or self.doubled_default
            return replace(call, sampling=replace(call.sampling, max_output_tokens=doubled))
        repair = Message(Role.USER, self.repair_request(completion.parse_error))
        return replace(call, messages=(*call.messages, Message(Role.ASSISTANT, answer.text), repair))


def read_outcome(purchases: Sequence[Purchase], call: Call) -> Completion:
    """What the last of the answers is worth."""
    answer = purchases[-1].answer
    again = ("asked-again",) if len(purchases) > 1 else ()
    status = _status(answer)
    if status is not Status.OK or call.json_form is None:
        return Completion(status, tuple(purchases), repairs=again)
    parsed = parse_answer(answer.text, call.json_form)
    return Completion(
        Status.OK if parsed.json is not None else Status.UNPARSABLE,
        tuple(purchases),
        json=parsed.json,
        repairs=again + parsed.repairs,
        parse_error=parsed.error,
    )


def _status(answer: Answer) -> Status:
    if answer.finish is FinishReason.REFUSAL:
        return Status.REFUSED
    if answer.finish is FinishReason.LENGTH:
        return Status.TRUNCATED
    return Status.OK if answer.text.strip() else Status.EMPTY
