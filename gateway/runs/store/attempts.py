"""Outcomes of samples, new attempts and what tenants spend by day, in the tables.

An amount that is spent counts on the day (UTC, by the clock of the store) on which it is added, whenever its
run was created, and stays when the run is deleted.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.common.v1.verdict_pb2 import (
    ABSTAIN_REASON_NOT_APPLICABLE,
    ABSTAIN_REASON_NOT_SUPPORTED,
    OUTCOME_ABSTAIN,
)
from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_STATE_PREPARING,
    RUN_STATE_RUNNING,
    SAMPLE_STATE_FAILED,
    SAMPLE_STATE_PENDING,
    SAMPLE_STATE_SUCCEEDED,
    DatasetManifest,
    RunSample,
    RunSpec,
)
from dramaturg.api.evaluation.v1.run_service_pb2 import RERUN_SCOPE_ALL, RERUN_SCOPE_FAILED, RerunScope
from dramaturg.api.evaluation.v1.scripts_pb2 import GoldAnswerFigures
from dramaturg.database.database import Repository, insert, reading, writing
from dramaturg.judge.provenance import add_usage, total_usage
from dramaturg.results.coverage import failure_name
from dramaturg.results.gold_answers import count, missing_reason
from dramaturg.results.names import abstention_name
from gateway.evaluations.kinds import result_kind
from gateway.runs.records import ACTIVE, RunRecord, SampleOutcome, Spending
from gateway.runs.store import runs, samples, throughput
from gateway.runs.store.codec import dump_json, is_abstention, pack_message, result_row
from gateway.runs.store.tables import (
    run_model_usage,
    run_outcomes,
    run_results,
    run_samples,
    run_specs,
    run_spending,
)


def usage_by_model(samples: Iterable[RunSample]) -> Mapping[str, Usage]:
    """The usage of samples for each model.

    Excludes usage that models share: gold answers, roles, comparisons.
    """
    spent: dict[str, list[Usage]] = {}
    for sample in samples:
        if (kind := result_kind(sample)) is None:
            continue
        for model, provenance in kind.model_provenances(getattr(sample, kind.results.name)):
            spent.setdefault(model, []).append(provenance.usage)
    return {model: total_usage(usages) for model, usages in spent.items()}


_DAY_MICROSECONDS = 24 * 3600 * 1_000_000
_PERMANENT = (ABSTAIN_REASON_NOT_SUPPORTED, ABSTAIN_REASON_NOT_APPLICABLE)
"""Reasons of abstentions that a rerun cannot change."""


def add(connection: sa.Connection, clock: int, tenant: str, spent: Spending) -> None:
    """Adds to what a tenant spent on the day of ``clock``, in a transaction."""
    if spent == Spending():
        return
    day = clock // _DAY_MICROSECONDS
    connection.execute(
        _adding(connection.dialect.name),
        {"tenant": tenant, "day": day, "tokens": spent.tokens, "usd": spent.usd},
    )


@cache
def _adding(dialect: str) -> Any:
    new = (postgresql.insert if dialect == "postgresql" else sqlite.insert)(run_spending)
    added = {name: run_spending.c[name] + new.excluded[name] for name in ("tokens", "usd")}
    return new.on_conflict_do_update(index_elements=["tenant", "day"], set_=added)


class TenantSpending(Repository):
    """What each tenant spent on each day."""

    @writing
    def add(self, connection: sa.Connection, tenant: str, spent: Spending) -> None:
        """Adds an amount outside of runs to what a tenant spent today (UTC, by the clock of the store)."""
        add(connection, self._database.now(connection), tenant, spent)

    @reading
    def today(self, connection: sa.Connection, tenant: str) -> Spending:
        """What a tenant spent today through runs and outside of them."""
        clock = self._database.now(connection)
        query = sa.select(run_spending.c.tokens, run_spending.c.usd).where(
            run_spending.c.tenant == tenant, run_spending.c.day == clock // _DAY_MICROSECONDS
        )
        row = connection.execute(query).one_or_none()
        return Spending() if row is None else Spending(row.tokens, row.usd)


class Attempts(Repository):
    """The outcomes of samples, and the attempts of runs that they belong to."""

    @writing
    def finish(
        self, connection: sa.Connection, run_id: str, attempt: int, outcomes: Sequence[SampleOutcome]
    ) -> bool:
        """Stores the outcomes of samples; returns False if the run is gone or in another attempt.

        Replaces their earlier outcomes, updates the counts and the spending of the tenant, and records a
        "progress" event. Drops outcomes of another attempt than the current one, and of samples that are done
        in it, so that nothing counts twice.
        """
        clock = self._database.now(connection)
        run = runs.lock(connection, run_id)
        if run is None or run.attempt != attempt:
            return False
        done = _still_pending(connection, run.number, outcomes)
        if not done:
            return True
        if attempt > 1:  # the first attempt replaces nothing
            _delete_outcomes(connection, run.number, done)
        judgements = _store_outcomes(connection, run.number, done)
        succeeded = sum(outcome.sample.state == SAMPLE_STATE_SUCCEEDED for outcome in done)
        failures = Counter(json.loads(run.failures))
        failures.update(_failures(done).values())
        reasons = Counter(json.loads(run.abstentions))
        reasons.update(
            abstention_name(result.abstain_reason)
            for outcome in done
            for result in outcome.results
            if is_abstention(result)
        )
        gold_answers = GoldAnswerFigures.FromString(run.gold_answers or b"")
        for outcome in done:
            count(gold_answers, missing_reason(outcome.sample.scripts))
        spent = total_usage([outcome.usage for outcome in done])
        _add_model_usage(connection, run.number, [outcome.sample for outcome in done])
        recovers = any(
            outcome.sample.state == SAMPLE_STATE_SUCCEEDED and not outcome.degraded for outcome in done
        )
        runs.change(
            connection,
            run.number,
            succeeded=run.succeeded + succeeded,
            failed=run.failed + len(done) - succeeded,
            failures=dump_json(failures),
            judgements=run.judgements + judgements,
            abstentions=dump_json(reasons),
            usage=add_usage(Usage.FromString(run.usage), spent).SerializeToString(),
            gold_answers=gold_answers.SerializeToString(),
            throughput=throughput.add(run.throughput, clock, run.succeeded + run.failed + len(done)),
            incident=None if recovers else run.incident,
            **runs.progress_event(run),
        )
        # Last: the row of a tenant is shared by all of its runs.
        add(connection, clock, run.tenant, Spending.of(spent))
        return True

    @writing
    def add_usage(self, connection: sa.Connection, run_id: str, tenant: str, usage: Usage) -> None:
        """Adds the usage of samples without an outcome to a run, if any, and to a tenant's spending."""
        clock = self._database.now(connection)
        run = runs.lock(connection, run_id)
        if run is not None:
            total = add_usage(Usage.FromString(run.usage), usage)
            runs.change(connection, run.number, usage=total.SerializeToString(), **runs.progress_event(run))
        add(connection, clock, tenant, Spending.of(usage))

    @writing
    def begin(
        self,
        connection: sa.Connection,
        run_id: str,
        scope: RerunScope.ValueType,
        *,
        spec: RunSpec | None = None,
        fresh: bool = False,
    ) -> RunRecord | None:
        """Begins a new attempt of an ended run, in which the samples of the scope are pending.

        The run becomes RUNNING, or PREPARING if its dataset was not read to the end. The counts exclude the
        samples of the scope; the usage is kept. Their outcomes are listed until they are replaced. Invalid
        rows stay failed.

        Args:
            connection: That of the transaction.
            run_id: The run.
            scope: The samples.
            spec: The new spec. Absent: unchanged.
            fresh: Whether the repeat offset is raised.

        Returns:
            The run after the change; None if it has not ended, and nothing was changed.
        """
        clock = self._database.now(connection)
        run = runs.lock(connection, run_id)
        if run is None or run.state in ACTIVE:
            return None
        chosen = _in_scope(run.number, scope)
        counts = _counts_without(connection, run, chosen)
        reset = run_samples.update().where(chosen)
        pending = {"state": SAMPLE_STATE_PENDING, "executor": None, "crashes": 0, "due": None, "waits": 0}
        connection.execute(reset.values(**pending, failure=None, missing_gold_answer=None))
        runs.change(
            connection,
            run.number,
            state=RUN_STATE_RUNNING if _is_prepared(connection, run.number) else RUN_STATE_PREPARING,
            state_reason="",
            outcome=0,
            attempt=run.attempt + 1,
            repeat_offset=run.repeat_offset + int(fresh),
            end_time=None,
            incident=None,
            throughput=throughput.start(clock, counts["succeeded"] + counts["failed"]),
            **counts,
            **runs.state_event(run),
        )
        if spec is not None:
            runs.replace_spec(connection, run.number, spec)
        return runs.required(connection, run_id)


def _still_pending(
    connection: sa.Connection, number: int, outcomes: Sequence[SampleOutcome]
) -> Sequence[SampleOutcome]:
    by_index = {outcome.sample.index: outcome for outcome in outcomes}
    query = sa.select(run_samples.c.sample).where(
        samples.among(number, list(by_index)), run_samples.c.state == SAMPLE_STATE_PENDING
    )
    return [by_index[index] for index in connection.execute(query).scalars()]


def _delete_outcomes(connection: sa.Connection, number: int, done: Sequence[SampleOutcome]) -> None:
    """Deletes the outcomes of samples in an earlier attempt."""
    indices = [outcome.sample.index for outcome in done]
    for table in (run_outcomes, run_results):
        connection.execute(table.delete().where(table.c.run == number, table.c.sample.in_(indices)))


def _store_outcomes(connection: sa.Connection, number: int, done: Sequence[SampleOutcome]) -> int:
    """Stores outcomes; returns the number of their judgements."""
    messages = [(number, outcome.sample.index, pack_message(outcome.sample)) for outcome in done]
    insert(connection, run_outcomes, messages)
    rows = [result_row(number, place, result) for one in done for place, result in enumerate(one.results)]
    insert(connection, run_results, rows)
    indices = defaultdict[tuple[int, str | None, str | None], list[int]](list)
    failures = _failures(done)
    for outcome in done:
        index = outcome.sample.index
        missing = missing_reason(outcome.sample.scripts)
        indices[outcome.sample.state, failures.get(index), missing].append(index)
    for (state, failure, missing), group in indices.items():
        ended = run_samples.update().where(samples.among(number, group))
        values = {"state": state, "executor": None, "failure": failure, "missing_gold_answer": missing}
        connection.execute(ended.values(values))
    return len(rows)


def _failures(done: Sequence[SampleOutcome]) -> Mapping[int, str]:
    """The reasons of failed samples, by index."""
    return {
        outcome.sample.index: failure_name(outcome.sample.error)
        for outcome in done
        if outcome.sample.state == SAMPLE_STATE_FAILED
    }


def _add_model_usage(connection: sa.Connection, number: int, done: Sequence[RunSample]) -> None:
    for model, usage in usage_by_model(done).items():
        row = (run_model_usage.c.run == number) & (run_model_usage.c.model == model)
        stored = connection.execute(sa.select(run_model_usage.c.usage).where(row)).scalar_one_or_none()
        total = add_usage(Usage.FromString(stored or b""), usage).SerializeToString()
        if stored is None:
            connection.execute(run_model_usage.insert().values(run=number, model=model, usage=total))
        else:
            connection.execute(run_model_usage.update().where(row).values(usage=total))


def _is_prepared(connection: sa.Connection, number: int) -> bool:
    """Whether the dataset was read to its end: only then has its manifest a hash."""
    manifest = connection.execute(
        sa.select(run_specs.c.manifest).where(run_specs.c.run == number)
    ).scalar_one()
    return bool(DatasetManifest.FromString(manifest or b"").sha256)


def _in_scope(number: int, scope: RerunScope.ValueType) -> sa.ColumnElement[bool]:
    """Selects the samples of a scope. Invalid rows cannot be evaluated and are in none."""
    mine = (run_samples.c.run == number) & run_samples.c.valid
    if scope == RERUN_SCOPE_ALL:
        return mine
    without_result = run_samples.c.state != SAMPLE_STATE_SUCCEEDED
    if scope == RERUN_SCOPE_FAILED:
        return mine & without_result
    abstained = sa.select(run_results.c.sample).where(
        run_results.c.run == number,
        run_results.c.outcome == OUTCOME_ABSTAIN,
        run_results.c.reason.not_in(_PERMANENT),
    )
    return mine & (without_result | run_samples.c.sample.in_(abstained))


def _counts_without(
    connection: sa.Connection, run: sa.Row[*tuple[Any, ...]], chosen: sa.ColumnElement[bool]
) -> Mapping[str, Any]:
    """The counts of a run without the chosen samples."""
    by_state = (
        sa.select(run_samples.c.state, sa.func.count().label("samples"))
        .where(chosen)
        .group_by(run_samples.c.state)
    )
    states = Counter({row.state: row.samples for row in connection.execute(by_state)})
    by_failure = (
        sa.select(run_samples.c.failure, sa.func.count().label("samples"))
        .where(chosen, run_samples.c.failure.is_not(None))
        .group_by(run_samples.c.failure)
    )
    failures = Counter(json.loads(run.failures))
    failures.subtract({row.failure: row.samples for row in connection.execute(by_failure)})
    gold_answers = GoldAnswerFigures.FromString(run.gold_answers or b"")
    by_gold_answer = (
        sa.select(run_samples.c.missing_gold_answer, sa.func.count().label("samples"))
        .where(chosen)
        .group_by(run_samples.c.missing_gold_answer)
    )
    for row in connection.execute(by_gold_answer):
        count(gold_answers, row.missing_gold_answer, -row.samples)
    done = sa.select(run_samples.c.sample).where(chosen, run_samples.c.state == SAMPLE_STATE_SUCCEEDED)
    by_reason = (
        sa.select(run_results.c.outcome, run_results.c.reason, sa.func.count().label("judgements"))
        .where(run_results.c.run == run.number, run_results.c.sample.in_(done))
        .group_by(run_results.c.outcome, run_results.c.reason)
    )
    judged = connection.execute(by_reason).all()
    reasons = Counter(json.loads(run.abstentions))
    for row in judged:
        if row.outcome == OUTCOME_ABSTAIN:
            reasons[abstention_name(row.reason)] -= row.judgements
    return {
        "succeeded": run.succeeded - states[SAMPLE_STATE_SUCCEEDED],
        "failed": run.failed - states[SAMPLE_STATE_FAILED],
        "failures": dump_json(+failures),
        "judgements": run.judgements - sum(row.judgements for row in judged),
        "abstentions": dump_json(+reasons),
        "gold_answers": gold_answers.SerializeToString(),
    }
