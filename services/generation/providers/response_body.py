"""Response bodies of the OpenAI chat-completions protocol as answers.

Only the text decides whether a response is an answer. Token counts and log-probabilities that cannot be right
are left out and noted: a paid answer is not discarded because of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dramaturg.judge.reasoning import Separated, separate
from services.generation.calls import Alternative, Answer, FinishReason, Token, TokenCounts
from services.generation.providers.refusals import Refusal

_FINISH: Mapping[str, FinishReason] = {
    name: finish
    for finish, names in {
        FinishReason.STOP: "stop end_turn eos eos_token stop_sequence end complete completed done normal "
        "finished success finish_reason_stop",
        FinishReason.LENGTH: "length max_tokens max_output_tokens model_length max_length token_limit "
        "length_limit model_context_window_exceeded context_length_exceeded max_new_tokens "
        "finish_reason_max_tokens",
        FinishReason.FILTER: "content_filter content_filtered safety recitation blocklist prohibited_content "
        "spii image_safety sensitive guardrail_intervened guardrails moderation content_policy "
        "finish_reason_safety model_armor",
        FinishReason.REFUSAL: "refusal",
        FinishReason.TOOL_CALL: "tool_calls tool_call tool_use function_call malformed_function_call "
        "unexpected_tool_call",
    }.items()
    for name in names.split()
}
"""The reasons that providers give, in lower case."""
_FAILED = frozenset(
    {"error", "abort", "aborted", "cancelled", "canceled", "timeout", "insufficient_system_resource"}
    | {"network_error", "internal_error", "interrupted", "overloaded"}
)
"""Reasons for which the same request may be answered the next time."""
_REASONING_MEMBERS = ("reasoning_content", "reasoning", "thinking")
_REASONING_PARTS = frozenset({"thinking", "reasoning", "reasoning_content", "redacted_thinking"})
_COMPLETION_DETAILS = ("completion_tokens_details", "output_tokens_details")
_PROMPT_DETAILS = ("prompt_tokens_details", "input_tokens_details")
_MOST_TOKENS = 10**9
_MOST_DIGITS = 10


class MalformedResponseError(ValueError):
    """A response body that does not follow the protocol."""


class ErrorResponse(Exception):  # noqa: N818 - a response, which the caller raises as its own error
    """An error within HTTP 200."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.said)
        self.refusal = refusal


def read_response(body: Any, latency: float, stop: Sequence[str] = ()) -> Answer:
    """Reads the first choice of a response body.

    Args:
        body: The body.
        latency: How long the endpoint took, in seconds.
        stop: Texts that end the answer and that the endpoint was not told.

    Raises:
        ErrorResponse: it is an error.
        MalformedResponseError: it does not follow the protocol.
    """
    if isinstance(body, list) and len(body) == 1:
        body = body[0]
    if not isinstance(body, dict):
        raise MalformedResponseError(f"the response is not a JSON object but {_brief(body)}")
    choices = body.get("choices")
    if not choices:
        if any(body.get(name) for name in ("error", "errors", "detail")) or body.get("object") == "error":
            raise ErrorResponse(Refusal.of_error(body, 200))
        filtered = _blocked_prompt(body)
        if filtered is not None:
            return filtered
        raise MalformedResponseError(f"the response has no choices: {_brief(body)}")
    choice = choices[0] if isinstance(choices, list) else choices
    if not isinstance(choice, dict):
        raise MalformedResponseError(f"a choice is not a JSON object but {_brief(choice)}")
    return _read_choice(body, choice, latency, stop)


def _read_choice(
    body: Mapping[str, Any], choice: Mapping[str, Any], latency: float, stop: Sequence[str]
) -> Answer:
    message = choice.get("message")
    if not isinstance(message, dict):
        if not isinstance(choice.get("text"), str):
            raise MalformedResponseError(f"a choice has no message: {_brief(choice)}")
        message = {"content": choice["text"]}
    content, thoughts = _content(message.get("content"))
    for name in _REASONING_MEMBERS:
        if isinstance(message.get(name), str) and message[name].strip():
            thoughts = [message[name]]
            break
    separated = separate(characters(content))
    reasoning = "\n\n".join(
        part for part in (characters("\n\n".join(thoughts)).strip(), separated.reasoning) if part
    )
    refusal = characters(str(message.get("refusal") or ""))
    notes: list[str] = []
    finish, detail = _finish(choice, message, separated, refusal)
    text = _stopped(separated.text, stop)
    return Answer(
        text=text,
        finish=finish,
        refusal=refusal,
        reasoning=reasoning,
        detail=detail,
        model=characters(str(body.get("model") or "")),
        counts=_counts(body.get("usage"), notes),
        tokens=_tokens(choice.get("logprobs"), separated, notes),
        latency=latency,
        notes=tuple(notes),
    )


def _finish(
    choice: Mapping[str, Any], message: Mapping[str, Any], separated: Separated, refusal: str
) -> tuple[FinishReason, str]:
    """Why the model stopped, and the provider's words where it is not a normal end.

    Raises:
        ErrorResponse: the provider failed, by its own account.
    """
    stated = choice.get("finish_reason") or choice.get("native_finish_reason") or "stop"
    reason = str(stated).lower()
    if isinstance(choice.get("error"), dict):
        raise ErrorResponse(Refusal.of_error(choice["error"], 200))
    if reason in _FAILED:
        raise ErrorResponse(Refusal(502, reason, (), f"the provider ended the answer with {stated!r}"))
    if refusal:
        return FinishReason.REFUSAL, refusal
    finish = _FINISH.get(reason)
    if finish is None:
        return FinishReason.INTERRUPTED, f"the provider ended the answer with {stated!r}, which is not known"
    if finish is FinishReason.FILTER:
        return finish, f"the provider's content filter stopped the answer ({stated})"
    if finish is FinishReason.REFUSAL:
        return finish, f"the provider reports a refusal ({stated})"
    called = message.get("tool_calls") or message.get("function_call")
    if finish is FinishReason.TOOL_CALL or (called and not separated.text.strip()):
        return FinishReason.TOOL_CALL, f"the model called {_called(called)} in place of an answer"
    if separated.unfinished:
        return FinishReason.LENGTH, ""
    return finish, ""


def _called(called: Any) -> str:
    try:
        function = called[0]["function"] if isinstance(called, list) else called
        return f"the tool {characters(str(function['name']))[:80]!r}"
    except (TypeError, KeyError, IndexError):
        return "a tool"


def _blocked_prompt(body: Mapping[str, Any]) -> Answer | None:
    """The answer to a prompt that a filter blocked, which some endpoints give without a choice."""
    feedback = body.get("promptFeedback") or body.get("prompt_feedback")
    results = body.get("prompt_filter_results")
    if not feedback and not results:
        return None
    reason = feedback.get("blockReason") if isinstance(feedback, dict) else None
    detail = f"the provider's content filter stopped the request ({reason or 'prompt'})"
    return Answer("", FinishReason.FILTER, detail=detail, counts=_counts(body.get("usage"), []))


def _content(content: Any) -> tuple[str, list[str]]:
    """The text of a message, and the parts of it that are reasoning."""
    if content is None:
        return "", []
    if isinstance(content, str):
        return content, []
    if not isinstance(content, list):
        raise MalformedResponseError(f"the content is no text but {_brief(content)}")
    text: list[str] = []
    thoughts: list[str] = []
    for part in content:
        if isinstance(part, str):
            text.append(part)
        elif isinstance(part, dict):
            kind = part.get("type")
            if kind in _REASONING_PARTS:
                thoughts.extend(
                    _part_texts(part.get("thinking") or part.get("reasoning") or part.get("text"))
                )
            elif kind in {"text", "output_text", None}:
                text.extend(_part_texts(part.get("text")))
            elif kind == "refusal":
                text.extend(_part_texts(part.get("refusal")))
    return "".join(text), thoughts


def _part_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _part_texts(value.get("text") or value.get("value"))
    elif isinstance(value, list):
        for item in value:
            yield from _part_texts(item)


def _stopped(text: str, stop: Sequence[str]) -> str:
    """The text up to the first of the texts that end it."""
    ends = [place for end in stop if (place := text.find(end)) >= 0]
    return text[: min(ends)] if ends else text


def _counts(usage: Any, notes: list[str]) -> TokenCounts | None:
    if not isinstance(usage, dict) or usage.get("prompt_tokens") is None:
        return None
    prompt = _count(usage.get("prompt_tokens"))
    completion = _count(usage.get("completion_tokens", 0))
    if prompt is None or completion is None:
        stated = f"prompt {usage.get('prompt_tokens')!r}, completion {usage.get('completion_tokens')!r}"
        notes.append(f"token counts unknown: {characters(stated)[:200]}")
        return None
    reasoning = _detail(usage, _COMPLETION_DETAILS, "reasoning_tokens", notes)
    reasoning = reasoning or _count(usage.get("reasoning_tokens")) or 0
    total = _count(usage.get("total_tokens")) or 0
    unlisted = total - prompt - completion
    if unlisted > 0:
        # Some providers count thinking in the total alone.
        completion += unlisted
        reasoning = max(reasoning, unlisted)
    elif reasoning > completion:
        completion += reasoning
    cached = _detail(usage, _PROMPT_DETAILS, "cached_tokens", notes) or 0
    if cached > prompt:
        notes.append(f"cached tokens unknown: {cached} of {prompt} prompt tokens")
        cached = 0
    return TokenCounts(prompt, completion, cached, reasoning)


def _count(value: Any) -> int | None:
    """A count that can be one; None: it cannot."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        value = value.strip()
        if not value.isdecimal() or len(value) > _MOST_DIGITS:
            return None
        value = int(value)
    if isinstance(value, float):
        if not math.isfinite(value) or value != int(value):
            return None
        value = int(value)
    return value if isinstance(value, int) and 0 <= value <= _MOST_TOKENS else None


def _detail(usage: Mapping[str, Any], members: Sequence[str], name: str, notes: list[str]) -> int | None:
    for member in members:
        details = usage.get(member)
        if isinstance(details, dict) and details.get(name) is not None:
            count = _count(details[name])
            if count is None:
                notes.append(characters(f"{name} unknown: {details[name]!r}")[:200])
            return count
    return None


def _tokens(logprobs: Any, separated: Separated, notes: list[str]) -> tuple[Token, ...]:
    """The tokens of the answer, without those of the reasoning in it."""
    entries = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not entries:
        return ()
    try:
        tokens = tuple(map(_token, entries))
    except (TypeError, KeyError, ValueError, AttributeError, OverflowError):
        notes.append("log-probabilities unknown: they do not follow the protocol")
        return ()
    if not separated.reasoning:
        return tokens
    kept: list[Token] = []
    place = 0
    for token in tokens:
        if any(start <= place < end for start, end in separated.spans):
            kept.append(token)
        place += len(token.text)
    while kept and not kept[0].text.strip():
        kept.pop(0)
    return tuple(kept)


def _token(entry: Mapping[str, Any]) -> Token:
    alternatives = sorted(entry.get("top_logprobs") or (), key=_logprob, reverse=True)
    return Token(
        characters(entry["token"]),
        _logprob(entry),
        tuple([Alternative(characters(other["token"]), _logprob(other)) for other in alternatives]),
    )


def _logprob(entry: Mapping[str, Any]) -> float:
    logprob = float(entry["logprob"])
    if math.isnan(logprob):
        raise ValueError("a log-probability is not a number")
    return min(0.0, logprob)


def characters(text: str) -> str:
    """Replaces half surrogate pairs, which JSON can carry and no UTF-8 text can."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _brief(value: Any) -> str:
    text = characters(repr(value))
    return text if len(text) <= 200 else text[:200] + "..."
