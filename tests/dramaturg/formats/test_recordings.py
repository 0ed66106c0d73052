"""What other tools recorded becomes rows of texts.

The files in ``recorded`` are written by Inspect AI 0.3.285, the tracer of langchain-core and the SDK of
OpenTelemetry; the one of Langfuse follows its public API.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dramaturg.formats.evaluated_file import FileError, infer_kind, read_file
from dramaturg.judge.conversations import transcript

RECORDED = Path(__file__).parent / "recorded"
TOOLS = """user:
When does the city library open on Friday?

assistant:
[calls opening_hours with {"library": "city", "day": "Friday"}]

tool:
[result of the tool: 10 to 18]

assistant:
It opens at 10."""
PICTURE = "user:\nWhat colour is this?\n[image, image/png]\n\nassistant:\nRed."
SYSTEM = "system:\nAnswer briefly.\n\n"
MOCKED = TOOLS.replace("assistant:\n[", "assistant:\ntool call for tool opening_hours\n[")


@pytest.mark.parametrize(
    ("name", "described", "expected"),
    [
        (
            "library.eval",
            "a log of Inspect with 2 conversations for 2 tasks",
            {"hours": SYSTEM + MOCKED, "picture": SYSTEM + PICTURE},
        ),
        (
            "library.json",
            "a log of Inspect with 2 conversations for 2 tasks",
            {"hours": SYSTEM + MOCKED, "picture": SYSTEM + PICTURE},
        ),
        (
            "langsmith.jsonl",
            "a LangSmith export with 1 conversation for 1 task",
            {
                "01a22163-d686-778b-9a19-a21d82deb06c": SYSTEM
                + TOOLS.replace(" on Friday", "")
                .replace(', "day": "Friday"', "")
                .replace("\ntool:", "\ntool (opening_hours):")
            },
        ),
        (
            "otlp.json",
            "spans of OpenTelemetry with 2 conversations for 2 tasks",
            {"2d44b9d363d4f24e": SYSTEM + TOOLS, "ea9743406683c790": PICTURE},
        ),
        (
            "langfuse.json",
            "a Langfuse export with 2 conversations for 2 tasks",
            {
                "t1": f"{TOOLS.partition(chr(10) * 2)[0]}\n\nassistant:\nIt opens at 10.",
                "o4": 'user:\nAnd on Sunday?\n\nassistant:\n[calls opening_hours with {"day": "Sunday"}]\n\n'
                "tool:\n[result of the tool: closed]\n\nassistant:\nIt is closed.",
            },
        ),
    ],
)
def test_a_recording_is_inferred_and_each_run_is_one_conversation(
    name: str, described: str, expected: Mapping[str, str]
) -> None:
    assert infer_kind(str(RECORDED / name))[0] == "texts"
    found = read_file(str(RECORDED / name))
    assert found.described == described
    assert {one.task.id: transcript(one.texts[0].conversation) for one in found.requests} == expected


def test_models_references_images_and_tags_of_a_log_are_kept() -> None:
    first, second = read_file(str(RECORDED / "library.eval")).requests
    assert (first.texts[0].model, first.reference) == ("mockllm/model", "10")
    assert dict(first.tags) == {"task_name": "library", "metadata.level": "easy"}
    image = second.texts[0].conversation.turns[1].parts[1].image
    assert (image.data[:4], image.media_type) == (b"\x89PNG", "image/png")


def test_a_recording_of_texts_alone_has_texts_also_as_csv(tmp_path: Path) -> None:
    rows = [
        {"id": "1", "sessionId": "s", "input": '"Capital of France?"', "output": "Paris"},
        {"id": "2", "sessionId": "s", "input": '{"question": "2 + 2"}', "output": '{"answer": "4"}'},
        {"id": "3", "sessionId": "s", "input": '{"a": 1, "b": 2}', "output": ""},
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0])
    writer.writeheader()
    writer.writerows(rows)
    (tmp_path / "traces.csv").write_text(text.getvalue())
    found = read_file(str(tmp_path / "traces.csv"))
    assert found.described == "a Langfuse export with 3 texts for 3 tasks"
    assert [(one.task.goal, one.texts[0].text) for one in found.requests] == [
        ("Capital of France?", "Paris"),
        ("2 + 2", "4"),
        ('{"a": 1, "b": 2}', ""),
    ]


def test_a_named_column_makes_it_a_table(tmp_path: Path) -> None:
    row = {"sessionId": "s", "input": "Q", "output": "A", "note": "N"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    found = read_file(str(tmp_path / "rows.jsonl"), given={"text": "note"})
    assert [one.text for one in found.requests[0].texts] == ["N"]


RUN = {"id": "r", "run_type": "chain", "inputs": {"question": "Q"}}


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (
            [{**RUN, "outputs": {"messages": [{"type": "ai", "content": [{"type": "audio"}]}]}}],
            "row 1: messages[1].content[0]: has the type 'audio'; text, images",
        ),
        ([{**RUN, "outputs": {}}, {"text": "x"}], "row 2: is not of a LangSmith export, as the first one is"),
        (
            [{**RUN, "inputs": None, "outputs": {}}],
            "in which nothing is said: export inputs and outputs, too",
        ),
        ([{"resourceSpans": ["x"]}], "row 1: is damaged for spans of OpenTelemetry"),
        ([{"eval": {}, "samples": [None]}], "row 1: is damaged for a log of Inspect"),
    ],
)
def test_a_damaged_recording_is_refused_with_its_row(rows: list[Any], problem: str, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(FileError) as caught:
        read_file(str(tmp_path / "rows.jsonl"))
    assert problem in str(caught.value)


def test_damaged_and_enormous_logs_are_refused(tmp_path: Path) -> None:
    cut = bytearray((RECORDED / "library.eval").read_bytes())
    place = cut.index(b"samples/hours") + 100
    cut[place : place + 50] = bytes(50)
    (tmp_path / "cut.eval").write_bytes(cut)
    (tmp_path / "none.eval").write_text("text")
    with zipfile.ZipFile(tmp_path / "bomb.eval", "w", zipfile.ZIP_DEFLATED) as log:
        log.writestr("header.json", '{"eval": {}}')
        log.writestr("samples/1.json", b" " * (65 << 20))
    for name in ("cut.eval", "none.eval", "bomb.eval"):
        with pytest.raises(FileError, match="cannot be read as a log of Inspect"):
            read_file(str(tmp_path / name))
