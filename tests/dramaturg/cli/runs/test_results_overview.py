"""Runs, judgements and leaderboards in a narrow terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_SUCCEEDED, Dataset, Run, RunSpec
from dramaturg.api.evaluation.v1.run_results_pb2 import LeaderboardEntry, RunResult
from dramaturg.cli.main import app
from tests.support.evaluations import in_a_thread
from tests.support.run_service import ScriptedRuns, run_service

RUN, MODEL = "20261121-220733-9679aa39ce", "vendor/model-70b-instruct"
UNREAD = "s3://bucket/rows.jsonl"
MEASURES = ("completes_goal", "no_duplicate_steps", "no_redundant_steps", "satisfies_constraints")


class OneRun(ScriptedRuns):
    """One run with a judgement by each measure, and a leaderboard of one model."""

    async def ListRuns(self, request: pb.ListRunsRequest, context: Any) -> pb.ListRunsResponse:
        run = Run(id=RUN, state=RUN_STATE_SUCCEEDED, spec=RunSpec(display_name="nightly"))
        return pb.ListRunsResponse(runs=[] if request.labels else [run])

    async def GetRun(self, request: pb.GetRunRequest, context: Any) -> pb.GetRunResponse:
        dataset = Dataset(uri=UNREAD) if request.run_id == RUN else Dataset(dataset_id="0ab")
        return pb.GetRunResponse(run=Run(id=RUN, spec=RunSpec(dataset=dataset)))

    async def ListResults(self, request: pb.ListResultsRequest, context: Any) -> pb.ListResultsResponse:
        wanted = request.filter.measures or MEASURES
        results = [RunResult(sample_id="soup", model=MODEL, measure=one) for one in MEASURES if one in wanted]
        return pb.ListResultsResponse(results=results)

    async def GetLeaderboard(
        self, request: pb.GetLeaderboardRequest, context: Any
    ) -> pb.GetLeaderboardResponse:
        means = {name: place / 8 for place, name in enumerate(MEASURES)}
        entry = LeaderboardEntry(rank=1, model=MODEL, mean=0.737, lower=0.516, upper=0.892)
        entry.means_by_measure.update(means)
        return pb.GetLeaderboardResponse(entries=[entry], final=True)


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    with in_a_thread(lambda: run_service(OneRun(1))) as address:  # type: ignore[abstract]  # as scripted_runs
        yield address


def shown(target: str, *arguments: str) -> str:
    result = CliRunner().invoke(app, ["runs", *arguments, "--target", target], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "…" not in result.stdout
    return result.stdout


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without a terminal tables are as wide as they like.
    monkeypatch.setattr("dramaturg.cli.platform.UNFOLDED_WIDTH", 80)


def test_the_id_of_a_run_is_whole(target: str) -> None:
    listed = shown(target, "list")
    assert RUN in listed.split()
    assert "SUCCEEDED" in listed.split()


def test_a_dataset_that_is_not_read_yet_is_named(target: str) -> None:
    assert UNREAD in shown(target, "status", RUN).split()
    assert "datasets/0ab" in shown(target, "status", "another").split()


def test_every_measure_of_a_leaderboard_is_there(target: str) -> None:
    words = set(shown(target, "leaderboard", RUN).split())
    assert {MODEL, "0.737", "0.516", "0.892", *MEASURES, "0.000", "0.125", "0.250", "0.375"} <= words


def test_measures_of_judgements_are_whole(target: str) -> None:
    assert {MODEL, "soup", *MEASURES} <= set(shown(target, "results", RUN).split())


def test_it_is_said_that_there_is_nothing(target: str) -> None:
    assert shown(target, "results", RUN, "--measure", "absent") == "there are no such judgements\n"
    assert shown(target, "list", "--label", "team=x") == "there are no such runs\n"
