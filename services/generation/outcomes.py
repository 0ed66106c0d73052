"""The outcome of answers, and the request after an unusable one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dramaturg.judge.refusals import is_refusal
from services.generation.answers.reader import parse_answer
from services.generation.calls import Answer, Call, Completion, FinishReason, Message, Purchase, Role, Status

FINAL = frozenset({Status.OK, Status.REFUSED, Status.FILTERED, Status.TOOL_CALL, Status.INTERRUPTED})
"""The statuses that no further request changes."""
ROOM_TO_ANSWER = 1024
"""The least tokens that a raised cap leaves for the answer, besides those that the reasoning took."""
LARGEST_CAP = 1_000_000

_STATUSES = {
    FinishReason.REFUSAL: Status.REFUSED,
    FinishReason.FILTER: Status.FILTERED,
    FinishReason.LENGTH: Status.TRUNCATED,
    FinishReason.TOOL_CALL: Status.TOOL_CALL,
    FinishReason.INTERRUPTED: Status.INTERRUPTED,
}


@dataclass(frozen=True, slots=True)
class Remedies:
    """The request that follows an answer of no use: one of its kind for each status that is not final.

    Attributes:
        repair_request: Makes the text of the repair request from the description of the error.
        doubled_default: The least cap with which an answer is requested again that was cut off although the
            request set no cap.
    """

    repair_request: Callable[[str], str]
    doubled_default: int

    def ask_again(self, call: Call, completion: Completion) -> Call:
        """The request that follows ``completion``."""
        answer = completion.answer
        if completion.status is Status.EMPTY:
            return replace(call, ask_index=call.ask_index + 1)
        if completion.status is Status.TRUNCATED:
            sampling = replace(call.sampling, max_output_tokens=self._raised_cap(call, answer))
            return replace(call, sampling=sampling)
        repair = Message(Role.USER, self.repair_request(completion.parse_error))
        return replace(call, messages=(*call.messages, Message(Role.ASSISTANT, answer.text), repair))

    def _raised_cap(self, call: Call, answer: Answer) -> int:
        asked = call.sampling.max_output_tokens or 0
        used = answer.counts.completion if answer.counts else 0
        least = 0 if asked else self.doubled_default
        return min(LARGEST_CAP, max(2 * asked, 2 * used, least, _reasoning_tokens(answer) + ROOM_TO_ANSWER))


def read_outcome(purchases: Sequence[Purchase], call: Call) -> Completion:
    """The outcome of the last answer."""
    answer = purchases[-1].answer
    again = ("asked-again",) if len(purchases) > 1 else ()
    status = _status(answer)
    if status is not Status.OK or call.json_form is None:
        detail = "" if status is Status.OK else _detail(status, answer)
        return Completion(status, tuple(purchases), repairs=again, detail=detail)
    parsed = parse_answer(answer.text, call.json_form, is_last=len(purchases) > 1)
    # A first refusal is requested again like every answer without JSON.
    if parsed.json is None and len(purchases) > 1 and is_refusal(answer.text):
        return Completion(Status.REFUSED, tuple(purchases), repairs=again, detail=answer.text.strip())
    return Completion(
        Status.OK if parsed.json is not None else Status.UNPARSABLE,
        tuple(purchases),
        json=parsed.json,
        repairs=again + parsed.repairs,
        parse_error=parsed.error,
        detail=parsed.error,
    )


def _status(answer: Answer) -> Status:
    status = _STATUSES.get(answer.finish)
    if status is not None:
        return status
    return Status.OK if answer.text.strip() else Status.EMPTY


def _detail(status: Status, answer: Answer) -> str:
    if status is Status.TRUNCATED:
        return _truncation(answer)
    if status is Status.EMPTY and answer.reasoning:
        return "the model wrote reasoning and no answer"
    return answer.detail or answer.refusal


def _truncation(answer: Answer) -> str:
    counts = answer.counts
    length = f"after {counts.completion} tokens" if counts else "by the token cap"
    reasoning = _reasoning_tokens(answer)
    if not reasoning:
        return f"cut off {length}"
    if answer.text.strip():
        return f"cut off {length}, {reasoning} of them reasoning"
    return f"reasoning used up the token cap: cut off {length} before the answer; raise max_output_tokens"


def _reasoning_tokens(answer: Answer) -> int:
    """The number of reasoning tokens: as counted, else estimated at three characters per token."""
    counted = answer.counts.reasoning if answer.counts else 0
    return counted or len(answer.reasoning) // 3
