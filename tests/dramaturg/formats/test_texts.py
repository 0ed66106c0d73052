from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dramaturg.api.common.v1.content_pb2 import Document
from dramaturg.api.judging.v1.pair_judge_service_pb2 import (
    PREFERENCE_FIRST,
    PREFERENCE_SECOND,
    ComparePairRequest,
    ComparePairResponse,
    RoleVote,
)
from dramaturg.client import DramaturgClient
from dramaturg.formats.rubric import read_rubric
from dramaturg.formats.texts import NO_TASK, TableError, convert, find_columns, pairs, read_table
from tests.support.evaluations import CALL, gateway_target

RUBRIC = Path(__file__).resolve().parents[3] / "examples" / "texts" / "rubric.toml"
EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "texts" / "answers.csv"


def test_rows_of_a_task_become_one_sample() -> None:
    conversion = convert(read_table(str(EXAMPLE)))
    assert not conversion.skipped
    assert [request.task.id for request in conversion.requests] == [
        "late-parcel",
        "broken-lamp",
        "late-refund",
    ]
    first, *_, last = conversion.requests
    assert [(one.id, one.model) for one in first.texts] == [("alpha", "alpha"), ("beta", "beta")]
    assert first.task.topic == "delivery"
    assert last.texts[1].text == ""  # an empty answer is a result, too


def test_other_columns_are_tags_and_texts_of_one_model_are_numbered() -> None:
    rows: list[dict[str, Any]] = [
        {"prompt": "Q", "text": "A", "model": "m", "level": "easy", "length": 3, "reference": "R"},
        {"prompt": "Q", "text": "B", "model": "m"},
        {"prompt": "Q", "text": "C"},
    ]
    (request,) = convert(rows).requests
    assert dict(request.tags) == {"level": "easy", "length": "3"}
    assert [one.id for one in request.texts] == ["m", "m (2)", "text"]
    assert request.reference == "R"


@pytest.mark.parametrize(
    ("cell", "documents"),
    [
        ("It ships on Monday.", [Document(text="It ships on Monday.")]),
        (["A", "B"], [Document(text="A"), Document(text="B")]),
        ([{"id": 7, "text": "A", "source": None}], [Document(id="7", text="A")]),
        ('[{"title": "T", "text": "A", "source": "s"}]', [Document(title="T", text="A", source="s")]),
        ("[no JSON]", [Document(text="[no JSON]")]),
        ([], []),
        (None, []),
    ],
)
def test_a_cell_of_context_has_documents(cell: Any, documents: list[Document]) -> None:
    rows = [{"task": "Q", "text": "A", "context": cell, "system_prompt": "Be brief."}]
    (request,) = convert(rows).requests
    assert list(request.task.context) == documents
    assert request.task.instructions == "Be brief."


def test_documents_that_differ_within_a_task_are_those_of_each_text() -> None:
    rows: list[dict[str, Any]] = [
        {"task": "Q", "text": "A", "passages": "P"},
        {"task": "Q", "text": "B", "passages": ["R"]},
    ]
    (request,) = convert(rows, find_columns(rows, {"context": "passages"})).requests
    assert [[one.text for one in text.context] for text in request.texts] == [["P"], ["R"]]
    assert not request.task.context


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"task": "Q", "text": "A", "context": 5}, "context: is no text"),
        ({"task": "Q", "text": "A", "context": [{"text": ["A"]}]}, "context: is no text"),
        ({"task": "Q", "text": "A", "context": [{"body": "A"}]}, "context: a document has no body"),
        ({"task": "Q", "text": "A", "context": [{"title": "A"}]}, "texts[0].context[0].text"),
        ({"task": "Q", "text": "A", "context": ["A"] * 101}, "texts[0].context"),
        ({"text": "A"}, "task: is missing"),
        ({"task": "Q"}, "text: is missing"),
        ({"task": "Q", "text": 5}, "text: is no text"),
        ({"task": ["Q"], "text": "A"}, "task: is no text"),
        ({"task": "Q", "text": "x" * 200_001}, "texts[0].text"),
        ({"task": "Q", "text": "A", None: ["more"]}, "more cells"),
    ],
)
def test_an_invalid_row_is_skipped_with_its_number(row: Any, reason: str) -> None:
    conversion = convert([{"task": "P", "text": "A"}, row])
    assert len(conversion.requests) == 1
    (skipped,) = conversion.skipped
    assert skipped.row == 2
    assert reason in skipped.reason


@pytest.mark.parametrize("content", [b"a,b\n", b"\xff", b'text\n"a'])
def test_a_file_that_is_no_table_is_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "answers.csv"
    file.write_bytes(content)
    with pytest.raises(TableError):
        read_table(str(file))


def test_columns_have_usual_names_or_are_given() -> None:
    rows = [{"question": "Q", "answer": "A", "input": "I", "who": "m", "notes": "n" * 501}]
    columns = find_columns(rows)
    assert columns.named == {"text": "answer", "task": "question"}
    assert (columns.tags, columns.left_out) == (["input", "who"], ["notes"])
    given = find_columns(rows, {"text": "input", "model": "who", "task": ""})
    assert given.named == {"text": "input", "task": "question", "model": "who"}
    for text, message in [("nope", "has no column nope: the columns are question, answer"), ("", "--text")]:
        with pytest.raises(TableError, match=message):
            find_columns(rows if text else [{"who": "m"}], {"text": text})


def test_texts_without_tasks_are_samples_of_their_own() -> None:
    requests = convert([{"text": "A"}, {"text": "B"}]).requests
    assert [(one.task.id, one.task.goal) for one in requests] == [("row 1", NO_TASK), ("row 2", NO_TASK)]


async def test_two_texts_are_compared_by_each_criterion_in_one_call() -> None:
    asked: list[ComparePairRequest] = []

    async def compare(request: ComparePairRequest) -> ComparePairResponse:
        asked.append(request)
        prefers = [PREFERENCE_FIRST if role.type != "tone" else PREFERENCE_SECOND for role in request.roles]
        votes = [
            RoleVote(role=role, preference=one) for role, one in zip(request.roles, prefers, strict=True)
        ]
        return ComparePairResponse(preference=PREFERENCE_FIRST, votes=votes, provenance=CALL)

    first, *_ = convert(read_table(str(EXAMPLE))).requests
    (pair,) = pairs(first, read_rubric(RUBRIC))
    async with (
        gateway_target({"pair-judge": {"ComparePair": compare}}) as target,
        DramaturgClient(target) as client,
    ):
        *_, last = [event async for event in client.evaluate_pairs(pair, timeout=30)]
    (question,) = asked
    assert question.source == first.task.goal
    assert [role.type for role in question.roles] == [one.id for one in read_rubric(RUBRIC)]
    assert "Worth 5 of 5: Warm and respectful" in question.roles[-1].description
    compared = next(one for one in last.result.comparisons if one.method == "roles").comparison
    assert {vote.role.type: vote.preference for vote in compared.votes}["tone"] == PREFERENCE_SECOND
    assert (last.result.first_model, last.result.second_model) == ("alpha", "beta")


def test_three_texts_make_three_pairs_and_a_criterion_too_long_for_a_role_is_refused() -> None:
    rows = [{"task": "Q", "text": text, "model": text} for text in "abc"]
    (request,) = convert(rows).requests
    rubric = read_rubric(RUBRIC)
    assert [(one.first.model, one.second.model) for one in pairs(request, rubric)] == [
        ("a", "b"),
        ("a", "c"),
        ("b", "c"),
    ]
    rubric[0].passes = "x" * 2500
    with pytest.raises(TableError, match=f"{rubric[0].id}: is no role: its description"):
        list(pairs(request, rubric))
