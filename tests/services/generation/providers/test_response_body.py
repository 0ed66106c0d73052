"""Response bodies as answers: what is left of the tokens and counts beside the text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from services.generation.calls import TokenCounts
from services.generation.providers.response_body import ErrorResponse, MalformedResponseError, read_response


def body(text: str, tokens: list[str] | None = None, **usage: Any) -> dict[str, Any]:
    choice: dict[str, Any] = {"message": {"content": text}, "finish_reason": "stop"}
    if tokens is not None:
        choice["logprobs"] = {"content": [{"token": token, "logprob": -0.1} for token in tokens]}
    return {"choices": [choice], "usage": usage or None}


@pytest.mark.parametrize(
    ("tokens", "kept"),
    [
        (["<think>", "no", "</", "think>", "Yes"], ["Yes"]),
        (["<think>", "no", "</think>", "\n\n", "Yes", "."], ["Yes", "."]),
        (["no", "</think>", "Yes"], ["Yes"]),
        (
            ["<|channel|>", "analysis", "<|message|>", "no", "<|end|>", "<|channel|>final<|message|>", "Yes"],
            ["Yes"],
        ),
        (["Yes", "."], ["Yes", "."]),
    ],
)
def test_the_tokens_of_reasoning_are_left_out(tokens: list[str], kept: list[str]) -> None:
    answer = read_response(body("".join(tokens), tokens), 0.0)
    assert [token.text for token in answer.tokens] == kept
    assert answer.text == "".join(kept)


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 2}, TokenCounts(3, 2)),
        ({"prompt_tokens": 3.0, "completion_tokens": "2"}, TokenCounts(3, 2)),
        ({"prompt_tokens": 3}, TokenCounts(3, 0)),
        ({"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 9}, TokenCounts(3, 6, 0, 4)),
        (
            {
                "prompt_tokens": 3,
                "completion_tokens": 5,
                "completion_tokens_details": {"reasoning_tokens": 4},
            },
            TokenCounts(3, 5, 0, 4),
        ),
        (
            {
                "prompt_tokens": 3,
                "completion_tokens": 1,
                "completion_tokens_details": {"reasoning_tokens": 4},
            },
            TokenCounts(3, 5, 0, 4),
        ),
        (
            {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 2}},
            TokenCounts(3, 2, 2),
        ),
        ({"prompt_tokens": True, "completion_tokens": 2}, None),
        ({"prompt_tokens": 3, "completion_tokens": 1e300}, None),
        ({"prompt_tokens": float("nan"), "completion_tokens": 2}, None),
    ],
)
def test_token_counts_are_read_where_they_can_be_right(
    usage: dict[str, Any], counts: TokenCounts | None
) -> None:
    assert read_response(body("fine", **usage), 0.0).counts == counts


@pytest.mark.parametrize(
    "payload",
    [None, 3, "x", [], {}, {"choices": []}, {"choices": [3]}, {"choices": [{}]}, {"choices": {"a": 1}}],
)
def test_what_does_not_follow_the_protocol_is_no_answer(payload: Any) -> None:
    with pytest.raises(MalformedResponseError):
        read_response(payload, 0.0)


ABSURD: list[Any] = [
    *(0, -1, 10**9 + 1, 2**63, 2**64, 10**400, 1e308, float("inf"), float("-inf"), float("nan"), 1.5),
    *(True, None, "", "9" * 5000, "1e9", "-5", "nan", [], {}, [1], {"a": 1}, "\ud800"),
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all parts of a JSON value."""
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from places(part, (*path, key))


def full_body() -> dict[str, Any]:
    token = {"token": "hi", "logprob": -0.1, "top_logprobs": [{"token": "ho", "logprob": -1}]}
    return {
        "model": "m",
        "choices": [
            {"message": {"content": "hi"}, "finish_reason": "stop", "logprobs": {"content": [token]}}
        ],
        "usage": {
            "prompt_tokens": 3,
            "completion_tokens": 4,
            "total_tokens": 7,
            "reasoning_tokens": 1,
            "prompt_tokens_details": {"cached_tokens": 1},
            "completion_tokens_details": {"reasoning_tokens": 1},
        },
    }


@pytest.mark.parametrize("place", list(places(full_body())), ids=str)
def test_an_absurd_value_is_a_note_or_a_malformed_response(place: tuple[Any, ...]) -> None:
    for absurd in ABSURD:
        given: Any = {"body": full_body()}
        inside = given
        for key in ("body", *place)[:-1]:
            inside = inside[key]
        inside[("body", *place)[-1]] = absurd
        try:
            answer = read_response(given["body"], 0.1)
        except (MalformedResponseError, ErrorResponse):
            continue
        counts = answer.counts
        assert counts is None or 0 <= counts.prompt + counts.completion <= 4 * 10**9
        assert all(token.logprob <= 0 for token in answer.tokens)
        if place[:1] == ("usage",) or "logprobs" in place:
            assert answer.text == "hi"
