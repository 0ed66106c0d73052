"""Messages of the chat completions API become conversations."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from dramaturg.formats.evaluated_file import infer_kind, read_file
from dramaturg.formats.messages import MessagesError, read_messages
from dramaturg.formats.texts import convert
from dramaturg.judge.conversations import final_answer, transcript

IMAGE_OF_10_MB = "data:image/png;base64," + "A" * 13_333_336
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAEC"}},
        ],
    },
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "see", "arguments": '{"zoom": 2}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "a cat"},
    {"role": "assistant", "content": "A cat.", "name": "helper"},
]


def test_all_parts_are_read_and_written_as_text() -> None:
    conversation = read_messages(MESSAGES)
    assert conversation.turns[1].parts[1].image.data == b"\0\1\2"
    assert final_answer(conversation) == "A cat."
    assert transcript(conversation) == (
        "system:\nBe brief.\n\nuser:\nWhat is this?\n[image, image/png]\n\n"
        'assistant:\n[calls see with {"zoom": 2}]\n\ntool:\n[result of the tool: a cat]\n\n'
        "assistant (helper):\nA cat."
    )


def test_rows_of_messages_need_no_text_and_no_task() -> None:
    row = {"messages": MESSAGES, "model": "m", "level": "easy"}
    (request,) = convert([row]).requests
    assert request.task.goal == "What is this?"
    assert (request.texts[0].id, request.texts[0].text, dict(request.tags)) == ("m", "", {"level": "easy"})
    assert request.texts[0].conversation == read_messages(MESSAGES)


def test_a_table_of_plain_cells_has_messages_as_json(tmp_path: Path) -> None:
    file = tmp_path / "runs.csv"
    with file.open("w", newline="", encoding="utf-8") as opened:
        csv.writer(opened).writerows([["model", "messages"], ["m", json.dumps(MESSAGES)]])
    assert infer_kind(str(file)) == ("texts", "")
    read = read_file(str(file))
    assert read.described == "a table with 1 conversation without tasks; columns: model, messages"
    assert read.requests[0].texts[0].conversation == read_messages(MESSAGES)


def test_items_of_the_responses_api_are_messages() -> None:
    items = [
        {"role": "user", "content": "What is this?"},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "c1", "name": "see", "arguments": '{"zoom": 2}'},
        {"type": "function_call_output", "call_id": "c1", "output": "a cat"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A cat."}]},
    ]
    conversation = read_messages(items)
    assert [part.tool_call.id for part in conversation.turns[1].parts] == ["c1"]
    assert [part.tool_result.tool_call_id for part in conversation.turns[2].parts] == ["c1"]
    assert transcript(conversation) == (
        'user:\nWhat is this?\n\nassistant:\n[calls see with {"zoom": 2}]\n\n'
        "tool:\n[result of the tool: a cat]\n\nassistant:\nA cat."
    )


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ("Hello", "messages: is no list of messages"),
        ([], "messages: is no list of messages"),
        ([{"content": "A"}], "messages[0].role: is missing"),
        ([{"role": "user", "content": 5}], "messages[0].content: is no text"),
        ([{"role": "user", "content": [{"type": "audio"}]}], "messages[0].content[0]: has the type 'audio'"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": "data:image/png;base64,A"}]}],
            "messages[0].content[0]: the image is no base64",
        ),
        ([{"role": "assistant", "tool_calls": [{"id": "1"}]}], "messages[0].tool_calls[0]: has no name"),
        ([{"role": "user", "content": "x"}] * 501, "texts[0].conversation.turns"),
        (
            [{"role": "user", "content": [{"type": "text", "text": "x"}] * 101}],
            "texts[0].conversation.turns[0].parts: ",
        ),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": IMAGE_OF_10_MB}]}],
            "texts[0].conversation.turns[0].parts[0].image.data: ",
        ),
    ],
)
def test_a_row_that_is_no_conversation_is_named(messages: Any, problem: str) -> None:
    (skipped,) = convert([{"messages": messages, "task": "T"}]).skipped
    assert problem in skipped.reason


def test_an_address_is_kept_and_not_read() -> None:
    (turn,) = read_messages(
        [{"role": "user", "content": [{"type": "image_url", "image_url": "http://169.254.169.254/latest"}]}]
    ).turns
    assert turn.parts[0].image.uri == "http://169.254.169.254/latest"
    assert not turn.parts[0].image.data


def test_errors_name_the_column() -> None:
    with pytest.raises(MessagesError, match=r"^chat\[0\]"):
        read_messages([{}], "chat")
