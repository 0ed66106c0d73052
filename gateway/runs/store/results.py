"""Judgements in the tables: listed and summed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import sqlalchemy as sa

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.common.v1.verdict_pb2 import OUTCOME_ABSTAIN
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.evaluation.v1.run_service_pb2 import ResultFilter
from dramaturg.database.database import Repository, reading
from dramaturg.results.names import abstention_name
from dramaturg.results.rows import flatten
from gateway.runs.records import ModelSums
from gateway.runs.store import runs
from gateway.runs.store.codec import RESULT_COLUMNS, result_of, unpack_message
from gateway.runs.store.tables import run_model_usage, run_outcomes, run_results, run_rows, run_samples

Key = tuple[int, int]

_PAGE = 500


class Results(Repository):
    """The judgements of runs."""

    @reading
    def page(
        self,
        connection: sa.Connection,
        run_id: str,
        *,
        after: Key,
        limit: int,
        where: ResultFilter | None = None,
        numbers_only: bool = False,
    ) -> Sequence[tuple[Key, RunResult]]:
        """Judgements with their keys (sample index, position within the sample), by key, above ``after``."""
        number = runs.number_of(connection, run_id)
        index, place = after
        mine = run_results.c.run == number
        # Written out: SQLite uses no index for a comparison of pairs with "or" in it.
        above = (run_results.c.sample >= index) & (
            (run_results.c.sample > index) | (run_results.c.place > place)
        )
        query = (
            sa.select(*RESULT_COLUMNS)
            .join_from(
                run_results,
                run_rows,
                (run_rows.c.run == run_results.c.run) & (run_rows.c.sample == run_results.c.sample),
            )
            .where(mine, above, *_conditions(where or ResultFilter()))
            .order_by(run_results.c.sample, run_results.c.place)
            .limit(limit)
        )
        found = [((row.sample, row.place), result_of(row)) for row in connection.execute(query)]
        if not numbers_only and number is not None:
            _add_texts(connection, number, found)
        return found

    def iterate(self, run_id: str, where: ResultFilter | None = None) -> Iterator[RunResult]:
        """All judgements, read in bounded pages."""
        after = (-1, -1)
        while page := self.page(run_id, after=after, limit=_PAGE, where=where):
            yield from (result for _, result in page)
            after = page[-1][0]

    @reading
    def unjudged_sample(
        self, connection: sa.Connection, run_id: str, *, gold_answer: bool = False
    ) -> RunSample | None:
        """A sample with the commonest failure, else the commonest reason of abstentions; None: neither.

        Args:
            connection: That of the transaction.
            run_id: The run.
            gold_answer: Whether it is one with the commonest reason of missing gold answers instead.
        """
        number = runs.number_of(connection, run_id)
        missing = (
            sa.select(sa.func.min(run_samples.c.sample))
            .where(run_samples.c.run == number, run_samples.c.missing_gold_answer != "")
            .group_by(run_samples.c.missing_gold_answer)
        )
        failed = (
            sa.select(sa.func.min(run_samples.c.sample))
            .where(run_samples.c.run == number, run_samples.c.failure.is_not(None))
            .group_by(run_samples.c.failure)
        )
        abstained = (
            sa.select(sa.func.min(run_results.c.sample))
            .where(run_results.c.run == number, run_results.c.outcome == OUTCOME_ABSTAIN)
            .group_by(run_results.c.reason)
        )
        for query in (missing,) if gold_answer else (failed, abstained):
            commonest = query.order_by(sa.func.count().desc()).limit(1)
            index = connection.execute(commonest).scalar_one_or_none()
            if index is not None:
                place = (run_outcomes.c.run == number) & (run_outcomes.c.sample == index)
                message = connection.execute(sa.select(run_outcomes.c.message).where(place)).scalar_one()
                return unpack_message(RunSample, message)
        return None

    @reading
    def model_sums(
        self, connection: sa.Connection, run_id: str, *, together: bool = False
    ) -> Sequence[ModelSums]:
        """Sums for each model and measure, or for each model under the measure "" if ``together``."""
        mine = run_results.c.run == runs.number_of(connection, run_id)
        measure = sa.literal("").label("by") if together else run_results.c.measure.label("by")
        whose = (run_results.c.model,) if together else (run_results.c.model, run_results.c.measure)
        abstentions: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
        counted = (
            sa.select(
                run_results.c.model,
                measure,
                run_results.c.reason,
                sa.func.count().label("abstained"),
            )
            .where(mine, run_results.c.outcome == OUTCOME_ABSTAIN)
            .group_by(*whose, run_results.c.reason)
        )
        for row in connection.execute(counted):
            abstentions[row.model, row.by][abstention_name(row.reason)] = row.abstained
        # The judgements of one sample are one cluster: n_i values with the sum y_i.
        cluster = (
            sa.select(
                run_results.c.model,
                measure,
                sa.func.count().label("all"),
                sa.cast(sa.func.count(run_results.c.value), sa.Double).label("n"),
                sa.func.coalesce(sa.func.sum(run_results.c.value), 0.0).label("y"),
            )
            .where(mine)
            .group_by(*whose, run_results.c.sample)
            .subquery()
        )
        total = sa.func.sum
        query = (
            sa.select(
                cluster.c.model,
                cluster.c.by,
                sa.cast(total(cluster.c.all), sa.BigInteger).label("judgements"),
                total(cluster.c.n).label("judged"),
                total(sa.case((cluster.c.n > 0, 1), else_=0)).label("samples"),
                total(cluster.c.y).label("total"),
                total(cluster.c.n * cluster.c.n).label("squared_counts"),
                total(cluster.c.n * cluster.c.y).label("cross"),
                total(cluster.c.y * cluster.c.y).label("squared_totals"),
            )
            .group_by(cluster.c.model, cluster.c.by)
            .order_by(cluster.c.model, cluster.c.by)
        )
        return [
            ModelSums(
                model=row.model,
                measure=row.by,
                judgements=row.judgements,
                judged=int(row.judged),
                samples=int(row.samples),
                total=row.total,
                squared_counts=row.squared_counts,
                cross=row.cross,
                squared_totals=row.squared_totals,
                abstentions_by_reason=abstentions[row.model, row.by],
            )
            for row in connection.execute(query)
        ]

    @reading
    def model_usage(self, connection: sa.Connection, run_id: str) -> Mapping[str, Usage]:
        """The usage of each model, as far as it can be attributed, reruns included."""
        number = runs.number_of(connection, run_id)
        query = sa.select(run_model_usage.c.model, run_model_usage.c.usage).where(
            run_model_usage.c.run == number
        )
        return {model: Usage.FromString(usage) for model, usage in connection.execute(query)}


def _conditions(where: ResultFilter) -> Iterable[sa.ColumnElement[bool]]:
    wanted = (
        (run_results.c.model, where.models),
        (run_results.c.measure, where.measures),
        (run_results.c.outcome, where.outcomes),
        (run_results.c.reason, where.abstain_reasons),
    )
    conditions: list[sa.ColumnElement[bool]] = [
        column.in_(list(values)) for column, values in wanted if values
    ]
    if where.abstain_reasons:  # of other judgements the column has the failure of the model
        conditions.append(run_results.c.outcome == OUTCOME_ABSTAIN)
    return conditions


def _add_texts(connection: sa.Connection, number: int, found: Sequence[tuple[Key, RunResult]]) -> None:
    """Adds the rationale, findings and provenance, which only the outcomes have."""
    by_sample: dict[int, list[tuple[int, RunResult]]] = defaultdict(list)
    for (index, place), result in found:
        by_sample[index].append((place, result))
    query = sa.select(run_outcomes.c.sample, run_outcomes.c.message).where(
        run_outcomes.c.run == number, run_outcomes.c.sample.in_(list(by_sample))
    )
    for row in connection.execute(query):
        whole = flatten(unpack_message(RunSample, row.message))
        for place, result in by_sample[row.sample]:
            # Another version may have flattened the sample into other rows.
            if place < len(whole) and (whole[place].model, whole[place].measure) == (
                result.model,
                result.measure,
            ):
                _copy_texts(whole[place], result)


def _copy_texts(source: RunResult, target: RunResult) -> None:
    target.rationale = source.rationale
    target.findings.extend(source.findings)
    if source.HasField("provenance"):
        target.provenance.CopyFrom(source.provenance)
