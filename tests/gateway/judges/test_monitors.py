"""Monitors of judges, as callers of a gateway see them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.duration_pb2 import Duration

from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.verdict_pb2 import Verdict
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import (
    JUDGE_HEALTH_QUARANTINED,
    JUDGE_HEALTH_SERVING,
    Judge,
    JudgePanel,
    JudgeRegistration,
    PanelMember,
)
from dramaturg.api.evaluation.v1.judge_monitor_pb2 import (
    DRIFT_POLICY_PAUSE,
    DRIFT_POLICY_QUARANTINE,
    JudgeMonitor,
)
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_OUTCOME_JUDGE_CHANGED,
    RUN_STATE_PAUSED,
    RUN_STATE_RUNNING,
    Dataset,
    RunLimits,
    RunPolicy,
    RunSpec,
    TextsRunOptions,
)
from dramaturg.api.evaluation.v1.texts_pb2 import EvaluateTextsRequest
from dramaturg.api.judging.v1.judge_service_pb2 import JudgeCandidate, JudgeRequest
from dramaturg.client import DramaturgClient
from dramaturg.judge.verdicts import abstained, failed, passed
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError
from dramaturg.service.settings import ChannelSettings
from dramaturg.testing import FakeJudge, serve
from gateway.quotas.settings import Quota, QuotaSettings
from gateway.runs.store import RunStore, open_reader
from tests.gateway.judges.test_registrations import ALICE, fields_of, gateway, token_of
from tests.support.auth import token_settings
from tests.support.gateway import until_read

ROLE, NAME = "rubric-judge", "theirs"
DAY = Duration(seconds=86400)


@dataclass
class Mind:
    """A judge that fails texts with certain words."""

    bad: set[str] = field(default_factory=lambda: {"text 1."})
    down: bool = False
    reason: verdict_pb2.AbstainReason.ValueType = verdict_pb2.ABSTAIN_REASON_OVER_BUDGET
    faults: int = 0
    """The answers that a passing fault takes from now on."""
    hold: asyncio.Event | None = None

    async def judge(self, request: JudgeRequest, candidate: JudgeCandidate) -> Sequence[Verdict]:
        if self.hold is not None:
            await self.hold.wait()
        return [self._verdict(one.id, candidate.text) for one in request.criteria]

    def _verdict(self, criterion: str, text: str) -> Verdict:
        self.faults -= bool(self.faults)
        if self.down or self.faults:
            return abstained(criterion, self.reason, "down")
        return failed(criterion) if any(one in text for one in self.bad) else passed(criterion)


@dataclass
class Platform:
    """A gateway with a registered judge."""

    client: DramaturgClient
    mind: Mind
    contract: Contract
    store: RunStore

    async def ended(self, samples: int = 12, **fields: Any) -> str:
        """A run that the judge has judged; its id."""
        run = await self.client.runs.create(spec(samples, **fields))
        async for _ in self.client.runs.watch(run.id):
            pass
        return run.id

    async def monitored(self, **fields: Any) -> JudgeMonitor:
        """The monitor of the judge, which is made if fields are given."""
        if not fields:
            return (await self.client.check_judge(ROLE, NAME)).monitor
        given: dict[str, Any] = {"interval": DAY, **fields}
        return (await self.client.monitor_judge(ROLE, NAME, JudgeMonitor(**given))).monitor

    async def checked(self) -> JudgeMonitor:
        """The monitor after one more check, which is made due."""
        before = found = await self.monitored()
        await self.make_due()

        async def is_checked() -> bool:
            nonlocal found
            found = await self.monitored()
            return found.last_check != before.last_check

        await until_read(is_checked, True, 60)
        return found

    async def until_checked(self) -> None:
        """Waits for the first check."""

        async def checks() -> int:
            return (await self.monitored()).check_count

        await until_read(checks, 1, 60)

    async def make_due(self) -> None:
        """Moves the next check to the present."""

        async def is_moved() -> bool:
            (stored,) = self.store.monitors.all()
            due = JudgeMonitor()
            due.CopyFrom(stored.monitor)
            due.next_check_time.FromDatetime(datetime.now(UTC) - timedelta(seconds=1))
            return self.store.monitors.replace(stored, replace(stored, monitor=due))

        await until_read(is_moved, True, 60)


def row(index: int) -> str:
    """A text to judge, as a line of a dataset."""
    return json.dumps(
        {
            "task": {"id": f"t{index}", "goal": "Write a sentence"},
            "texts": [{"id": "a", "text": f"This is text {index}."}],
            "criteria": [{"id": "clear", "passes": "It is clear.", "fails": "It is not."}],
        }
    )


def spec(samples: int, repeats: int = 5, **fields: Any) -> RunSpec:
    return RunSpec(
        texts=TextsRunOptions(),
        dataset=Dataset(content="\n".join(map(row, range(samples))).encode()),
        judges=[JudgeSelection(role=ROLE, judge=NAME)],
        options=JudgeOptions(repeats=repeats),
        **fields,
    )


@asynccontextmanager
async def platform(store_url: str, **settings: Any) -> AsyncIterator[Platform]:
    mind = Mind()
    contract = FakeJudge(mind.judge, name="theirs").contract()
    async with serve(contract) as theirs, opened(store_url, mind, contract, **settings) as on:
        await on.client.register_judge(JudgeRegistration(role=ROLE, name=NAME, target=theirs.target))
        yield on


@asynccontextmanager
async def opened(store_url: str, mind: Mind, contract: Contract, **settings: Any) -> AsyncIterator[Platform]:
    async with gateway(store_url, **settings) as target, DramaturgClient(target) as client:
        yield Platform(client, mind, contract, open_reader(store_url))


async def test_a_swapped_model_is_found_by_the_next_check(store_url: str) -> None:
    async with platform(store_url) as on:
        run_id = await on.ended()
        begun = await on.monitored(run_id=run_id)
        assert (begun.anchor_count, begun.check_count, begun.HasField("last_check")) == (12, 0, False)
        assert begun.level == pytest.approx(0.01 / 366)
        assert begun.detectable_count == 3  # of 252 divisions of 5 and 5 answers two are the most extreme
        remaining = begun.next_check_time.ToDatetime(UTC) - datetime.now(UTC)
        assert timedelta(hours=23) < remaining < timedelta(hours=25)

        unchanged = await on.checked()
        assert not unchanged.HasField("drift")
        assert (unchanged.last_check.compared_count, unchanged.last_check.changed_count) == (12, 0)
        assert (unchanged.last_check.p_value, unchanged.last_check.changed_lower) == (1.0, 0.0)
        assert 0 < unchanged.last_check.changed_upper < 1

        on.mind.bad = {"text 2.", "text 3."}
        found = await on.checked()
        assert (found.check_count, found.drift) == (2, found.last_check)
        assert (found.drift.changed_count, found.drift.drifted) == (3, True)
        assert found.drift.p_value <= found.level
        assert found.drift.changed_lower < 3 / 12 < found.drift.changed_upper
        assert (await on.client.check_judge(ROLE, NAME)).health == JUDGE_HEALTH_SERVING

        # The first check that found it stays, and MonitorJudge takes the answers of now as the base.
        again = await on.checked()
        assert (again.drift, again.check_count) == (found.drift, 3)
        anew = await on.monitored(run_id=run_id)
        assert not anew.HasField("drift")
        assert not (await on.checked()).last_check.drifted

        await on.client.monitor_judge(ROLE, NAME, None)
        assert not (await on.client.check_judge(ROLE, NAME)).HasField("monitor")


async def test_another_version_is_checked_at_once(store_url: str) -> None:
    async with platform(store_url, identity_ttl_seconds=0.05) as on:
        await on.monitored(run_id=await on.ended(3))
        on.contract.identity.version = "2.0.0"
        on.contract.identity.prompts["judge"] = "ab" * 32

        await on.until_checked()
        found = (await on.monitored()).last_check
        assert found.identity_change == "version 1.0.0, now 2.0.0; prompt judge"
        assert not found.drifted
        # It is the version that counts from now on.
        assert not (await on.checked()).last_check.identity_change


async def test_a_judge_that_drifted_is_in_quarantine_until_it_is_monitored_anew(store_url: str) -> None:
    async with platform(store_url) as on:
        run_id = await on.ended()
        await on.monitored(run_id=run_id, drift_policy=DRIFT_POLICY_QUARANTINE)
        on.mind.bad = {"text 2.", "text 3.", "text 4."}
        await on.checked()

        async def health() -> Judge:
            return await on.client.check_judge(ROLE, NAME)

        async def is_excluded() -> bool:
            return (await health()).health == JUDGE_HEALTH_QUARANTINED

        await until_read(is_excluded, True, 60)
        assert "its monitor found drift" in (await health()).error
        assert (await health()).monitor.drift.changed_count == 4
        request = json_format.Parse(row(1), EvaluateTextsRequest())
        request.judges.add(role=ROLE, judge=NAME)
        result = [event async for event in on.client.evaluate_texts(request)][-1].result
        assert "found drift" in result.texts[0].verdicts[0].rationale
        await on.monitored(run_id=run_id, drift_policy=DRIFT_POLICY_QUARANTINE)
        assert (await health()).health == JUDGE_HEALTH_SERVING


async def test_runs_that_ask_a_judge_that_drifted_are_paused(store_url: str) -> None:
    async with platform(store_url) as on:
        run_id = await on.ended()
        await on.monitored(run_id=run_id, drift_policy=DRIFT_POLICY_PAUSE)
        going = await on.client.runs.create(spec(400, repeats=2, limits=RunLimits(max_concurrent_samples=1)))
        other = spec(400, repeats=2, limits=RunLimits(max_concurrent_samples=1))
        target = (await on.client.check_judge(ROLE, NAME)).target
        await on.client.register_judge(JudgeRegistration(role=ROLE, name="other", target=target))
        other.judges[0].judge = "other"
        unconcerned = await on.client.runs.create(other)
        on.mind.bad = {"text 2.", "text 3.", "text 4."}
        await on.checked()

        async def is_paused() -> bool:
            return (await on.client.runs.get(going.id)).state == RUN_STATE_PAUSED

        await until_read(is_paused, True, 60)
        paused = await on.client.runs.get(going.id)
        assert paused.outcome == RUN_OUTCOME_JUDGE_CHANGED
        assert paused.state_reason.startswith("rubric-judge=theirs drifted: 4 of 12 candidates")
        assert (await on.client.runs.get(unconcerned.id)).state != RUN_STATE_PAUSED
        assert (await on.client.runs.resume(going.id)).state == RUN_STATE_RUNNING


async def test_a_check_without_answers_is_an_error_and_no_drift(store_url: str) -> None:
    async with platform(store_url) as on:
        run_id = await on.ended(
            9, policy=RunPolicy(max_abstained_fraction=1), limits=RunLimits(max_concurrent_samples=1)
        )
        await on.monitored(run_id=run_id)
        on.mind.down = True
        found = await on.checked()
        assert "no candidate has answers" in found.last_check.error
        assert (found.check_count, found.last_check.drifted, found.HasField("drift")) == (0, False, False)
        # The engine pauses a run that a permanent fault stops; the check goes on with it.
        on.mind.reason = verdict_pb2.ABSTAIN_REASON_CALL_REJECTED
        assert "the run is paused" in (await on.checked()).last_check.error
        on.mind.down = False
        await on.client.runs.resume(run_id)

        await on.until_checked()
        assert 0 < (await on.monitored()).last_check.compared_count < 9
        await on.client.runs.delete(run_id)
        assert (await on.checked()).last_check.error == "the run of the anchors was deleted"


async def test_a_check_survives_its_gateway(store_url: str) -> None:
    mind = Mind()
    contract = FakeJudge(mind.judge, name="theirs").contract()
    async with serve(contract) as theirs:
        async with opened(store_url, mind, contract) as on:
            await on.client.register_judge(JudgeRegistration(role=ROLE, name=NAME, target=theirs.target))
            await on.monitored(run_id=await on.ended(4))
            mind.hold = asyncio.Event()
            await on.make_due()

            async def is_begun() -> bool:
                return (await on.client.runs.get((await on.monitored()).run_id)).attempt == 2

            await until_read(is_begun, True, 60)
        mind.hold.set()
        async with opened(store_url, mind, contract) as on:
            await on.until_checked()
            found = await on.monitored()
            assert (found.last_check.compared_count, found.last_check.p_value) == (4, 1.0)


async def test_what_cannot_be_monitored_is_refused_with_its_reason(store_url: str) -> None:
    async with platform(store_url) as on:
        good = await on.ended(2)

        async def refused(**fields: Any) -> ServiceError:
            with pytest.raises(ServiceError) as caught:
                await on.monitored(**fields)
            return caught.value

        once = await refused(run_id=await on.ended(2, repeats=0))
        assert fields_of(once) == ["monitor.run_id"]
        assert "no verdicts" in once.message or "must be 2 to 7" in once.message
        often = await refused(run_id=await on.ended(2, repeats=8))
        assert "answered for 8 times" in often.message
        short = await refused(run_id=good, interval=Duration(seconds=59))
        assert fields_of(short) == ["monitor.interval"]
        missing = await refused(run_id="none")
        assert missing.reason == error_reason_pb2.ERROR_REASON_RESOURCE_NOT_FOUND
        on.mind.hold = asyncio.Event()
        going = await on.client.runs.create(spec(2))
        assert (await refused(run_id=going.id)).reason == error_reason_pb2.ERROR_REASON_RUN_STATE
        on.mind.hold.set()
        target = (await on.client.check_judge(ROLE, NAME)).target
        await on.client.register_judge(JudgeRegistration(role=ROLE, name="other", target=target))
        panel = JudgeRegistration(
            role=ROLE,
            name="both",
            panel=JudgePanel(members=[PanelMember(judge=NAME), PanelMember(judge="other")]),
        )
        await on.client.register_judge(panel)
        with pytest.raises(ServiceError) as caught:
            await on.client.monitor_judge(ROLE, "both", JudgeMonitor(run_id=good, interval=DAY))
        assert fields_of(caught.value) == ["judge"]
        with pytest.raises(ServiceError) as caught:
            await on.client.monitor_judge(ROLE, "none", JudgeMonitor(run_id=good, interval=DAY))
        assert caught.value.reason == error_reason_pb2.ERROR_REASON_JUDGE_UNKNOWN


async def test_answers_that_a_passing_fault_took_are_left_out(store_url: str) -> None:
    """Four of five answers of a check, and four of another candidate: the sizes of the groups may differ."""
    async with platform(store_url) as on:
        await on.monitored(run_id=await on.ended(6))
        on.mind.faults = 2
        found = await on.checked()
        assert (found.last_check.compared_count, found.last_check.error) == (6, "")


async def test_a_check_counts_against_the_quotas_of_its_tenant(store_url: str) -> None:
    quotas = QuotaSettings(default=Quota(max_active_runs=1))
    async with platform(store_url, quotas=quotas) as on:
        run_id = await on.ended(2)
        await on.monitored(run_id=run_id)
        on.mind.hold = asyncio.Event()
        going = await on.client.runs.create(spec(1))
        refused = await on.checked()
        assert "active runs" in refused.last_check.error
        assert (await on.client.runs.get(run_id)).attempt == 1
        on.mind.hold.set()
        async for _ in on.client.runs.watch(going.id):
            pass
        assert not (await on.checked()).last_check.error


async def test_a_monitor_that_cannot_be_read_holds_up_no_other(store_url: str) -> None:
    async with platform(store_url) as on:
        run_id = await on.ended(2)
        await on.monitored(run_id=run_id)
        (stored,) = on.store.monitors.all()
        broken = replace(stored, name="another", identity="no JSON", attempt=1)
        on.store.monitors.put(broken, b"no base")
        due = JudgeMonitor()
        due.CopyFrom(stored.monitor)
        due.next_check_time.FromDatetime(datetime.now(UTC) - timedelta(seconds=1))

        async def is_moved() -> bool:
            (kept,) = (one for one in on.store.monitors.all() if one.name == NAME)
            return on.store.monitors.replace(kept, replace(kept, monitor=due))

        await until_read(is_moved, True, 60)

        await on.until_checked()


async def test_a_tenant_excludes_no_judge_of_all(store_url: str, tmp_path: Path) -> None:
    monitor = JudgeMonitor(run_id="any", interval=DAY, drift_policy=DRIFT_POLICY_QUARANTINE)
    alice = ChannelSettings(token_file=token_of(tmp_path, ALICE))
    async with (
        gateway(store_url, auth=token_settings(tmp_path, ALICE)) as target,
        DramaturgClient(target, alice) as client,
    ):
        with pytest.raises(ServiceError) as caught:
            await client.monitor_judge("critic", "fake", monitor)
        assert fields_of(caught.value) == ["monitor.drift_policy"]
