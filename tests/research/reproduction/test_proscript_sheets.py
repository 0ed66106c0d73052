"""The sheets of proScript: drawn from scripts, completed, and read back."""

from __future__ import annotations

import asyncio
import csv
import json
from pathlib import Path

import grpc
import pytest

from dramaturg.api.evaluation.v1.run_pb2 import Run
from dramaturg.api.graph.v1.graph_service_pb2_grpc import GraphServiceStub
from dramaturg.api.graph.v1.script_graph_pb2 import ScriptGraph
from dramaturg.client import DramaturgClient
from dramaturg.datasets.json_lines import LineError
from dramaturg_research.reproduction.paper import DataError, Reproduction
from dramaturg_research.reproduction.proscript.people import read_sheets
from dramaturg_research.reproduction.proscript.sheets import (
    HUMAN,
    read_orders,
    steps_text,
    write_orders,
    write_sheets,
)
from dramaturg_research.reproduction.session import Session
from tests.support.reproductions import Grid, read_csv, reproduce

A, B = "a, generate", "a, pipeline"


def graph(*texts: str, scenario: str = "bake a cake") -> ScriptGraph:
    """A chain."""
    made = ScriptGraph(scenario=scenario)
    for place, text in enumerate(texts):
        made.events.add(id=f"e{place}", text=text)
        if place:
            made.edges.add(source_id=f"e{place - 1}", target_id=f"e{place}")
    return made


def scripts(count: int) -> dict[str, dict[int, ScriptGraph]]:
    return {
        name: {
            index: graph("find flour", f"mix ({name})", "bake", scenario=f"cake {index}")
            for index in range(count)
        }
        for name in (A, B, HUMAN)
    }


def read_lines(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def write_votes(file: Path, rows: Grid) -> None:
    with file.open("w", newline="") as opened:
        writer = csv.DictWriter(opened, ("id", "vote"))
        writer.writeheader()
        writer.writerows(rows)


def test_steps_are_in_an_order_of_the_script() -> None:
    made = ScriptGraph()
    for name, text in (("x", "bake; eat"), ("y", "mix"), ("z", "")):
        made.events.add(id=name, text=text)
    made.edges.add(source_id="y", target_id="x")
    assert steps_text(made) == "step0: mix;\nstep1: bake, eat;\nstep2: z;\nstep0 -> step1"


def test_events_on_a_cycle_are_kept() -> None:
    made = graph("mix", "bake")
    made.edges.add(source_id="e1", target_id="e0")
    assert steps_text(made).count("step0:") == steps_text(made).count("step1:") == 1


def test_a_sheet_hides_the_authors_and_is_drawn_once(tmp_path: Path) -> None:
    sheets = tmp_path / "sheets"
    write_sheets(tmp_path, sheets, scripts(40), 1)
    votes, key = read_csv(sheets / "votes.csv"), read_csv(tmp_path / "votes-key.csv")
    assert len(votes) == len(key) == 80
    assert {row["vote"] for row in votes} == {""}
    for row, names in zip(votes, key, strict=True):
        assert (f"mix ({names['first']})" in row["first"], f"mix ({names['second']})" in row["second"]) == (
            True,
            True,
        )
    # The script that others are compared with is as often the first as the second.
    assert 20 < sum(row["first"] == A for row in key) < 60
    revisions = read_lines(sheets / "revisions.jsonl")
    assert len(revisions) == 120
    assert set(revisions[0]) == {"id", "scenario", "script", "revised", "type"}
    before = {file: file.read_bytes() for file in (sheets / "votes.csv", sheets / "revisions.jsonl")}
    write_sheets(tmp_path, sheets, scripts(10), 2)
    assert {file: file.read_bytes() for file in before} == before
    other = tmp_path / "other"
    write_sheets(tmp_path / "sheets", other, scripts(40), 1)
    assert (other / "votes.csv").read_bytes() == before[sheets / "votes.csv"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    records = [
        {
            "scenario": f"cake {index}",
            "events": {"0": "mix", "1": "bake", "2": "NONE"},
            "minutes": minutes,
            "gold_edges_for_prediction": ["2->0", "0->1"],
        }
        for index, minutes in enumerate((0.5, 5, 20, 10**8))
    ]
    (folder / "proscript_dev.json").write_text(json.dumps(records))
    return folder


def test_completed_sheets_give_their_tables(tmp_path: Path, data: Path) -> None:
    out, sheets = tmp_path / "out", tmp_path / "out" / "sheets"
    write_sheets_in(out)
    key = read_csv(out / "votes-key.csv")
    # Two of three prefer the released script, and the pipeline splits them.
    for place, votes in enumerate((("better", "worse"), ("better", "equal"), ("worse", "better"))):
        rows = []
        for row in key:
            vote = votes[row["first"] == B or row["second"] == B]
            first_is_base = row["first"] == A
            inverse = {"better": "worse", "worse": "better"}
            rows.append({"id": row["id"], "vote": inverse.get(vote, vote) if first_is_base else vote})
        write_votes(sheets / f"votes-{place}.csv", rows)
    approaches = {row["id"]: row["approach"] for row in read_csv(out / "revisions-key.csv")}
    blank = read_lines(sheets / "revisions.jsonl")
    for place, kind in ((1, "missing event"), (2, ["Missing event", "granularity of events"])):
        with (sheets / f"revisions-{place}.jsonl").open("w") as lines:
            for row in blank:
                revised = row["script"]
                if approaches[row["id"]] == A and place == 1:
                    # One event is inserted at the end, with its edge.
                    revised += ";\nstep3: eat;\nstep2 -> step3"
                changed = approaches[row["id"]] == A
                edited = {**row, "script": "", "revised": revised, "type": kind if changed else ""}
                lines.write(json.dumps(edited) + "\n")
    finished = reproduce("proscript", data, out, "--offline")
    assert finished.code == 0, finished.err
    shown = {row["Approach"]: row for row in read_csv(out / "figure-7.csv")}
    results = ("better", "equal", "worse", "no majority")
    assert [float(shown[HUMAN][name]) for name in results] == [100, 0, 0, 0]
    assert [float(shown[B][name]) for name in results] == [0, 0, 0, 100]
    assert [shown["Human-test (paper)"][name] for name in results[:3]] == ["54.0", "32.7", "13.3"]
    # Pairs without a majority are a bar of their own.
    assert "no majority" in (out / "figure-7.svg").read_text()
    table = {row["Models"]: row for row in read_csv(out / "table-2-revisions.csv")}
    # The mean of two revisers: two edits and none.
    assert [float(table[A][name]) for name in ("Graph Edit Dist", "V-Ins", "E-Ins")] == [1, 0.5, 0.5]
    assert (table[A]["scripts"], table[A]["revisions"]) == ("4", "8")
    assert float(table[HUMAN]["Graph Edit Dist"]) == 0
    types = {row["Revision types"]: row for row in read_csv(out / "table-4.csv")}
    assert float(types["(node) missing event"][A]) == pytest.approx(200 / 3)
    assert types["(node) missing event"]["paper: Pipeline"] == "2.7"
    assert [row["Revision types"] for row in read_csv(out / "table-3.csv")] == [
        "missing event",
        "granularity of events",
    ]
    assert {"figure-7.png", "figure-8.svg"} <= {file.name for file in out.iterdir()}
    index = (out / "README.md").read_text()
    assert "There is no vote" not in index
    assert "There is no revision" not in index
    assert "Figure 3: Scripts by typical duration" in index


def write_sheets_in(out: Path) -> None:
    out.mkdir()
    write_sheets(out, out / "sheets", scripts(4), 0)


async def _follow(run_id: str) -> Run:
    raise AssertionError(run_id)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("votes.csv", "id,vote\n900,better\n", "900"),
        ("votes.csv", "id,vote\n1,best\n", "best"),
        ("revisions.jsonl", '{"id": "1", "revised": "step0: mix", "type": "typo"}\n', "typo"),
        ("revisions.jsonl", '{"id": "900", "revised": "step0: mix"}\n', "900"),
    ],
)
def test_a_wrong_entry_is_named(tmp_path: Path, name: str, content: str, problem: str) -> None:
    out, completed = tmp_path / "out", tmp_path / "completed"
    write_sheets_in(out)
    completed.mkdir()
    (completed / name).write_text(content)

    async def read() -> None:
        # Nothing is asked of the service.
        async with grpc.aio.insecure_channel("localhost:1") as channel:
            session = Session(DramaturgClient("localhost:1"), "proscript", (), _follow)
            stub = GraphServiceStub(channel)
            await read_sheets(session, stub, out, completed, Reproduction("", ""))

    with pytest.raises(DataError, match=problem):
        asyncio.run(read())


def test_an_order_of_an_unknown_script_is_named(tmp_path: Path) -> None:
    cake = graph("mix", "bake")
    write_orders(tmp_path, tmp_path / "sheets", {5: cake}, 0)
    (row,) = read_lines(tmp_path / "sheets" / "orders.jsonl")
    assert (row["id"], row["order"]) == ("5", "")
    before = (tmp_path / "sheets" / "orders.jsonl").read_bytes()
    write_orders(tmp_path, tmp_path / "sheets", {5: cake, 6: cake}, 1)
    assert (tmp_path / "sheets" / "orders.jsonl").read_bytes() == before
    completed = tmp_path / "completed"
    completed.mkdir()
    (completed / "orders-1.jsonl").write_text(json.dumps({**row, "id": "6", "order": "step0 -> step1"}))

    async def read() -> None:
        # Nothing is asked of the service.
        async with grpc.aio.insecure_channel("localhost:1") as channel:
            await read_orders(GraphServiceStub(channel), tmp_path, completed, [cake] * 7)

    with pytest.raises(LineError, match="'6'"):
        asyncio.run(read())
