"""What comes of samples in the tables: outcomes, and the counts with them. Part of somebody's transaction."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

import sqlalchemy as sa

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.evaluation.v1.run_pb2 import (
    SAMPLE_STATE_FAILED,
    SAMPLE_STATE_PENDING,
    SAMPLE_STATE_SUCCEEDED,
    RunSample,
)
from dramaturg.judge.usage import add_usage, total_usage
from gateway.runs.records import SampleOutcome
from gateway.runs.results.spending import usage_by_model
from gateway.runs.store import pace, runs, samples
from gateway.runs.store.codec import dump_words, is_abstention, pack_message, reason_name, result_row
from gateway.runs.store.inserting import insert
from gateway.runs.store.tables import run_model_usage, run_outcomes, run_results, run_samples


def finish(
    connection: sa.Connection, clock: int, run_id: str, attempt: int, outcomes: Sequence[SampleOutcome]
) -> None:
    """See ``RunStore.finish_samples``."""
    run = runs.lock(connection, run_id)
    if run is None or run.attempt != attempt:
        return
    done = _still_pending(connection, run.number, outcomes)
    if not done:
        return
    if attempt > 1:  # in the first one nothing came of a sample before
        _forget(connection, run.number, done)
    judgements = _keep(connection, run.number, done)
    succeeded = sum(outcome.sample.state == SAMPLE_STATE_SUCCEEDED for outcome in done)
    reasons = Counter(json.loads(run.abstentions))
    reasons.update(
        reason_name(result.abstain_reason)
        for outcome in done
        for result in outcome.results
        if is_abstention(result)
    )
    usage = total_usage([Usage.FromString(run.usage), *(outcome.usage for outcome in done)])
    _spend(connection, run.number, [outcome.sample for outcome in done])
    goes_on = any(outcome.sample.state == SAMPLE_STATE_SUCCEEDED and not outcome.hindered for outcome in done)
    runs.change(
        connection,
        run.number,
        succeeded=run.succeeded + succeeded,
        failed=run.failed + len(done) - succeeded,
        judgements=run.judgements + judgements,
        abstentions=dump_words(reasons),
        usage=usage.SerializeToString(),
        pace=pace.add(run.pace, clock, run.succeeded + run.failed + len(done)),
        trouble=None if goes_on else run.trouble,
        **runs.progress_event(run),
    )


def _still_pending(
    connection: sa.Connection, number: int, outcomes: Sequence[SampleOutcome]
) -> Sequence[SampleOutcome]:
    by_index = {outcome.sample.index: outcome for outcome in outcomes}
    query = sa.select(run_samples.c.sample).where(
        samples.among(number, list(by_index)), run_samples.c.state == SAMPLE_STATE_PENDING
    )
    return [by_index[index] for index in connection.execute(query).scalars()]


def _forget(connection: sa.Connection, number: int, done: Sequence[SampleOutcome]) -> None:
    """Deletes what came of samples in an earlier attempt."""
    indices = [outcome.sample.index for outcome in done]
    for table in (run_outcomes, run_results):
        connection.execute(table.delete().where(table.c.run == number, table.c.sample.in_(indices)))


def _keep(connection: sa.Connection, number: int, done: Sequence[SampleOutcome]) -> int:
    """Keeps outcomes; returns how many judgements they have."""
    kept = [(number, outcome.sample.index, pack_message(outcome.sample)) for outcome in done]
    insert(connection, run_outcomes, kept)
    rows = [result_row(number, place, result) for one in done for place, result in enumerate(one.results)]
    insert(connection, run_results, rows)
    for state in (SAMPLE_STATE_SUCCEEDED, SAMPLE_STATE_FAILED):
        of_state = [outcome.sample.index for outcome in done if outcome.sample.state == state]
        if of_state:
            here = run_samples.update().where(samples.among(number, of_state))
            connection.execute(here.values(state=state, executor=None))
    return len(rows)


def _spend(connection: sa.Connection, number: int, done: Sequence[RunSample]) -> None:
    """Adds what samples cost to what was spent on each model."""
    for model, usage in usage_by_model(done).items():
        here = (run_model_usage.c.run == number) & (run_model_usage.c.model == model)
        kept = connection.execute(sa.select(run_model_usage.c.usage).where(here)).scalar_one_or_none()
        total = add_usage(Usage.FromString(kept or b""), usage).SerializeToString()
        if kept is None:
            connection.execute(run_model_usage.insert().values(run=number, model=model, usage=total))
        else:
            connection.execute(run_model_usage.update().where(here).values(usage=total))
