"""Runs whose judge changes while they are in progress, or has an unexpected version."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.run_pb2 import RunLimits
from dramaturg.service.contract import Contract
from dramaturg.testing import serve
from gateway.runs.service.messages import describe_one
from gateway.settings import JudgeEntry
from tests.support.engines import Runs, judges_of, open_runs, script_rows, scripts_spec
from tests.support.gateway import Fake, all_pass

ONE = {"limits": RunLimits(max_concurrent_samples=1)}


class Upgraded:
    """A critic that is upgraded to another version after some answers."""

    def __init__(self, after: int, version: str = "1.1.0") -> None:
        self.answers = 0
        self._after = after
        self._version = version
        self.contract: Contract = Fake("critic", self._judge).contract()

    async def _judge(self, request: Any) -> Assessment:
        self.answers += 1
        if self.answers > self._after:
            self.contract.identity.version = self._version
        answer = all_pass("critic")
        answer.provenance.MergeFrom(Provenance(version=self.contract.identity.version))
        return answer


@asynccontextmanager
async def runs_of(url: str, critic: Upgraded, **fields: Any) -> AsyncIterator[Runs]:
    others = [Fake(role) for role in ("synthesize", "execute", "commonsense")]
    async with serve(critic.contract) as server, judges_of(others) as entries:
        entry = JudgeEntry(role="critic", name="theirs", target=server.target, **fields)
        async with open_runs(url, [entry, *entries]) as runs:
            yield runs


def versions(runs: Runs, run_id: str) -> Sequence[str]:
    """The versions of the critic, as GetRun states them."""
    run = describe_one(runs.get(run_id), runs.store)
    return [one.version for one in run.judges if (one.role, one.judge) == ("critic", "theirs")]


@pytest.fixture(autouse=True)
def no_minimum_age(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.judges.identity.DOUBT_SECONDS", 0.0)


async def test_a_change_is_recorded_and_the_run_goes_on(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with runs_of(store_url, Upgraded(after=2)) as runs:
        run_id = await runs.create(scripts_spec(**ONE), script_rows(6))
        run = await runs.ended(run_id)
        assert run.outcome == run_pb2.RUN_OUTCOME_JUDGED
        assert versions(runs, run_id) == ["1.0.0", "1.1.0"]
        stated = [
            one.assessment.provenance.version
            for sample in runs.samples(run_id)
            for one in sample.scripts.candidates[0].assessments
            if one.role == "critic"
        ]
    assert stated[0] == "1.0.0"
    assert stated[-1] == "1.1.0"
    assert stated == sorted(stated)
    assert "was fake-critic 1.0.0 and is fake-critic 1.1.0" in caplog.text


async def test_a_change_pauses_a_run_once(store_url: str) -> None:
    critic = Upgraded(after=2)
    async with runs_of(store_url, critic, version_policy="pause") as runs:
        run_id = await runs.create(scripts_spec(**ONE), script_rows(30))
        paused = await runs.until(run_id, lambda run: run.state == run_pb2.RUN_STATE_PAUSED)
        assert paused.outcome == run_pb2.RUN_OUTCOME_JUDGE_CHANGED
        assert paused.state_reason == (
            "the judge 'theirs' of critic changed during the run: it was fake-critic 1.0.0 and is "
            "fake-critic 1.1.0"
        )
        assert critic.answers < 30
        await runs.change(run_id, run_pb2.RUN_STATE_RUNNING)
        run = await runs.ended(run_id)
    assert (run.outcome, run.counts.succeeded) == (run_pb2.RUN_OUTCOME_JUDGED, 30)


async def test_a_change_fails_a_run(store_url: str) -> None:
    async with runs_of(store_url, Upgraded(after=2), version_policy="fail") as runs:
        run_id = await runs.create(scripts_spec(**ONE), script_rows(30))
        run = await runs.ended(run_id)
        assert (run.state, run.outcome) == (run_pb2.RUN_STATE_FAILED, run_pb2.RUN_OUTCOME_JUDGE_CHANGED)
        assert 0 < run.counts.succeeded < 30


async def test_versions_within_the_expected_range_are_interchangeable(sqlite_url: str) -> None:
    async with runs_of(sqlite_url, Upgraded(after=2), expect_version=">=1,<2") as runs:
        run_id = await runs.create(scripts_spec(**ONE), script_rows(6))
        run = await runs.ended(run_id)
        assert run.outcome == run_pb2.RUN_OUTCOME_JUDGED
        assert versions(runs, run_id) == ["1.0.0", "1.1.0"]


async def test_a_version_out_of_the_range_fails_a_run_and_is_not_asked(sqlite_url: str) -> None:
    critic = Upgraded(after=2, version="2.0.0")
    async with runs_of(sqlite_url, critic, expect_version=">=1,<2") as runs:
        run = await runs.ended(await runs.create(scripts_spec(**ONE), script_rows(30)))
    assert (run.state, run.outcome) == (run_pb2.RUN_STATE_FAILED, run_pb2.RUN_OUTCOME_JUDGE_CHANGED)
    assert run.state_reason == (
        "the judge 'theirs' of critic states the version '2.0.0'; expect_version is '>=1,<2'"
    )
    assert critic.answers == 3


async def test_a_wrong_version_pauses_a_run_until_it_is_corrected(sqlite_url: str) -> None:
    critic = Upgraded(after=100)
    critic.contract.identity.version = "2.0.0"
    async with runs_of(sqlite_url, critic, expect_version="1.0.0", version_policy="pause") as runs:
        run_id = await runs.create(scripts_spec(**ONE), script_rows(10))
        await runs.until(run_id, lambda run: run.state == run_pb2.RUN_STATE_PAUSED)
        await runs.change(run_id, run_pb2.RUN_STATE_RUNNING)
        again = await runs.until(run_id, lambda run: run.state == run_pb2.RUN_STATE_PAUSED)
        assert again.outcome == run_pb2.RUN_OUTCOME_JUDGE_CHANGED
        assert (critic.answers, again.counts.succeeded) == (0, 0)
        critic.contract.identity.version = "1.0.0"
        await runs.change(run_id, run_pb2.RUN_STATE_RUNNING)
        run = await runs.ended(run_id)
    assert (run.outcome, run.counts.succeeded, dict(run.counts.abstentions_by_reason)) == (
        run_pb2.RUN_OUTCOME_JUDGED,
        10,
        {},
    )
