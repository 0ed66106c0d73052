"""The tables of the store, one layout for SQLite and PostgreSQL.

A run has a number beside its id, which the tables below it refer to: a row of theirs then stays short. What
is written often (``run_samples``, the counts in ``runs``) stands apart from what is long (``run_specs``,
``run_rows``, ``run_outcomes``), so that a change of state never copies a text.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

SCHEMA_VERSION = 2
"""Raised with every change of the tables; ``migrations`` then says how older stores get there."""

metadata = sa.MetaData()

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Moment(sa.TypeDecorator[datetime]):
    """A time in UTC, kept as microseconds since 1970: exact and in order in both databases."""

    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Any) -> int | None:
        """Counts the microseconds."""
        del dialect
        return None if value is None else (value - _EPOCH) // _MICROSECOND

    def process_result_value(self, value: int | None, dialect: Any) -> datetime | None:
        """Tells the time."""
        del dialect
        return None if value is None else _EPOCH + value * _MICROSECOND


class Word(sa.TypeDecorator[str]):
    """A text that a caller chose. PostgreSQL keeps no U+0000: it is kept as U+FFFD, in both databases."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        """Takes out what cannot be kept."""
        del dialect
        return None if value is None else word(value)


def word(text: str) -> str:
    """A text as a column of the type Word keeps it."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


# SQLite numbers rows by itself only in a column of the type INTEGER.
_Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _run(**options: Any) -> sa.Column[int]:
    return sa.Column("run", sa.BigInteger, sa.ForeignKey("runs.number"), primary_key=True, **options)


runs = sa.Table(
    "runs",
    metadata,
    sa.Column("number", _Number, primary_key=True, autoincrement=True),
    sa.Column("id", Word, nullable=False, unique=True),
    sa.Column("tenant", Word, nullable=False),
    sa.Column("request_id", Word),
    # SHA-256 of the spec and content of the request.
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("state", sa.SmallInteger, nullable=False),
    sa.Column("state_reason", Word, nullable=False, default=""),
    sa.Column("attempt", sa.Integer, nullable=False, default=1),
    sa.Column("repeat_offset", sa.Integer, nullable=False, default=0),
    sa.Column("version", Word, nullable=False),
    sa.Column("create_time", Moment, nullable=False),
    sa.Column("update_time", Moment, nullable=False),
    sa.Column("start_time", Moment),
    sa.Column("end_time", Moment),
    # No longer there for anybody; its rows are being deleted.
    sa.Column("deleted", sa.Boolean, nullable=False, default=False),
    # Counts.
    sa.Column("samples", sa.BigInteger, nullable=False, default=0),
    sa.Column("succeeded", sa.BigInteger, nullable=False, default=0),
    sa.Column("failed", sa.BigInteger, nullable=False, default=0),
    sa.Column("judgements", sa.BigInteger, nullable=False, default=0),
    sa.Column("interrupted", sa.BigInteger, nullable=False, default=0),
    # JSON: AbstainReason's name to count.
    sa.Column("abstentions", sa.Text, nullable=False, default="{}"),
    # common.v1.Usage.
    sa.Column("usage", sa.LargeBinary, nullable=False, default=b""),
    # JSON: see ``pace``.
    sa.Column("pace", sa.Text, nullable=False, default="[]"),
    # evaluation.v1.RunTrouble; absent: none. Since version 2.
    sa.Column("trouble", sa.LargeBinary),
    # Events: the cursor of the newest, and of the newest of each kind with its time.
    sa.Column("cursor", sa.BigInteger, nullable=False, default=1),
    sa.Column("state_cursor", sa.BigInteger, nullable=False, default=1),
    sa.Column("state_time", Moment, nullable=False),
    sa.Column("progress_cursor", sa.BigInteger, nullable=False, default=0),
    sa.Column("progress_time", Moment),
    sa.UniqueConstraint("tenant", "request_id"),
    sa.Index("runs_by_age", "tenant", "create_time", "id"),
    sqlite_autoincrement=True,
)
"""The runs and how far they are."""

run_specs = sa.Table(
    "run_specs",
    metadata,
    _run(),
    # evaluation.v1.RunSpec.
    sa.Column("spec", sa.LargeBinary, nullable=False),
    # evaluation.v1.DatasetManifest; absent until the dataset is read.
    sa.Column("manifest", sa.LargeBinary),
    # What the request brought, compressed.
    sa.Column("content", sa.LargeBinary, nullable=False),
)
"""What each run does."""

run_labels = sa.Table(
    "run_labels",
    metadata,
    _run(),
    sa.Column("key", Word, primary_key=True),
    sa.Column("value", Word, nullable=False),
)
"""What runs are found by."""

run_rows = sa.Table(
    "run_rows",
    metadata,
    _run(),
    sa.Column("sample", sa.BigInteger, primary_key=True),
    sa.Column("line", sa.BigInteger, nullable=False),
    sa.Column("sample_id", Word, nullable=False),
    # JSON object.
    sa.Column("tags", sa.Text, nullable=False),
    # The request, compressed; absent where the row is none.
    sa.Column("request", sa.LargeBinary),
)
"""The rows of each run's dataset; never changed."""

run_samples = sa.Table(
    "run_samples",
    metadata,
    _run(),
    sa.Column("sample", sa.BigInteger, primary_key=True),
    sa.Column("state", sa.SmallInteger, nullable=False),
    # Whether its row is a request, so that it can be evaluated anew.
    sa.Column("valid", sa.Boolean, nullable=False),
    # Who has begun it. Absent: nobody.
    sa.Column("executor", Word),
    sa.Column("tries", sa.Integer, nullable=False, default=0),
    sa.Index("run_samples_by_state", "run", "state", "sample"),
    sa.Index(
        "run_samples_begun",
        "run",
        sqlite_where=sa.text("executor IS NOT NULL"),
        postgresql_where=sa.text("executor IS NOT NULL"),
    ),
    sqlite_with_rowid=False,
)
"""Where each sample stands."""

run_outcomes = sa.Table(
    "run_outcomes",
    metadata,
    _run(),
    sa.Column("sample", sa.BigInteger, primary_key=True),
    # evaluation.v1.RunSample, compressed.
    sa.Column("message", sa.LargeBinary, nullable=False),
)
"""The last outcome of each sample that has one."""

run_results = sa.Table(
    "run_results",
    metadata,
    _run(),
    sa.Column("sample", sa.BigInteger, primary_key=True),
    # Its place among the sample's judgements, from 0.
    sa.Column("place", sa.Integer, primary_key=True),
    sa.Column("model", Word, nullable=False),
    sa.Column("candidate", Word, nullable=False),
    sa.Column("measure", Word, nullable=False),
    sa.Column("outcome", sa.SmallInteger, nullable=False),
    sa.Column("reason", sa.SmallInteger, nullable=False),
    sa.Column("value", sa.Double),
    sa.Column("confidence", sa.Double),
    sa.Column("label", Word, nullable=False),
    sa.Column("role", Word, nullable=False),
    sa.Column("judge", Word, nullable=False),
    sqlite_with_rowid=False,
)
"""The numbers of each judgement of the outcomes; its words stand in the outcome."""

run_model_usage = sa.Table(
    "run_model_usage",
    metadata,
    _run(),
    sa.Column("model", Word, primary_key=True),
    # common.v1.Usage.
    sa.Column("usage", sa.LargeBinary, nullable=False),
)
"""What was spent on each model, as far as it can be told apart."""

run_executors = sa.Table(
    "run_executors",
    metadata,
    sa.Column("id", Word, primary_key=True),
    # By the store's clock, in microseconds since 1970.
    sa.Column("expires", sa.BigInteger, nullable=False),
)
"""The leases of the gateways."""

PARTS = (run_model_usage, run_results, run_outcomes, run_samples, run_rows, run_labels, run_specs)
"""The tables that hold rows of a run, in the order in which they can be deleted."""
