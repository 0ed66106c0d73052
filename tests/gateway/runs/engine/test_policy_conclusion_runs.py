"""The outcomes of whole runs over real gRPC."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import grpc
import pytest

from dramaturg.api.agents.v1.synthesize_service_pb2 import SynthesizeResponse
from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.evaluation.v1 import run_pb2
from dramaturg.api.evaluation.v1.run_pb2 import RunLimits, RunPolicy, ScriptsRunOptions
from dramaturg.api.evaluation.v1.run_service_pb2 import RERUN_SCOPE_ALL, RERUN_SCOPE_FAILED_OR_ABSTAINED
from dramaturg.api.evaluation.v1.scripts_pb2 import GOLD_ANSWER_SOURCE_NONE
from dramaturg.service.errors import ServiceError
from gateway.runs.records import SeenJudge
from tests.support.engines import runs_with, script_rows, scripts_spec
from tests.support.gateway import Fake, all_pass

KEY = "provider 'p' answered 401: no such key"
ROLES = ("critic", "execute", "commonsense")


class Account:
    """The account of all judges at a provider, which may refuse their calls."""

    def __init__(self) -> None:
        self.open = False
        self.calls = 0

    def judges(self) -> list[Fake]:
        return [Fake(role, self._judge(role)) for role in ROLES]

    def _judge(self, role: str) -> Any:
        async def judge(request: Any) -> Any:
            self.calls += 1
            if not self.open:
                reason = error_reason_pb2.ERROR_REASON_PROVIDER_UNAUTHENTICATED
                raise ServiceError(grpc.StatusCode.FAILED_PRECONDITION, reason, KEY)
            return all_pass(role)

        return judge


async def test_judges_that_cannot_be_called_pause_the_run_until_it_is_resumed(store_url: str) -> None:
    account = Account()
    spec = scripts_spec(limits=RunLimits(max_concurrent_samples=1))
    async with runs_with(store_url, *account.judges(), outage_timeout_seconds=600) as runs:
        run_id = await runs.create(spec, script_rows(40))
        paused = await runs.until(run_id, lambda run: run.state == run_pb2.RUN_STATE_PAUSED)
        assert paused.outcome == run_pb2.RUN_OUTCOME_HALTED
        assert paused.state_reason.startswith(
            "the first 3 samples failed for the same reason (CALL_REJECTED)"
        )
        assert KEY in paused.state_reason
        assert account.calls == 3 * len(ROLES)
        account.open = True
        await runs.change(run_id, run_pb2.RUN_STATE_RUNNING)
        run = await runs.ended(run_id)
        assert (run.state, run.counts.succeeded) == (run_pb2.RUN_STATE_SUCCEEDED, 40)
        assert run.counts.abstentions_by_reason == {"CALL_REJECTED": 3 * 7}
        assert runs.store.attempts.begin(run_id, RERUN_SCOPE_FAILED_OR_ABSTAINED) is not None
        await runs.engine.submit(run_id)
        run = await runs.ended(run_id)
    assert (run.outcome, run.counts.coverage) == (run_pb2.RUN_OUTCOME_JUDGED, 1)


async def test_a_sample_whose_judges_are_being_noted_counts_as_started(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = Account()
    spec = scripts_spec(limits=RunLimits(max_concurrent_samples=1))
    async with runs_with(sqlite_url, *account.judges(), outage_timeout_seconds=600) as runs:
        note = runs.store.judges.note
        noted: Counter[str] = Counter()

        def slow(run_id: str, seen: SeenJudge) -> Sequence[SeenJudge]:
            # The judges of a second sample are noted only after those of further samples.
            noted[seen.role] += 1
            deadline = time.monotonic() + 5
            while noted[seen.role] == 2 and account.calls <= 3 * len(ROLES) and time.monotonic() < deadline:
                time.sleep(0.01)
            return note(run_id, seen)

        monkeypatch.setattr(runs.store.judges, "note", slow)
        run_id = await runs.create(spec, script_rows(40))
        await runs.until(run_id, lambda run: run.state == run_pb2.RUN_STATE_PAUSED)
        assert account.calls == 3 * len(ROLES)


async def test_a_run_without_a_judgement_fails_with_the_words_of_the_provider(sqlite_url: str) -> None:
    spec = scripts_spec(policy=RunPolicy(fail_fast_sample_count=0))
    async with runs_with(sqlite_url, *Account().judges()) as runs:
        run = await runs.ended(await runs.create(spec, script_rows(5)))
    assert (run.state, run.outcome) == (run_pb2.RUN_STATE_FAILED, run_pb2.RUN_OUTCOME_NOTHING_JUDGED)
    assert run.state_reason.startswith(
        "nothing was judged: 35 of 35 judgements abstained (CALL_REJECTED 35). The judge 'fake' failed with"
    )
    assert KEY in run.state_reason


async def test_samples_that_all_fail_are_counted_by_reason(sqlite_url: str) -> None:
    rows: list[Any] = script_rows(4)
    for row in rows:
        row.judges.add(role="critic", judge="nobody")
    spec = scripts_spec(policy=RunPolicy(fail_fast_sample_count=0))
    async with runs_with(sqlite_url) as runs:
        run = await runs.ended(await runs.create(spec, rows))
        assert (run.state, run.outcome) == (run_pb2.RUN_STATE_FAILED, run_pb2.RUN_OUTCOME_NOTHING_JUDGED)
        assert run.counts.failures_by_reason == {"JUDGE_UNKNOWN": 4}
        assert "'nobody'" in run.state_reason
        assert runs.store.attempts.begin(run.id, RERUN_SCOPE_FAILED_OR_ABSTAINED) is not None
        assert runs.get(run.id).counts.failures_by_reason == {}


async def test_gold_answers_that_are_missing_make_a_run_partial_until_a_rerun_has_them(
    store_url: str,
) -> None:
    refused = 2

    async def synthesize(request: Any) -> Any:
        nonlocal refused
        if refused:
            refused -= 1
            reason = verdict_pb2.ABSTAIN_REASON_REFUSED
            return SynthesizeResponse(failure="The model declined.", failure_reason=reason)
        return await Fake("synthesize").respond(request)

    async with runs_with(store_url, Fake("synthesize", synthesize)) as runs:
        run = await runs.ended(await runs.create(scripts_spec(), script_rows(10)))
        assert (run.state, run.outcome) == (
            run_pb2.RUN_STATE_PARTIAL,
            run_pb2.RUN_OUTCOME_GOLD_ANSWERS_MISSING,
        )
        assert run.state_reason == (
            "2 of 10 samples were judged without the gold answer that they asked for (REFUSED 2); a share of "
            "0.1 is allowed. The model declined."
        )
        assert run.counts.abstentions == 0
        assert runs.store.attempts.begin(run.id, RERUN_SCOPE_ALL) is not None
        assert not runs.get(run.id).counts.gold_answers.sample_count
        await runs.engine.submit(run.id)
        run = await runs.ended(run.id)
    assert (run.outcome, run.counts.gold_answers.sample_count) == (run_pb2.RUN_OUTCOME_JUDGED, 10)


async def test_samples_that_ask_for_no_gold_answer_miss_none(sqlite_url: str) -> None:
    options = ScriptsRunOptions(gold_answer_source=GOLD_ANSWER_SOURCE_NONE)
    policy = RunPolicy(max_missing_gold_answer_fraction=0)
    async with runs_with(sqlite_url) as runs:
        run = await runs.ended(
            await runs.create(scripts_spec(scripts=options, policy=policy), script_rows(3))
        )
    assert run.outcome == run_pb2.RUN_OUTCOME_JUDGED
    assert not run.counts.gold_answers.ByteSize()
