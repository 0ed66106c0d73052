"""``dramaturg runs`` against a whole gateway, whose judges are functions."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from pyarrow import parquet

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeResponse
from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_REFUSED
from dramaturg.api.evaluation.v1.run_pb2 import RunBudget, RunLimits
from dramaturg.client import DramaturgClient
from dramaturg.judge.verdicts import abstained, failed
from dramaturg.service.errors import ServiceError
from tests.dramaturg.report.samples import shown_samples
from tests.support.command_line import Finished, dramaturg, finish, read_jsonl, start
from tests.support.datasets import to_csv, to_json_lines
from tests.support.gateway import Fake, agents, all_pass, gateway_target, scripts_request

# Every command is a process of its own, and there are many.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SAMPLES = 6


class Judges:
    """A critic that can be held up, and a commonsense judge that refuses every first candidate."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.asked = 0
        self.has_key = True
        self.declines = False

    def _check_key(self) -> None:
        if not self.has_key:
            reason = error_reason_pb2.ERROR_REASON_PROVIDER_UNAUTHENTICATED
            raise ServiceError(grpc.StatusCode.FAILED_PRECONDITION, reason, "401: no such key")

    async def criticise(self, request: Any) -> Any:
        self.asked += 1
        self._check_key()
        await self.open.wait()
        assessment = all_pass("critic")
        if request.candidate.id == "c1":
            assessment.verdicts[0].CopyFrom(
                failed(assessment.verdicts[0].criterion, rationale="A step is missing.")
            )
        return assessment

    async def write(self, request: Any) -> Any:
        if self.declines and request.task.id == "t0":
            reason = ABSTAIN_REASON_REFUSED
            return SynthesizeResponse(failure="It declined.", failure_reason=reason)
        return await Fake("synthesize").respond(request)

    async def perform(self, request: Any) -> Any:
        del request
        self._check_key()
        return all_pass("execute")

    async def walk(self, request: Any) -> Any:
        self._check_key()
        assessment = all_pass("commonsense")
        if request.candidate.id == "c0":
            criterion = assessment.verdicts[0].criterion
            assessment.verdicts[0].CopyFrom(abstained(criterion, ABSTAIN_REASON_REFUSED, "It declined."))
        return assessment


@pytest.fixture
def judges() -> Judges:
    return Judges()


@pytest.fixture
async def target(judges: Judges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """A gateway that keeps runs."""
    monkeypatch.setenv("DRAMATURG_RUNS_ENABLED", "true")
    monkeypatch.setenv("DRAMATURG_RUNS_DATASET_FOLDERS", json.dumps([str(tmp_path / "shared")]))
    mine = {
        "synthesize": judges.write,
        "critic": judges.criticise,
        "execute": judges.perform,
        "commonsense": judges.walk,
    }
    fakes = agents(*(Fake(role, judge) for role, judge in mine.items()))
    async with gateway_target(*fakes, runs={}) as address:
        monkeypatch.setenv("DRAMATURG_TARGET", address)
        yield address
        judges.open.set()


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    file = tmp_path / "shared" / "rows.csv"
    file.parent.mkdir()
    requests = [scripts_request(2, tags={"level": "easy"}) for _ in range(SAMPLES)]
    for number, request in enumerate(requests):
        request.task.id = f"t{number}"
    file.write_bytes(to_csv(requests))
    return file


async def runs(*arguments: str | Path, code: int = 0, stdin: bytes = b"") -> Finished:
    done = await dramaturg("runs", *arguments, stdin=stdin)
    assert done.code == code, done
    return done


async def create(rows: str | Path, *arguments: str | Path, code: int = 0) -> str:
    done = await dramaturg("eval", "--kind", "scripts", rows, *arguments, "--detach")
    assert done.code == code, done
    return done.out.strip() or done.err


def leftovers(folder: Path) -> list[Path]:
    """Temporary files that a command left behind."""
    return [path for path in folder.iterdir() if path.name.startswith(".")]


async def begun(judges: Judges) -> None:
    async with asyncio.timeout(60):
        while not judges.asked:  # noqa: ASYNC110 - the judge does not know of the test
            await asyncio.sleep(0.01)


async def test_a_run_from_its_creation_to_its_deletion(target: str, rows: Path, tmp_path: Path) -> None:
    created = await create(rows, "--by-reference", "--label", "team=a")
    done = await runs("watch", created, "--json")
    run = done.json
    assert "SUCCEEDED" in done.err
    assert (run["state"], run["samples"], run["succeeded"]) == ("SUCCEEDED", SAMPLES, SAMPLES)
    assert (run["judgements"], run["abstained"]) == (SAMPLES * 14, SAMPLES)
    assert run["abstentions"] == {"REFUSED": SAMPLES}
    assert run["dataset"]["uri"] == str(rows)
    assert run["dataset"]["format"] == "CSV"

    listed = (await runs("list", "--label", "team=a", "--state", "succeeded", "--json")).json["runs"]
    assert [one["id"] for one in listed] == [run["id"]]
    assert (await runs("list", "--label", "team=b", "--json")).json["runs"] == []
    shown = await runs("status", run["id"][:-1])
    assert f"{SAMPLES} of {SAMPLES} samples (100.0%)" in shown.out

    found = (await runs("results", run["id"], "--outcome", "fail", "--json")).json
    assert len(found["results"]) == SAMPLES
    assert found["results"][0]["rationale"] == "A step is missing."
    assert not found["more"]
    found = (await runs("results", run["id"], "--reason", "refused", "--limit", "2", "--json")).json
    assert len(found["results"]) == 2
    assert found["more"]
    table = await runs("results", run["id"], "--model", "model-1", "--measure", "no_missing_steps")
    assert table.out.count("FAIL") == SAMPLES

    board = (await runs("leaderboard", run["id"], "--json")).json
    assert [(entry["rank"], entry["model"]) for entry in board["models"]] == [(1, "model-0"), (2, "model-1")]
    assert board["final"]
    assert board["models"][0]["abstentions"] == {"REFUSED": SAMPLES}
    lowest, highest = (board["models"][0][name] for name in ("mean_lowest", "mean_highest"))
    assert lowest == pytest.approx(6 / 7)
    assert highest == 1
    strict = ("leaderboard", run["id"], "--minimum-coverage", "0.9")
    models = (await runs(*strict, "--json")).json["models"]
    assert [(entry["rank"], entry["model"]) for entry in models] == [(1, "model-1"), (None, "model-0")]
    assert "unranked  model-0" in (await runs(*strict)).out
    assert "model-1" in (await runs("leaderboard", run["id"], "--measure", "no_missing_steps")).out

    await runs("delete", run["id"], code=1)  # nobody said yes
    assert (await runs("delete", run["id"], "--yes", "--json")).json == {"deleted": run["id"]}
    assert "NOT_FOUND" in (await runs("status", run["id"], code=2)).err
    assert f"there is no run {run['id'][:9]}" in (await runs("status", run["id"][:9], code=2)).err


async def test_files_of_a_run(target: str, rows: Path, tmp_path: Path) -> None:
    run = await create(rows)
    watched = await runs("watch", run)
    assert f"next: dramaturg show {run} --target {target}" in watched.err
    await create(rows, "--limit", "2")
    assert "begins the ids of 2 runs" in (await runs("status", run[:6], code=2)).err
    out = tmp_path / "out.csv"
    assert (await runs("results", run, "-o", out, "--json")).json["bytes"] == out.stat().st_size
    with out.open(newline="") as file:
        assert len(list(csv.DictReader(file))) == SAMPLES * 14
    await runs("results", run, "-o", tmp_path / "out.parquet", "--outcome", "abstain")
    assert parquet.read_table(tmp_path / "out.parquet").num_rows == SAMPLES
    await runs("results", run, "-o", tmp_path / "out.jsonl", "--format", "samples-jsonl")
    assert [one["task"]["id"] for one in read_jsonl(tmp_path / "out.jsonl")] == [
        f"t{n}" for n in range(SAMPLES)
    ]
    piped = await runs("results", run, "-o", "-")
    assert len(piped.out.splitlines()) == SAMPLES * 14
    missing = tmp_path / "none" / "out.csv"
    assert "No such file" in (await runs("results", run, "-o", missing, code=2)).err
    assert not leftovers(tmp_path)


async def test_the_summary_of_a_run_is_that_of_its_export(target: str, rows: Path, tmp_path: Path) -> None:
    run = await create(rows)
    await runs("watch", run)
    grouped = ("--group-by", "topic", "--group-by", "topic,steps", "--json")
    found = (await dramaturg("show", run[:-1], *grouped)).json
    assert found.pop("results") == run
    assert found["sample_count"] == SAMPLES
    assert found["abstentions_by_reason"] == {"REFUSED": SAMPLES}
    await runs("results", run, "-o", tmp_path / "out.jsonl", "--format", "samples-jsonl")
    exported = await dramaturg("show", tmp_path / "out.jsonl", "--target", target, *grouped)
    assert exported.json == {**found, "results": str(tmp_path / "out.jsonl")}
    table = await dramaturg("show", run)
    for word in ("executable", "model-1", "refused", "the worst failures:", "A step is missing."):
        assert word in table.out
    assert f"next: dramaturg report {run} --target {target}" in table.err


async def test_the_report_of_a_run(target: str, rows: Path, tmp_path: Path) -> None:
    run = await create(rows)
    await runs("watch", run)
    out = tmp_path / "report.html"
    done = await dramaturg("report", run, "-o", out, "--plots", tmp_path / "plots")
    assert done.code == 0, done
    page = out.read_text()
    assert "A step is missing." in str(shown_samples(page))
    assert "<title>rows.csv</title>" in page
    assert list((tmp_path / "plots").glob("*.csv"))


async def test_results_that_are_not_there_are_wrong_usage(target: str) -> None:
    absent, nowhere = "20260131-120000-9f3a1c2b54", ("--target", "127.0.0.1:1")
    for command in (("show",), ("report",), ("compare", absent)):
        named = await dramaturg(*command[:1], "out/absent", *command[1:])
        assert named.code == 2
        assert "out/absent: is neither a file, nor a folder, nor the id of a run" in named.err
        asked = await dramaturg(*command, absent)
        assert asked.code == 2
        assert f"{target}: NOT_FOUND" in asked.err
    assert "there is no run 20260131" in (await dramaturg("show", "20260131")).err
    assert (await dramaturg("show", absent, *nowhere)).code == 1
    # Exit code 1 of a comparison is NO-GO.
    assert (await dramaturg("compare", absent, absent, *nowhere)).code == 4


async def test_the_end_of_a_run_is_the_exit_code(target: str, rows: Path, tmp_path: Path) -> None:
    with_a_bad_row = tmp_path / "shared" / "bad.jsonl"
    with_a_bad_row.write_bytes(to_json_lines([scripts_request(1)]) + b"{\n")
    # Rows that the command reads are checked first, those that the gateway reads are failed samples.
    assert "line 2: is not JSON" in await create(with_a_bad_row, code=2)
    run = await create(with_a_bad_row, "--by-reference", "--set", "policy.max_failed_count=0")
    assert "FAILED" in (await runs("watch", run, code=1)).out
    assert "line 2: is not JSON" in (await runs("status", run)).out
    run = await create(rows, "--max-tokens", "12", "--concurrency", "1")
    assert "PARTIAL" in (await runs("watch", run, code=4)).out


async def test_a_run_of_rows_that_the_gateway_reads_is_watched_to_its_results(
    target: str, rows: Path, tmp_path: Path
) -> None:
    with rows.open("ab") as file:
        file.write(b"no row\n")
    command = ("eval", "--kind", "scripts", rows, "--by-reference", "--json", "--out", tmp_path / "out")
    done = await dramaturg(*command)
    assert done.code == 1, done  # the row that is none
    assert f"gateway: {target} (DRAMATURG_TARGET)" in done.err
    assert done.json["sample_count"] == SAMPLES + 1
    assert [one["task"]["id"] for one in read_jsonl(tmp_path / "out" / "results.jsonl")] == [
        f"t{number}" for number in range(SAMPLES)
    ]
    assert [one["line"] for one in read_jsonl(tmp_path / "out" / "errors.jsonl")] == [SAMPLES + 2]


async def test_a_run_that_is_paused_for_its_first_samples_ends_the_command(
    target: str, rows: Path, judges: Judges
) -> None:
    judges.has_key = False
    options = ("--set", "policy.fail_fast_sample_count=2", "--concurrency", "1")
    run = await create(rows, *options)
    watched = await runs("watch", run, code=1)
    assert "PAUSED: the first 2 samples failed for the same reason (CALL_REJECTED)" in watched.out
    assert "401: no such key" in watched.out
    described = (await runs("status", run, "--json")).json
    assert (described["state"], described["outcome"]) == ("PAUSED", "HALTED")
    judges.has_key = True
    assert (await runs("resume", run, "--watch", "--json", code=4)).json["outcome"] == "LOW_COVERAGE"


async def test_an_evaluation_has_the_limits_and_labels_of_its_run(
    target: str, rows: Path, tmp_path: Path
) -> None:
    command = ("eval", "--kind", "scripts", rows, "--target", target, "--json", "--out")
    enough = await dramaturg(*command, tmp_path / "enough", "--name", "enough", "--label", "team=a")
    assert enough.code == 0, enough
    low = await dramaturg(
        *command, tmp_path / "low", "--set", "policy.min_coverage=0.99", "--label", "team=b"
    )
    assert low.code == 4, low
    too_many = await dramaturg(*command, tmp_path / "many", "--set", "policy.max_abstained_fraction=0")
    assert too_many.code == 1, too_many
    (listed,) = (await runs("list", "--label", "team=a", "--json")).json["runs"]
    assert listed["name"] == "enough"


async def test_missing_gold_answers_of_a_run_are_told(target: str, rows: Path, judges: Judges) -> None:
    judges.declines = True
    words = f"1 of {SAMPLES} samples were judged without the gold answer that they asked for (REFUSED 1)"
    partial = await runs("watch", await create(rows), "--json", code=4)
    assert (partial.json["state"], partial.json["outcome"]) == ("PARTIAL", "GOLD_ANSWERS_MISSING")
    assert partial.json["state_reason"] == f"{words}; a share of 0.1 is allowed. It declined."
    assert partial.json["gold_answers"] == {
        "samples": SAMPLES,
        "missing": 1,
        "missing_by_reason": {"REFUSED": 1},
    }
    run = partial.json["id"]
    assert words in (await runs("status", run)).out
    assert f"note: {words}" in (await runs("leaderboard", run)).out
    assert (await runs("leaderboard", run, "--json")).json["notices"] == [words]
    assert "Missing gold answers by reason" in (await dramaturg("show", run)).out
    run = await create(rows, "--set", "policy.max_missing_gold_answer_fraction=0.5")
    permitted = await runs("watch", run, "--json")
    assert permitted.json["gold_answers"]["missing"] == 1


async def test_ctrl_c_detaches_and_the_run_goes_on(target: str, rows: Path, judges: Judges) -> None:
    judges.open.clear()
    run = await create(rows)
    async with start("runs", "watch", run) as process:
        assert process.stderr is not None
        await asyncio.wait_for(process.stderr.readline(), 60)
        process.send_signal(signal.SIGINT)
        done = await finish(process)
    assert done.code == 130
    assert f"the run goes on. To see it again: dramaturg runs watch {run} --target {target}" in done.err
    assert (await runs("status", run, "--json")).json["state"] in {"PREPARING", "RUNNING"}
    judges.open.set()
    assert (await runs("watch", run, "--json")).json["succeeded"] == SAMPLES


async def test_a_run_is_steered(target: str, rows: Path, judges: Judges) -> None:
    judges.open.clear()
    options = ("--concurrency", "1", "--max-cost-usd", "7")
    run = await create(rows, *options)
    assert await create(rows, *options) == run  # until it has ended
    await begun(judges)
    assert "FAILED_PRECONDITION" in (await runs("rerun", run, code=2)).err
    assert "FAILED_PRECONDITION" in (await runs("extend", run, "--model", "m", code=2)).err
    assert (await runs("pause", run, "--json")).json["state"] == "PAUSED"
    assert "nothing is to be changed" in (await runs("update", run, code=2)).err
    await runs("update", run, "--set", "limits.priority=5", "--max-tokens", "100000")
    async with DramaturgClient(target) as client:
        spec = (await client.runs.get(run)).spec
    assert spec.limits == RunLimits(max_concurrent_samples=1, priority=5)
    assert spec.budget == RunBudget(max_cost_usd=7, max_token_count=100000)
    judges.open.set()
    ended = (await runs("resume", run, "--watch", "--json")).json
    assert (ended["state"], ended["succeeded"]) == ("SUCCEEDED", SAMPLES)
    again = (await runs("rerun", run, "--scope", "all", "--watch", "--json")).json
    assert (again["state"], again["attempt"], again["succeeded"]) == ("SUCCEEDED", 2, SAMPLES)


async def test_a_run_is_cancelled(target: str, rows: Path, judges: Judges) -> None:
    judges.open.clear()
    run = await create(rows)
    await begun(judges)
    assert (await runs("cancel", run, "--json")).json["state"] == "CANCELLED"
    assert "CANCELLED" in (await runs("watch", run, code=1)).out


async def test_what_is_refused_is_told(target: str, rows: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.jsonl"
    outside.write_bytes(b"{}\n")
    told = await create(outside, "--by-reference", code=2)
    assert "spec.dataset.uri is outside of the folders that this gateway reads datasets from" in told
    assert "nobody" in await create(rows, "--by-reference", "--judge", "critic=nobody", code=2)
    assert (
        "--outcome 'maybe': there are pass, fail, abstain"
        in (await runs("results", "x", "--outcome", "maybe", code=2)).err
    )
    shown = await runs("status", "x", "--target", "127.0.0.1:1", code=1)
    assert "UNAVAILABLE" in shown.err
    assert "DRAMATURG_TARGET" in shown.err
    assert os.environ["DRAMATURG_TARGET"] == target
