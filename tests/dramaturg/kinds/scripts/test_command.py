"""``dramaturg eval --kind scripts`` as a process, against a gateway whose judges are functions."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict, ParseDict
from typer.testing import CliRunner

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeResponse
from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_PAUSED
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest, ScriptsResult
from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.cli.main import app
from dramaturg.client import DramaturgClient
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.judge.verdicts import abstained, failed
from dramaturg.run_client import RunClient
from dramaturg.service.errors import ServiceError
from tests.support.command_line import Finished, dramaturg, finish, read_jsonl, start
from tests.support.datasets import to_csv
from tests.support.evaluations import in_a_thread
from tests.support.figures import figure, verdict_counts
from tests.support.gateway import Fake, agents, all_pass, gateway_target, scripts_request, steps

pytestmark = pytest.mark.usefixtures("runs_enabled")

USAGE = {
    "prompt_token_count", "completion_token_count", "cached_prompt_token_count", "provider_call_count",
    "cache_hit_count", "unmetered_call_count", "cost_usd", "unpriced_call_count", "retried_call_count",
    "unused_completion_count", "unused_cost_usd", "estimated_call_count", "estimated_token_count",
    "estimated_cost_call_count", "estimated_cost_usd",
}  # fmt: skip


def sample(number: int, count: int = 2, **fields: Any) -> EvaluateScriptsRequest:
    request = scripts_request(count, **fields)
    request.task.id = f"t{number}"
    return request


def write(path: Path, *requests: EvaluateScriptsRequest) -> Path:
    path.write_text("".join(json.dumps(MessageToDict(request)) + "\n" for request in requests))
    return path


async def evaluate(rows: Path, target: str, *options: str) -> Finished:
    """What the command says of the rows; its results are beside them."""
    common = ("--target", target, "--out", rows.parent / "out")
    return await dramaturg("eval", "--kind", "scripts", rows, *common, *options)


async def doubt(request: Any) -> Assessment:
    """Fails the first candidate and abstains from the others."""
    if request.candidate.id == "c0":
        return Assessment(verdicts=[failed("executable")])
    return Assessment(verdicts=[abstained("executable", verdict_pb2.ABSTAIN_REASON_REFUSED, "No.")])


async def test_one_json_object_accounts_for_every_verdict(tmp_path: Path) -> None:
    rows = write(
        tmp_path / "rows.jsonl",
        sample(1, tags={"level": "hard"}),
        sample(2, 3, tags={"level": "easy"}),
        sample(3),
    )
    async with gateway_target(*agents(Fake("commonsense", doubt))) as target:
        done = await evaluate(rows, target, "--json", "--group-by", "level")
    assert done.code == 0, done.err
    summary = done.json
    assert summary["sample_count"] == 3
    assert summary["failed_sample_count"] == 0
    assert summary["judgement_count"] == 49
    assert summary["scripts"]["candidate_count"] == 7
    assert summary["abstentions_by_reason"] == {"REFUSED": 4}
    assert verdict_counts(summary) == {"PASS": 42, "FAIL": 3, "ABSTAIN": 4}
    figures = summary["scripts"]["figures"]
    whole = [one for one in figures if one["all_models"] and not one["tags"]]
    assert [one["criterion"] for one in whole] == [*ABSEVAL, ""]
    assert verdict_counts(summary, criterion="executable") == {"PASS": 0, "FAIL": 3, "ABSTAIN": 4}
    assert verdict_counts(summary, model="model-0") == {"PASS": 18, "FAIL": 3, "ABSTAIN": 0}
    assert {one["tags"]["level"] for one in figures if one["tags"]} == {"", "easy", "hard"}
    for level, passed, failures, abstentions in (("", 12, 1, 1), ("easy", 18, 1, 2), ("hard", 12, 1, 1)):
        counts = {"PASS": passed, "FAIL": failures, "ABSTAIN": abstentions}
        assert verdict_counts(summary, tags={"level": level}) == counts
    executable = figure(figures, tags={}, all_models=True, criterion="executable")
    assert (executable["pass_rate"]["value"], executable["pass_rate"]["count"]) == (0.0, 3)
    assert executable["pass_rate"]["total"] == 7
    assert executable["pass_rate_lowest"] == 0
    assert executable["pass_rate_highest"] == 4 / 7
    assert set(summary["usage"]) == USAGE
    assert summary["usage"]["provider_call_count"] == 3 + 2 * 7
    assert summary["usage"]["cost_usd"] is None
    results = [ParseDict(row, ScriptsResult()) for row in read_jsonl(Path(summary["results"]))]
    assert [result.task.id for result in results] == ["t1", "t2", "t3"]
    assert not read_jsonl(tmp_path / "out" / "errors.jsonl")


async def test_people_get_tables_on_standard_output_and_progress_beside_it(tmp_path: Path) -> None:
    rows = write(tmp_path / "rows.jsonl", sample(1, tags={"level": "hard"}))
    async with gateway_target(*agents(Fake("commonsense", doubt))) as target:
        done = await evaluate(rows, target, "--group-by", "level")
    assert done.code == 0, done.err
    for word in (*ABSEVAL, "ABSTAIN", "refused", "model-1", "hard", "results.jsonl"):
        assert word in done.out
    assert "1 of 1 samples" in done.err
    assert "14 judgements, 1 abstained" in done.err
    assert "1 of 1 samples" not in done.out


async def test_a_sample_that_fails_is_recorded_and_the_others_go_on(tmp_path: Path) -> None:
    twins = sample(2, tags={"level": "hard"})
    twins.candidates[1].id = "c0"
    rows = write(tmp_path / "rows.jsonl", sample(1), twins, sample(3))
    async with gateway_target(*agents()) as target:
        done = await evaluate(rows, target, "--json")
    assert done.code == 1
    assert (done.json["sample_count"], done.json["failed_sample_count"]) == (3, 1)
    assert done.json["failures_by_reason"] == {"FIELD_INVALID": 1}
    assert done.json["scripts"]["candidate_count"] == 4
    assert sum(verdict_counts(done.json).values()) == 7 * 4
    (error,) = read_jsonl(tmp_path / "out" / "errors.jsonl")
    assert (error["index"], error["line"], error["task_id"]) == (1, 2, "t2")
    assert error["tags"] == {"level": "hard"}
    assert (error["code"], error["reason"]) == ("INVALID_ARGUMENT", "FIELD_INVALID")
    assert error["violations"][0]["field"] == "candidates[1].id"
    assert [row["task"]["id"] for row in read_jsonl(tmp_path / "out" / "results.jsonl")] == ["t1", "t3"]


async def test_a_gateway_that_is_not_there_is_told(tmp_path: Path) -> None:
    rows = write(tmp_path / "rows.jsonl", sample(1))
    done = await evaluate(rows, "127.0.0.1:1", "--json")
    assert (done.code, done.out) == (1, "")
    assert "127.0.0.1:1: UNAVAILABLE" in done.err
    assert not (tmp_path / "out").exists()


async def test_nothing_is_asked_where_a_row_is_bad(tmp_path: Path) -> None:
    asked = 0

    async def count(request: Any) -> Assessment:
        nonlocal asked
        asked += 1
        return all_pass("critic")

    rows = tmp_path / "rows.jsonl"
    good = json.dumps(MessageToDict(sample(1)))
    rows.write_text(f'{good}\n{{"taks": 1}}\n\n{{"task": {{"goal": " "}}}}\n')
    async with gateway_target(*agents(Fake("critic", count))) as target:
        done = await evaluate(rows, target)
    assert done.code == 2
    assert "line 2: taks: there is no such field" in done.err
    assert "line 4: task.goal" in done.err
    assert "line 4: candidates" in done.err
    assert not done.out
    assert not asked
    assert not (tmp_path / "out").exists()


async def test_standard_input_limit_judges_and_models(tmp_path: Path) -> None:
    asked = []

    async def remember(request: Any) -> Assessment:
        asked.append((request.task.id, request.options.model))
        return all_pass("critic")

    fakes = [Fake("critic", remember, name="a", default=True), Fake("critic", remember, name="b")]
    stdin = write(tmp_path / "rows.jsonl", *(sample(number, 1) for number in range(3))).read_bytes()
    options = ["--judge", "critic=a", "--judge", "critic=b", "--judge-model", "critic=m", "--limit", "2"]
    async with gateway_target(*agents(*fakes)) as target:
        command = ("eval", "--kind", "scripts", "-", "--target", target, "--json", "--out", tmp_path / "out")
        done = await dramaturg(*command, *options, stdin=stdin)
    assert done.code == 0, done.err
    assert done.json["sample_count"] == 2
    assert sorted(asked) == [("t0", "m"), ("t0", "m"), ("t1", "m"), ("t1", "m")]


async def test_the_mechanism_and_the_gold_answer_can_be_set(tmp_path: Path) -> None:
    rows = write(tmp_path / "rows.jsonl", sample(1))
    async with gateway_target(Fake("script-judge")) as target:
        done = await evaluate(
            rows, target, "--json", "--set", "mechanism=single-judge", "--set", "gold_answer_source=none"
        )
    assert done.code == 0, done.err
    (result,) = read_jsonl(tmp_path / "out" / "results.jsonl")
    assert result["mechanism"] == "MECHANISM_SINGLE_JUDGE"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.jsonl"], "none.jsonl"),
        (["rows.jsonl", "--judge", "critic"], "ROLE=NAME"),
        (["rows.jsonl", "--judge-model", "a", "--judge-model", "b"], "twice"),
        (["rows.jsonl", "--judge", "critic=nobody"], "the judges of 'critic' are fake"),
        (["rows.jsonl", "--set", "mechanism=committee"], "committee"),
        (["rows.jsonl", "--concurrency", "0"], "concurrency"),
        (["rows.jsonl", "--out", "rows.jsonl/x"], "rows.jsonl"),
        (["empty.jsonl"], "there are no rows"),
        ([], "FILE"),
    ],
)
async def test_wrong_usage_is_exit_code_two(tmp_path: Path, arguments: list[str], message: str) -> None:
    write(tmp_path / "rows.jsonl", sample(1))
    (tmp_path / "empty.jsonl").write_text("\n\n")
    placed = [str(tmp_path / one) if ".jsonl" in one else one for one in arguments]
    async with gateway_target(*agents()) as target:
        done = await dramaturg("eval", "--kind", "scripts", *placed, "--target", target)
    assert done.code == 2
    assert message in done.err
    assert not done.out


async def test_interrupted_it_leaves_whole_lines_and_says_what_was_counted(tmp_path: Path) -> None:
    async def judge(request: Any) -> Assessment:
        if request.task.id == "t2":
            await asyncio.Event().wait()
        return all_pass("critic")

    rows = write(tmp_path / "rows.jsonl", *(sample(number, 1) for number in range(5)))
    results = tmp_path / "out" / "results.jsonl"
    async with (
        gateway_target(*agents(Fake("critic", judge))) as target,
        start(
            "eval", "--kind", "scripts", rows, "--target", target, "--json", "--out", tmp_path / "out"
        ) as process,
        DramaturgClient(target) as client,
    ):
        await until_done(client.runs, 4)
        process.send_signal(signal.SIGINT)
        done = await finish(process)
        (run,) = [run async for run in client.runs.find()]
    assert run.state == RUN_STATE_PAUSED
    assert done.code == 130, done.err
    assert "interrupted: 4 of 5; the same command goes on" in done.err
    assert "Traceback" not in done.err
    assert [row["task"]["id"] for row in read_jsonl(results)] == ["t0", "t1", "t3", "t4"]
    assert done.json["sample_count"] == 4


async def until_done(runs: RunClient, count: int) -> None:
    """Waits until this number of samples of the only run are done."""
    while True:
        found = [run async for run in runs.find()]
        if found and found[0].progress.succeeded_count == count:
            return
        await asyncio.sleep(0.05)


async def test_judges_are_listed_for_people_and_for_programs() -> None:
    fakes = [Fake("critic", name="a"), Fake("critic", name="gone", target="127.0.0.1:1")]
    async with gateway_target(*fakes) as target:
        table = await dramaturg("judges", "--target", target)
        listed = await dramaturg("judges", "--target", target, "--json")
    assert table.code == listed.code == 0
    assert "UNREACHABLE" in table.out
    first, second = listed.json["judges"]
    assert (first["role"], first["name"], first["health"], first["implementation"]) == (
        "critic",
        "a",
        "SERVING",
        "fake-critic",
    )
    assert (second["health"], second["implementation"]) == ("UNREACHABLE", None)
    assert second["error"]


async def test_a_gateway_that_is_not_there_is_an_error_of_judges() -> None:
    done = await dramaturg("judges", "--target", "127.0.0.1:1")
    assert done.code == 1
    assert "UNAVAILABLE" in done.err


async def test_rows_may_be_csv(tmp_path: Path) -> None:
    content = to_csv([sample(1, tags={"level": "hard"}), sample(2)])
    (tmp_path / "rows.csv").write_bytes(content)
    async with gateway_target(*agents()) as target:
        common = ("eval", "--kind", "scripts", "--target", target, "--json")
        named = await dramaturg(*common, tmp_path / "rows.csv", "--out", tmp_path / "named")
        piped = await dramaturg(
            *common, "-", "--format", "csv", "--limit", "1", "--out", tmp_path / "piped", stdin=content
        )
    assert (named.code, named.json["sample_count"]) == (0, 2), named.err
    assert [one["task"]["id"] for one in read_jsonl(tmp_path / "named" / "results.jsonl")] == ["t1", "t2"]
    assert (piped.code, piped.json["sample_count"]) == (0, 1), piped.err


def test_missing_figures_are_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any, **__: Any) -> Summary:
        raise ServiceError(grpc.StatusCode.UNAVAILABLE, error_reason_pb2.ERROR_REASON_INTERNAL, "gone")

    monkeypatch.setattr(RunClient, "summary", fail)
    rows = write(tmp_path / "rows.jsonl", sample(1))
    with in_a_thread(lambda: gateway_target(*agents())) as target:
        arguments = ["eval", "--kind", "scripts", str(rows), "--target", target, "--json"]
        done = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "out")])
    found = json.loads(done.stdout)
    assert done.exit_code == 1
    assert found["problems"] == ["the gateway computed no summary: gone"]
    assert (found["sample_count"], found["failed_sample_count"], found["judgement_count"]) == (1, 0, 14)


async def test_missing_gold_answers_are_told_and_make_the_result_partial(tmp_path: Path) -> None:
    async def decline(request: Any) -> SynthesizeResponse:
        if request.task.id == "t1":
            return SynthesizeResponse(
                failure="It declined.", failure_reason=verdict_pb2.ABSTAIN_REASON_REFUSED
            )
        return SynthesizeResponse(script=steps("Boil water."))

    rows = write(tmp_path / "rows.jsonl", *(sample(number) for number in range(4)))
    words = "1 of 4 samples were judged without the gold answer that they asked for (REFUSED 1)"
    async with gateway_target(*agents(Fake("synthesize", decline))) as target:
        partial = await evaluate(rows, target)
        permitted = await evaluate(
            rows, target, "--set", "policy.max_missing_gold_answer_fraction=0.25", "--json"
        )
        unasked = await evaluate(
            *(rows, target, "--set", "gold_answer_source=none", "--replace"),
            *("--set", "policy.max_missing_gold_answer_fraction=0"),
        )
    assert partial.code == 4, partial.err
    assert f"{words}; a share of 0.1 is allowed. It declined." in partial.err
    assert words in " ".join(partial.out.split())
    assert "Missing gold answers by reason" in partial.out
    assert permitted.code == 0, permitted.err
    assert permitted.json["scripts"]["gold_answers"] == {
        "sample_count": 4,
        "missing_count": 1,
        "missing_by_reason": {"REFUSED": 1},
    }
    assert permitted.json["notices"] == [words]
    assert unasked.code == 0, unasked.err
    results = read_jsonl(tmp_path / "out" / "results.jsonl")
    assert not [result for result in results if "goldAnswer" in result or "gold_answer" in result]
