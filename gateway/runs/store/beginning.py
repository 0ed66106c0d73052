"""Ended runs begun anew in the tables. Part of somebody's transaction."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

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
    RunSpec,
)
from dramaturg.api.evaluation.v1.run_service_pb2 import RERUN_SCOPE_ALL, RERUN_SCOPE_FAILED, RerunScope
from gateway.runs.records import ACTIVE, RunRecord
from gateway.runs.store import pace, runs
from gateway.runs.store.codec import dump_words, reason_name
from gateway.runs.store.database import was_tried
from gateway.runs.store.tables import run_results, run_samples, run_specs

_LASTING = (ABSTAIN_REASON_NOT_SUPPORTED, ABSTAIN_REASON_NOT_APPLICABLE)
"""Reasons that another try cannot change."""


def begin_again(
    connection: sa.Connection,
    clock: int,
    run_id: str,
    scope: RerunScope.ValueType,
    spec: RunSpec | None,
    *,
    fresh: bool,
) -> RunRecord | None:
    """See ``RunStore.begin_again``."""
    run = runs.lock(connection, run_id)
    if run is None:
        return None
    if run.state in ACTIVE:
        return runs.required(connection, run_id) if was_tried(connection) and run.attempt > 1 else None
    chosen = _in_scope(run.number, scope)
    counts = _without(connection, run, chosen)
    begun = run_samples.update().where(chosen)
    connection.execute(begun.values(state=SAMPLE_STATE_PENDING, executor=None, tries=0))
    runs.change(
        connection,
        run.number,
        state=RUN_STATE_RUNNING if _is_read(connection, run.number) else RUN_STATE_PREPARING,
        state_reason="",
        attempt=run.attempt + 1,
        repeat_offset=run.repeat_offset + int(fresh),
        end_time=None,
        trouble=None,
        pace=pace.begin(clock, counts["succeeded"] + counts["failed"]),
        **counts,
        **runs.state_event(run),
    )
    if spec is not None:
        runs.replace_spec(connection, run.number, spec)
    return runs.required(connection, run_id)


def _is_read(connection: sa.Connection, number: int) -> bool:
    """Whether the dataset was read to its end: only then it has a hash."""
    manifest = connection.execute(
        sa.select(run_specs.c.manifest).where(run_specs.c.run == number)
    ).scalar_one()
    return bool(DatasetManifest.FromString(manifest or b"").sha256)


def _in_scope(number: int, scope: RerunScope.ValueType) -> sa.ColumnElement[bool]:
    """Which samples are for the scope. A row that is no request cannot be evaluated, so it never is."""
    mine = (run_samples.c.run == number) & run_samples.c.valid
    if scope == RERUN_SCOPE_ALL:
        return mine
    without_result = run_samples.c.state != SAMPLE_STATE_SUCCEEDED
    if scope == RERUN_SCOPE_FAILED:
        return mine & without_result
    abstained = sa.select(run_results.c.sample).where(
        run_results.c.run == number,
        run_results.c.outcome == OUTCOME_ABSTAIN,
        run_results.c.reason.not_in(_LASTING),
    )
    return mine & (without_result | run_samples.c.sample.in_(abstained))


def _without(
    connection: sa.Connection, run: sa.Row[*tuple[Any, ...]], chosen: sa.ColumnElement[bool]
) -> Mapping[str, Any]:
    """The counts of the run as if those samples had not been done."""
    by_state = (
        sa.select(run_samples.c.state, sa.func.count().label("samples"))
        .where(chosen)
        .group_by(run_samples.c.state)
    )
    states = Counter({row.state: row.samples for row in connection.execute(by_state)})
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
            reasons[reason_name(row.reason)] -= row.judgements
    return {
        "succeeded": run.succeeded - states[SAMPLE_STATE_SUCCEEDED],
        "failed": run.failed - states[SAMPLE_STATE_FAILED],
        "judgements": run.judgements - sum(row.judgements for row in judged),
        "abstentions": dump_words(+reasons),
    }
