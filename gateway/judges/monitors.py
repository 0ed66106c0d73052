"""Monitors of judges: whether a judge still answers as it did, checked at intervals.

The store holds the state, so a check survives every gateway, and each step is taken once: a gateway changes a
monitor only as it read it. A check is an attempt of the monitor's run, which the run engine executes.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import grpc

from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import PanelVote, Verdict
from dramaturg.api.evaluation.v1.judge_monitor_pb2 import (
    DRIFT_POLICY_PAUSE,
    DRIFT_POLICY_QUARANTINE,
    DriftCheck,
    JudgeMonitor,
)
from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_OUTCOME_JUDGE_CHANGED,
    RUN_STATE_PAUSED,
    RUN_STATE_RUNNING,
    RunSample,
    RunSpec,
)
from dramaturg.api.evaluation.v1.run_service_pb2 import RERUN_SCOPE_ALL
from dramaturg.api.evaluation.v1.scripts_pb2 import CandidateAssessment
from dramaturg.api.identity.v1.identity_service_pb2 import Identity
from dramaturg.results.drift import drift_text
from dramaturg.results.names import outcome_name
from dramaturg.results.run_text import state_name
from dramaturg.service.auth.caller import current, on_behalf_of
from dramaturg.service.errors import ServiceError, Violation, invalid, invalid_fields
from dramaturg.service.telemetry.instruments import Counter
from gateway.judges.drift import MAX_REPEATS, Answer, Answers, least_changed, level_of, measure
from gateway.judges.registrations import JudgeRegistrations
from gateway.judges.registry import Judge, Registry
from gateway.processes.pool import ProcessPool, no_answer
from gateway.processes.process import Ask
from gateway.quotas.gate import Quotas
from gateway.runs.notifications import ChangeNotifier
from gateway.runs.records import ACTIVE, MonitoredJudge, RunRecord
from gateway.runs.service.changes import Engine
from gateway.runs.service.messages import wrong_state
from gateway.runs.service.results import all_samples, reads_store
from gateway.runs.store import RunStore
from gateway.runs.store_calls import not_found

logger = logging.getLogger(__name__)

CHECKS = Counter(
    "dramaturg_judge_drift_checks_total",
    "Checks of monitored judges, by result: unchanged, drifted or failed.",
    ("result",),
)

MAX_ANCHORS = 1000
"""The most candidates of a monitor."""
SHORTEST, LONGEST = timedelta(seconds=60), timedelta(days=366)
"""The intervals between checks."""

_PLATFORM = ""
"""The tenant of callers without one, whose monitors of configured judges all tenants see."""
_RUN_ID = "monitor.run_id"
_RERUN = "/dramaturg.api.evaluation.v1.RunService/RerunSamples"
_EXCLUDED = "its monitor found drift: it returns when it is monitored anew, or no longer"
"""Why a judge is in quarantine; the monitor itself has the figures."""
_PASSING = frozenset(
    {
        verdict_pb2.ABSTAIN_REASON_TIMED_OUT,
        verdict_pb2.ABSTAIN_REASON_JUDGE_UNAVAILABLE,
        verdict_pb2.ABSTAIN_REASON_OVER_BUDGET,
        verdict_pb2.ABSTAIN_REASON_INTERRUPTED,
        verdict_pb2.ABSTAIN_REASON_CALL_REJECTED,
        verdict_pb2.ABSTAIN_REASON_PROVIDER_UNAVAILABLE,
    }
)
"""Reasons of abstentions that say nothing of how the judge judges: an answer with one is left out."""

Monitors = Mapping[tuple[str, str], Sequence[MonitoredJudge]]
"""The monitors that a tenant sees, its own first, by the role and the name of the judge."""


class JudgeMonitors:
    """Begins and ends monitors for the current tenant, and makes the checks of all tenants.

    Args:
        registry: The judges.
        registrations: Has the store.
        processes: Read the answers of whole runs.
    """

    def __init__(self, registry: Registry, registrations: JudgeRegistrations, processes: ProcessPool) -> None:
        self._registry = registry
        self._registrations = registrations
        self._processes = processes

    async def put(self, judge: Judge, monitor: JudgeMonitor) -> None:
        """Begins to monitor a judge. See ``JudgeDirectoryService.MonitorJudge``."""
        store, tenant = self._registrations.persistent(), current().tenant
        if violations := list(_violations(judge, monitor, tenant)):
            raise invalid_fields(violations)
        run = await self._registrations.call(store.runs.get, monitor.run_id, tenant)
        if run is None:
            raise not_found("run", monitor.run_id)
        if run.state in ACTIVE or run.counts.left:
            raise wrong_state(run, "has ended with a result for each sample")
        base = await self._processes.result(
            tenant, no_answer, read_base, run.id, judge.role.name, judge.name, store
        )
        answers = _load(base)
        interval = monitor.interval.ToTimedelta()
        level = level_of(interval)
        size = min(map(len, answers.values()))
        new = JudgeMonitor(
            run_id=run.id,
            drift_policy=monitor.drift_policy,
            anchor_count=len(answers),
            level=level,
            detectable_count=least_changed(size, size, level),
        )
        new.interval.CopyFrom(monitor.interval)
        new.next_check_time.FromDatetime(_now() + interval)
        monitored = MonitoredJudge(tenant, judge.role.name, judge.name, new, await _stated(judge))
        await self._registrations.call(store.monitors.put, monitored, base)
        await self._hold(store)

    async def remove(self, judge: Judge) -> None:
        """Ends the monitoring of a judge."""
        store = self._registrations.persistent()
        await self._registrations.call(store.monitors.remove, current().tenant, judge.role.name, judge.name)
        await self._hold(store)

    async def visible(self) -> Monitors:
        """The monitors that the current tenant sees."""
        if not self._registrations.is_persistent:
            return {}
        every = await self._registrations.call(self._registrations.persistent().monitors.all)
        found: dict[tuple[str, str], list[MonitoredJudge]] = {}
        for tenant in dict.fromkeys((current().tenant, _PLATFORM)):
            for one in every:
                if one.tenant == tenant:
                    found.setdefault((one.role, one.name), []).append(one)
        return found

    @asynccontextmanager
    async def running(
        self, store: RunStore, engine: Engine, notifier: ChangeNotifier, quotas: Quotas
    ) -> AsyncIterator[None]:
        """Makes checks within an ``async with`` block.

        Args:
            store: The run store.
            engine: Executes runs.
            notifier: Notifies on changes of runs.
            quotas: Admit the checks, each as a call of its tenant that begins a run.
        """
        checks = _Checks(
            self._registry, self._registrations, self._processes, store, engine, notifier, quotas
        )

        async def repeat() -> None:
            while True:
                try:
                    await checks.advance(await self._hold(store))
                except ServiceError as error:
                    logger.warning("judges cannot be checked for drift: %s", error)
                await asyncio.sleep(self._registrations.poll_seconds)

        task = asyncio.create_task(repeat())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _hold(self, store: RunStore) -> Sequence[MonitoredJudge]:
        """Keeps in quarantine the judges whose monitors say so; returns the monitors of all tenants."""
        every = await self._registrations.call(store.monitors.all)
        reasons = {
            (one.tenant, one.role, one.name): _EXCLUDED
            for one in every
            if one.monitor.HasField("drift") and one.monitor.drift_policy == DRIFT_POLICY_QUARANTINE
        }
        for judge in self._registry.every():
            key = judge.tenant or _PLATFORM, judge.role.name, judge.name
            judge.quarantine.hold(reasons.get(key, ""))
        return every


class _Checks:
    """The checks of all monitors, one step at a time."""

    def __init__(
        self,
        registry: Registry,
        registrations: JudgeRegistrations,
        processes: ProcessPool,
        store: RunStore,
        engine: Engine,
        notifier: ChangeNotifier,
        quotas: Quotas,
    ) -> None:
        self._registry = registry
        self._call = registrations.call
        self._processes = processes
        self._store = store
        self._engine = engine
        self._notifier = notifier
        self._quotas = quotas

    async def advance(self, every: Sequence[MonitoredJudge]) -> None:
        """Makes the next step of each monitor that has one. One that fails holds up no other."""
        await asyncio.gather(*map(self._step, every))

    async def _step(self, one: MonitoredJudge) -> None:
        try:
            await self._advance(one)
        except ServiceError as error:
            logger.warning("%s=%s cannot be checked for drift: %s", one.role, one.name, error)
        except Exception:
            logger.exception("%s=%s cannot be checked for drift", one.role, one.name)

    async def _advance(self, one: MonitoredJudge) -> None:
        run = await self._call(self._store.runs.get, one.monitor.run_id, one.tenant)
        if run is not None and run.state in ACTIVE:
            if one.attempt and run.state == RUN_STATE_PAUSED:
                await self._tell(one, f"the run is paused; ResumeRun continues it: {run.state_reason}")
        elif not one.attempt:
            await self._begin(one, run)
        elif run is not None and run.attempt < one.attempt:
            await self._rerun(one, run)
        else:
            await self._end(one, await self._compared(one, run))

    async def _begin(self, one: MonitoredJudge, run: RunRecord | None) -> None:
        """Claims a check that is due, or whose judge states something else than before, for the next step."""
        stated, now = await self._stated(one), _now()
        is_due = one.monitor.next_check_time.ToDatetime(UTC) <= now
        if not is_due and stated == one.identity:
            return
        monitor = JudgeMonitor()
        monitor.CopyFrom(one.monitor)
        monitor.next_check_time.FromDatetime(now + monitor.interval.ToTimedelta())
        attempt = 1 if run is None else run.attempt + 1
        await self._call(self._store.monitors.replace, one, replace(one, monitor=monitor, attempt=attempt))

    async def _rerun(self, one: MonitoredJudge, run: RunRecord) -> None:
        try:
            with on_behalf_of(one.tenant):
                # Of a call that begins a run nothing is read of its context.
                async with self._quotas.passing(_RERUN, 1, cast("Any", None)):
                    begun = await self._call(self._store.attempts.begin, run.id, RERUN_SCOPE_ALL, fresh=True)
        except ServiceError as error:
            if error.code is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise
            await self._end(one, DriftCheck(error=error.message))
            return
        if begun is not None:
            self._notifier.notify(begun.id)
            await self._engine.submit(begun.id)

    async def _compared(self, one: MonitoredJudge, run: RunRecord | None) -> DriftCheck:
        """The check that an attempt of the run was."""
        if run is None:
            return DriftCheck(error="the run of the anchors was deleted")
        if run.counts.left:
            state = state_name(run.state)
            return DriftCheck(error=f"the run ended as {state} before its end: {run.state_reason}")
        try:
            found = await self._processes.result(one.tenant, no_answer, check_drift, one, self._store)
        except ServiceError as error:
            return DriftCheck(error=error.message)
        return DriftCheck.FromString(found)

    async def _tell(self, one: MonitoredJudge, error: str) -> None:
        """Lists why a check does not go on."""
        if one.monitor.last_check.error != error:
            told = JudgeMonitor()
            told.CopyFrom(one.monitor)
            told.last_check.CopyFrom(DriftCheck(error=error))
            told.last_check.check_time.FromDatetime(_now())
            await self._call(self._store.monitors.replace, one, replace(one, monitor=told))

    async def _end(self, one: MonitoredJudge, check: DriftCheck) -> None:
        """Records a check, and does what the policy says where it found drift."""
        check.check_time.FromDatetime(_now())
        stated = await self._stated(one)
        check.identity_change = _change(one.identity, stated)
        monitor = JudgeMonitor()
        monitor.CopyFrom(one.monitor)
        monitor.last_check.CopyFrom(check)
        monitor.check_count += not check.error
        first = check.drifted and not monitor.HasField("drift")
        if first:
            monitor.drift.CopyFrom(check)
        ended = replace(one, monitor=monitor, attempt=0, identity=stated)
        if not await self._call(self._store.monitors.replace, one, ended):
            return
        CHECKS.add("failed" if check.error else "drifted" if check.drifted else "unchanged")
        if check.error:
            logger.warning("the check of %s=%s failed: %s", one.role, one.name, check.error)
        if first:
            logger.error("the judge %s=%s %s", one.role, one.name, drift_text(monitor))
            if monitor.drift_policy == DRIFT_POLICY_PAUSE:
                await self._pause(one, drift_text(monitor))

    async def _pause(self, one: MonitoredJudge, reason: str) -> None:
        """Pauses the running runs of the tenant that ask the judge."""
        for run in await self._call(self._store.runs.active):
            if run.tenant == one.tenant and run.id != one.monitor.run_id and self._asks(run.spec, one):
                await self._call(
                    self._store.runs.change_state,
                    run.id,
                    RUN_STATE_PAUSED,
                    expected={RUN_STATE_RUNNING},
                    reason=f"{one.role}={one.name} {reason}",
                    outcome=RUN_OUTCOME_JUDGE_CHANGED,
                )
                self._notifier.notify(run.id)

    def _asks(self, spec: RunSpec, one: MonitoredJudge) -> bool:
        """Whether a run asks the judge: by its name, in a panel, or as the default of its role."""
        named = {each.judge for each in spec.judges if each.role == one.role}
        if not named and (default := self._registry.default(one.role)) is not None:
            named = {default.name}
        panels = (
            each for each in self._of(one.tenant) if each.name in named and each.entry.panel is not None
        )
        members = {member.judge for each in panels for member in each.entry.panel.members}  # type: ignore[union-attr]
        return one.name in named | members

    def _of(self, tenant: str) -> Iterable[Judge]:
        return (each for each in self._registry.every() if each.tenant in {None, tenant})

    async def _stated(self, one: MonitoredJudge) -> str:
        """What a judge states of itself, or stated last where it does not answer."""
        matching = (
            each for each in self._of(one.tenant) if (each.role.name, each.name) == (one.role, one.name)
        )
        judge = next(matching, None)
        return (await _stated(judge) if judge is not None else "") or one.identity


def _violations(judge: Judge, monitor: JudgeMonitor, tenant: str) -> Iterator[Violation]:
    if judge.entry.panel is not None:
        yield Violation("judge", f"is {judge.name!r}, a panel; monitor its members")
    interval = monitor.interval.ToTimedelta()
    if not SHORTEST <= interval <= LONGEST:
        yield Violation("monitor.interval", f"is {interval.total_seconds():g} s, must be 60 s to 366 days")
    if monitor.drift_policy == DRIFT_POLICY_QUARANTINE and judge.tenant is None and tenant != _PLATFORM:
        yield Violation(
            "monitor.drift_policy",
            "is DRIFT_POLICY_QUARANTINE, and the judge is one of the configuration, which other tenants call "
            "too; choose DRIFT_POLICY_PAUSE",
        )


def _now() -> datetime:
    return datetime.now(UTC)


async def _stated(judge: Judge) -> str:
    """What a judge states of itself, as JSON. Empty: it does not answer."""
    identity = await judge.identity.current()
    return "" if identity is None else _identity(identity)


def _identity(identity: Identity) -> str:
    return json.dumps([identity.name, identity.version, dict(sorted(identity.prompts.items()))])


def _change(before: str, now: str) -> str:
    """What differs between two identities, as text. Empty: nothing, or one is not known."""
    if before == now or not (before and now):
        return ""
    (old_name, old_version, old), (name, version, new) = json.loads(before), json.loads(now)
    pairs = (("name", old_name, name), ("version", old_version, version))
    changed = [
        f"{what} {earlier or 'none'}, now {later or 'none'}"
        for what, earlier, later in pairs
        if earlier != later
    ]
    prompts = [f"prompt {one}" for one in sorted({*old, *new}) if old.get(one) != new.get(one)]
    return "; ".join([*changed, *prompts])


@reads_store
def read_base(ask: Ask, run_id: str, role: str, judge: str, store: RunStore) -> Iterator[bytes]:
    """The answers of a judge in a run, as bytes for ``check_drift``.

    Raises:
        ServiceError: INVALID_ARGUMENT: the run cannot be a base.
    """
    del ask
    answers = _read(all_samples(run_id, store), role, judge)
    if not answers:
        raise invalid(_RUN_ID, f"is {run_id!r}, which has no verdicts of {role}={judge} on scripts or texts")
    if len(answers) > MAX_ANCHORS:
        raise invalid(_RUN_ID, f"has {len(answers)} candidates, more than {MAX_ANCHORS}; take fewer")
    fewest, most = (of(map(len, answers.values())) for of in (min, max))
    if fewest < 2 or most > MAX_REPEATS:
        asked = f"{fewest} times" if fewest == most else f"{fewest} to {most} times"
        raise invalid(
            _RUN_ID,
            f"has candidates that {role}={judge} answered for {asked}; options.repeats of the run must be 2 "
            f"to {MAX_REPEATS} (eval --repeats), and answers that failed do not count",
        )
    yield zlib.compress(json.dumps(answers).encode())


def _load(base: bytes) -> Answers:
    answers: Answers = json.loads(zlib.decompress(base))
    return answers


@reads_store
def check_drift(ask: Ask, one: MonitoredJudge, store: RunStore) -> Iterator[bytes]:
    """Compares the answers of the last attempt with the base; yields a DriftCheck.

    Raises:
        ServiceError: FAILED_PRECONDITION: there is nothing to compare.
    """
    del ask
    answers = _read(all_samples(one.monitor.run_id, store), one.role, one.name)
    drift = measure(_load(store.monitors.base(one)), answers, one.monitor.level)
    if not drift.compared:
        raise ServiceError(
            grpc.StatusCode.FAILED_PRECONDITION,
            error_reason_pb2.ERROR_REASON_UNSPECIFIED,
            "no candidate has answers: the judge failed or abstained for a passing reason, or models wrote "
            "the candidates anew",
        )
    yield DriftCheck(
        compared_count=drift.compared,
        changed_count=drift.changed,
        changed_lower=drift.lower,
        changed_upper=drift.upper,
        p_value=drift.p_value,
        drifted=drift.found,
    ).SerializeToString()


def _read(samples: Iterable[RunSample], role: str, judge: str) -> dict[str, Sequence[Answer]]:
    """The answers of a judge to each candidate, by the sample and what is judged."""
    found: dict[str, Sequence[Answer]] = {}
    for sample in samples:
        for judged, assessments in _judged(sample):
            for one in assessments:
                if (one.role, one.judge) == (role, judge) and (answers := _answers(one.assessment.verdicts)):
                    found[f"{sample.index}:{hashlib.sha256(judged).hexdigest()}"] = answers
    return found


def _judged(sample: RunSample) -> Iterator[tuple[bytes, Iterable[CandidateAssessment]]]:
    """The candidates of a sample as they were judged, with their assessments."""
    for candidate in sample.scripts.candidates:
        yield (
            f"{candidate.candidate_id}\n".encode() + candidate.script.SerializeToString(deterministic=True),
            candidate.assessments,
        )
    for text in sample.texts.texts:
        yield f"{text.text_id}\n{text.text}".encode(), text.assessments


def _answers(verdicts: Iterable[Verdict]) -> Sequence[Answer]:
    """The answers of a judge's repeats; those with a passing reason of abstention are left out."""
    votes = {one.criterion: one.votes for one in verdicts if one.votes}
    count = min(map(len, votes.values()), default=0)
    answers = [{criterion: cast[index] for criterion, cast in votes.items()} for index in range(count)]
    return [
        {criterion: _verdict(vote) for criterion, vote in one.items()}
        for one in answers
        if not any(vote.abstain_reason in _PASSING for vote in one.values())
    ]


def _verdict(vote: PanelVote) -> str | float:
    if vote.outcome == verdict_pb2.OUTCOME_SCORED:
        return vote.score
    return outcome_name(vote.outcome)
