"""The same requests come out of JSON Lines, CSV and Parquet."""

from __future__ import annotations

import gzip
import hashlib
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from dramaturg.api.common.v1.script_pb2 import Candidate, Script, Step, Task
from dramaturg.api.evaluation.v1 import decisions_pb2, graphs_pb2
from dramaturg.api.evaluation.v1.decisions_pb2 import EvaluateDecisionsRequest
from dramaturg.api.evaluation.v1.graphs_pb2 import EvaluateGraphsRequest
from dramaturg.api.evaluation.v1.pairs_pb2 import EvaluatePairsRequest
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.datasets import Format, Row, format_of
from tests.support.datasets import read, to_csv, to_json_lines, to_parquet, written

text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(str.strip)
key = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
tags = st.dictionaries(key, text, max_size=3)


@st.composite
def script_requests(draw: st.DrawFn) -> EvaluateScriptsRequest:
    task = Task(
        id=draw(text),
        goal=draw(text),
        constraints=draw(st.lists(text, max_size=3)),
        topic=draw(st.just("") | text),
    )
    scripts = st.lists(text, min_size=1, max_size=3).map(
        lambda texts: Script(steps=[Step(text=one) for one in texts])
    )
    candidates = [
        Candidate(id=f"c{index}", model=draw(text), script=draw(scripts))
        for index in range(draw(st.integers(1, 3)))
    ]
    return EvaluateScriptsRequest(task=task, candidates=candidates, tags=draw(tags))


def messages(rows: list[Any]) -> list[Message]:
    assert all(isinstance(row, Row) for row in rows), rows
    return [row.request for row in rows]


@settings(max_examples=60, deadline=None)
@given(
    requests=st.lists(script_requests(), min_size=1, max_size=4),
    whole=st.frozensets(st.sampled_from(["task", "candidates", "tags"])),
)
def test_the_formats_give_the_same_requests(
    requests: list[EvaluateScriptsRequest], whole: frozenset[str]
) -> None:
    assert messages(read(to_json_lines(requests))[0]) == requests
    assert messages(read(to_csv(requests, whole), Format.CSV)[0]) == requests
    assert messages(read(to_parquet(requests), Format.PARQUET)[0]) == requests


@pytest.mark.parametrize("form", Format)
def test_numbers_enums_and_booleans_are_read(form: Format) -> None:
    request = EvaluateGraphsRequest(task=graphs_pb2.GRAPH_TASK_PIPELINE, reduce=True, models=["a", "b"])
    request.reference.id = "r"
    request.reference.scenario = "bake a cake"
    for index in range(2):
        request.reference.events.add(id=f"e{index}", text=f"event {index}", duration_minutes=1.5 * index)
    request.reference.edges.add(source_id="e0", target_id="e1")
    request.options.repeat_index = 3
    request.options.sampling.temperature = 0.5
    rows, manifest = read(written([request], form), form, EvaluateGraphsRequest)
    assert messages(rows) == [request]
    assert manifest.row_count == 1


def test_cells_hold_lists_in_json_and_fields_may_be_spelt_as_in_json() -> None:
    content = (
        b"decision.goal,decision.option1,decision.option_2,decision.scenario,models,optionOrder,tags.level\r\n"
        b'Fly,Buy online,Buy there,No internet,"[""a"",""b""]",OPTION_ORDER_BOTH,\r\n'
    )
    (row,), _ = read(content, Format.CSV, EvaluateDecisionsRequest)
    assert isinstance(row, Row)
    assert row.request.decision.option_1 == "Buy online"
    assert list(row.request.models) == ["a", "b"]
    assert row.request.option_order == decisions_pb2.OPTION_ORDER_BOTH
    assert not row.request.tags  # an empty cell is nothing


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("rows.jsonl", Format.JSONL),
        ("s3://bucket/a/ROWS.JSONL.GZ", Format.JSONL),
        ("rows.ndjson", Format.JSONL),
        ("a.b/rows.csv", Format.CSV),
        ("rows.csv.gz", Format.CSV),
        ("rows.parquet", Format.PARQUET),
        ("rows.parquet.gz", None),
        ("rows", None),
        ("rows.json", None),
    ],
)
def test_the_end_of_a_name_tells_the_format(name: str, form: Format | None) -> None:
    assert format_of(name) is form


def request(number: int) -> EvaluateScriptsRequest:
    return EvaluateScriptsRequest(
        task=Task(id=str(number), goal=f"Goal {number}"), candidates=[Candidate(id="a", text="1. Do.")]
    )


@pytest.mark.parametrize(
    ("form", "compressed"),
    [
        (form, compressed)
        for form in Format
        for compressed in (False, True)
        if form != "parquet" or not compressed
    ],
)
def test_the_manifest_has_hash_bytes_and_rows(form: Format, *, compressed: bool) -> None:
    content = written([request(number) for number in range(20)], form, compressed=compressed)
    rows, manifest = read(content, form)
    assert len(rows) == manifest.row_count == 20
    assert manifest.invalid_row_count == 0
    assert manifest.sha256 == hashlib.sha256(content).hexdigest()
    assert manifest.byte_count == len(content)
    assert manifest.format is form


@pytest.mark.parametrize("form", Format)
def test_a_limit_takes_the_first_rows(form: Format) -> None:
    content = written([request(number) for number in range(20)], form)
    rows, manifest = read(content, form, row_limit=7)
    assert [row.request.task.id for row in rows if isinstance(row, Row)] == [str(n) for n in range(7)]
    assert manifest.row_count == 7


def test_two_pieces_of_gzip_are_one_file() -> None:
    content = gzip.compress(to_json_lines([request(1)])) + gzip.compress(to_json_lines([request(2)]))
    assert len(read(content)[0]) == 2


def test_fields_that_others_fill_may_be_empty() -> None:
    bare = EvaluateScriptsRequest(task=Task(goal="Make tea"))
    rows, manifest = read(to_json_lines([bare]))
    assert manifest.invalid_row_count == 1
    rows, manifest = read(to_json_lines([bare]), filled=("candidates",))
    assert messages(rows) == [bare]


def test_texts_of_pairs_are_read() -> None:
    content = b"source,first.model,first.text,second.model,second.text\nLong.,a,One.,b,Two.\n"
    (row,), _ = read(content, Format.CSV, EvaluatePairsRequest)
    assert isinstance(row, Row)
    assert (row.request.first.text, row.request.second.text) == ("One.", "Two.")
