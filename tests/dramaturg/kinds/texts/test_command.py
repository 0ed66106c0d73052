"""``dramaturg eval`` of texts as processes, against a gateway over real gRPC."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dramaturg.api.common.v1.verdict_pb2 import Verdict
from dramaturg.api.judging.v1.judge_service_pb2 import JudgeCandidate, JudgeRequest
from dramaturg.cli.output_files import write_messages
from dramaturg.formats.texts import convert, read_table
from dramaturg.judge.verdicts import failed, passed, scored
from dramaturg.testing import serve_gateway
from tests.support.command_line import Finished, dramaturg, read_jsonl
from tests.support.texts import judge, registered

EXAMPLES = Path(__file__).resolve().parents[4] / "examples" / "texts"
RUBRIC = EXAMPLES / "rubric.toml"


@pytest.fixture
async def target(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[str]:
    """A gateway that keeps runs, with two judges: one praises all, one fails every answer about money."""

    def strict(request: JudgeRequest, candidate: JudgeCandidate) -> list[Verdict]:
        decide = failed if "money" in candidate.text else passed
        return [scored(one.id, 2) if one.HasField("scale") else decide(one.id) for one in request.criteria]

    judges = registered(judge(), judge(strict))
    runs = {"enabled": True, "url": f"sqlite:///{tmp_path}/runs.sqlite3"}
    async with serve_gateway(*judges, runs=runs) as server:
        monkeypatch.setenv("DRAMATURG_TARGET", server.target)
        yield server.target


@pytest.fixture
async def rows(tmp_path: Path) -> Path:
    file = tmp_path / "answers.jsonl"
    requests = convert(read_table(str(EXAMPLES / "answers.csv"))).requests
    await asyncio.to_thread(write_messages, file, requests)
    return file


async def evaluate(
    rows: Path, target: str, folder: Path, *options: str | Path, tables: bool = False
) -> Finished:
    shown = () if tables else ("--json",)
    return await dramaturg(
        "eval", "--kind", "texts", rows, "--target", target, "--out", folder / "out", *shown, *options
    )


async def test_a_rubric_of_a_file_judges_every_row(target: str, rows: Path, tmp_path: Path) -> None:
    done = await evaluate(rows, target, tmp_path, "--criteria", RUBRIC)
    assert done.code == 0, done.err
    found = done.json
    assert (found["sample_count"], found["texts"]["text_count"]) == (3, 6)
    pooled = {one["criterion"]: one for one in found["texts"]["verdicts"] if one["all_models"]}
    step = pooled["names_the_next_step"]
    assert (step["pass_count"], step["fail_count"]) == (5, 1)
    (tone,) = [one for one in found["texts"]["scores"] if one["all_models"]]
    assert (tone["score_count"], tone["mean"]["value"]) == (6, pytest.approx((5 * 5 + 1) / 6))
    assert [one["model"] for one in found["leaderboard"]] == ["alpha", "beta"]
    results = read_jsonl(tmp_path / "out" / "results.jsonl")
    assert [one["task"]["id"] for one in results] == ["late-parcel", "broken-lamp", "late-refund"]
    again = await dramaturg("show", tmp_path / "out", "--json")
    assert again.json["texts"] == found["texts"]


async def test_a_table_with_a_text_a_row_needs_no_conversion(target: str, rows: Path, tmp_path: Path) -> None:
    converted = await evaluate(rows, target, tmp_path / "1", "--criteria", RUBRIC)
    given = await evaluate(EXAMPLES / "answers.csv", target, tmp_path / "2", "--criteria", RUBRIC)
    assert given.code == converted.code == 0, given.err
    assert "answers.csv: a table with 6 texts for 3 tasks" in given.err
    assert given.json["texts"] == converted.json["texts"]
    broken = tmp_path / "broken.csv"
    broken.write_text("task,text\nGreet.,Hello.\n,Bye.\n", encoding="utf-8")
    refused = await evaluate(broken, target, tmp_path / "3", "--criteria", RUBRIC)
    assert refused.code == 2
    assert "row 2: task: is missing" in refused.err
    assert not (tmp_path / "3").exists()


async def test_a_detached_run_goes_on_and_the_same_command_finds_it(
    target: str, rows: Path, tmp_path: Path
) -> None:
    command = ("eval", EXAMPLES / "answers.csv", "--criteria", RUBRIC)
    refused = await dramaturg(*command, "--detach", "--target", "")
    assert (refused.code, "--target" in refused.err) == (2, True)
    begun = await dramaturg(*command, "--target", target, "--detach")
    assert begun.code == 0, begun.err
    run = begun.out.strip()
    assert f"next: dramaturg runs watch {run} --target {target}" in begun.err
    watched = await dramaturg("runs", "watch", run, "--json")
    assert (watched.json["state"], watched.json["succeeded"]) == ("SUCCEEDED", 3)
    assert watched.json["name"] == "answers.csv"


async def test_the_tables_name_models_criteria_scales_and_panels(
    target: str, rows: Path, tmp_path: Path
) -> None:
    panel = ("--judge", "rubric-judge=judge-0", "--judge", "rubric-judge=judge-1")
    options = ("--criteria", RUBRIC, *panel, "--group-by", "topic")
    done = await evaluate(rows, target, tmp_path, *options, tables=True)
    assert done.code == 4, done.err  # the panel splits
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert "tone all models 1 to 5 6 0 3.08 1.61 to 4.47" in " ".join(lines)
    assert any(line.startswith("panel split 4") for line in lines)
    assert "tone 5 5 100.0 % 3.00" in lines
    assert "topic tone (1 to 5)" in lines


async def test_the_figures_of_a_run_are_those_of_the_command(target: str, rows: Path, tmp_path: Path) -> None:
    command = await evaluate(rows, target, tmp_path, "--criteria", RUBRIC)
    assert command.code == 0, command.err
    (run,) = (await dramaturg("runs", "list", "--json")).json["runs"]
    assert (run["state"], run["samples"]) == ("SUCCEEDED", 3)
    summary = (await dramaturg("show", run["id"], "--json")).json
    assert summary["texts"] == command.json["texts"]
    assert summary["leaderboard"] == command.json["leaderboard"]
    ranked = (await dramaturg("runs", "leaderboard", run["id"], "--json")).json
    assert [one["model"] for one in ranked["models"]] == ["alpha", "beta"]
    exported = tmp_path / "rows.jsonl"
    assert (await dramaturg("runs", "results", run["id"], "-o", exported)).code == 0
    labels = {row.get("label") for row in read_jsonl(exported) if row["measure"] == "tone"}
    assert labels == {"5 of 1 to 5", "1 of 1 to 5"}


async def test_without_a_model_the_judge_abstains(rows: Path, tmp_path: Path) -> None:
    done = await dramaturg(
        "eval",
        "--kind",
        "texts",
        rows,
        "--criteria",
        RUBRIC,
        "--offline",
        "--out",
        tmp_path / "out",
        "--json",
    )
    verdicts = {one["criterion"]: one for one in done.json["texts"]["verdicts"] if one["all_models"]}
    assert verdicts["names_the_next_step"]["abstentions_by_reason"] == {"NOT_SUPPORTED": 5}


async def test_rules_alone_need_no_model(tmp_path: Path) -> None:
    rules = EXAMPLES / "rules.toml"
    done = await dramaturg(
        "eval", EXAMPLES / "answers.csv", "--criteria", rules, "--out", tmp_path / "out", "--json"
    )
    assert done.code == 0, done.err
    assert "offline" not in done.err
    verdicts = {one["criterion"]: one for one in done.json["texts"]["verdicts"] if one["all_models"]}
    counts = {name: (one["pass_count"], one["fail_count"]) for name, one in verdicts.items() if name}
    assert counts == {"at_most_80_words": (5, 1), "blames_nobody": (5, 1), "says_when": (3, 3)}
    results = read_jsonl(tmp_path / "out" / "results.jsonl")
    assert "The text has no match of" in json.dumps(results)


async def test_rows_without_a_rubric_need_one(target: str, rows: Path, tmp_path: Path) -> None:
    done = await dramaturg("eval", "--kind", "texts", rows, "--target", target, "--out", tmp_path / "out")
    assert done.code == 2
    assert "criteria" in done.err
    broken = tmp_path / "rubric.toml"
    broken.write_text("[[criteria]]\nid = 'A'\npasses = 'x'\n", encoding="utf-8")
    done = await dramaturg("eval", "--kind", "texts", rows, "--criteria", broken, "--target", target)
    assert (done.code, "criteria[0].id" in done.err) == (2, True)


async def test_a_row_may_have_a_rubric_of_its_own(target: str, rows: Path, tmp_path: Path) -> None:
    own = {"criteria": [{"id": "kind", "passes": "It is kind."}]}
    lines = [json.dumps({**row, **own}) + "\n" for row in read_jsonl(rows)]
    await asyncio.to_thread(rows.write_text, "".join(lines))
    done = await evaluate(rows, target, tmp_path)
    assert done.code == 0, done.err
    assert {one["criterion"] for one in done.json["texts"]["verdicts"]} == {"kind", ""}
    piped = await dramaturg("eval", "-", "--rows", tmp_path / "piped.jsonl", stdin="".join(lines).encode())
    assert piped.code == 0, piped.err
    assert len(read_jsonl(tmp_path / "piped.jsonl")) == len(lines)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("answers.csv", "task,text\nWhen?,Today.\n"),
        ("answers.jsonl", '{"task": {"goal": "When?"}, "texts": [{"id": "a", "text": "Today."}]}\n'),
    ],
)
async def test_rows_without_a_rubric_are_told_how_to_name_one(
    name: str, content: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_text(content, encoding="utf-8")
    done = await dramaturg("eval", file)
    assert done.code == 2
    assert f"{name}: criteria: the first row has none. Name a rubric with --criteria FILE" in done.err
