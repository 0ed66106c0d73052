"""The tables of the store, one layout for SQLite and PostgreSQL.

Other tables refer to a run by its number, which keeps their rows short. Data that changes often
(``run_samples``, the counts in ``runs``) is separate from long data (``run_specs``, ``run_rows``,
``run_outcomes``), so that a change of state copies no text.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_RUNNING
from dramaturg.database.database import metadata
from dramaturg.database.migrations import Schema

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class UtcTimestamp(sa.TypeDecorator[datetime]):
    """A time in UTC, stored as microseconds since 1970: exact and ordered in both databases."""

    impl = sa.BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Any) -> int | None:
        del dialect
        return None if value is None else (value - _EPOCH) // _MICROSECOND

    def process_result_value(self, value: int | None, dialect: Any) -> datetime | None:
        del dialect
        return None if value is None else time_of(value)


def time_of(clock: int) -> datetime:
    """The time in UTC of a clock in microseconds since 1970."""
    return _EPOCH + clock * _MICROSECOND


class SanitizedText(sa.TypeDecorator[str]):
    """A text of a caller. PostgreSQL stores no U+0000: both databases store U+FFFD instead."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        del dialect
        return None if value is None else sanitize(value)


def sanitize(text: str) -> str:
    """A text as a column of type SanitizedText stores it."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


# SQLite numbers rows only in a column of type INTEGER.
_Number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _run(**options: Any) -> sa.Column[int]:
    return sa.Column("run", sa.BigInteger, sa.ForeignKey("runs.number"), primary_key=True, **options)


runs = sa.Table(
    "runs",
    metadata,
    sa.Column("number", _Number, primary_key=True, autoincrement=True),
    sa.Column("id", SanitizedText, nullable=False, unique=True),
    sa.Column("tenant", SanitizedText, nullable=False),
    sa.Column("request_id", SanitizedText),
    # SHA-256 of the spec and content of the request.
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("state", sa.SmallInteger, nullable=False),
    sa.Column("state_reason", SanitizedText, nullable=False, default=""),
    sa.Column("outcome", sa.SmallInteger, nullable=False, default=0),
    sa.Column("attempt", sa.Integer, nullable=False, default=1),
    sa.Column("repeat_offset", sa.Integer, nullable=False, default=0),
    sa.Column("version", SanitizedText, nullable=False),
    # The principal that created it.
    sa.Column("creator", SanitizedText, nullable=False, default="", server_default=""),
    sa.Column("create_time", UtcTimestamp, nullable=False),
    sa.Column("update_time", UtcTimestamp, nullable=False),
    sa.Column("start_time", UtcTimestamp),
    sa.Column("end_time", UtcTimestamp),
    # Hidden from all methods; its rows are being deleted.
    sa.Column("deleted", sa.Boolean, nullable=False, default=False),
    # How often the dataset was begun to be read since the last row was added.
    sa.Column("preparations", sa.Integer, nullable=False, default=0, server_default="0"),
    # Counts.
    sa.Column("samples", sa.BigInteger, nullable=False, default=0),
    sa.Column("succeeded", sa.BigInteger, nullable=False, default=0),
    sa.Column("failed", sa.BigInteger, nullable=False, default=0),
    sa.Column("judgements", sa.BigInteger, nullable=False, default=0),
    sa.Column("interrupted", sa.BigInteger, nullable=False, default=0),
    # JSON: count by name of AbstainReason.
    sa.Column("abstentions", sa.Text, nullable=False, default="{}"),
    # JSON: count by reason of failed samples, see ``dramaturg.results.coverage.failure_name``.
    sa.Column("failures", sa.Text, nullable=False, default="{}"),
    # common.v1.Usage.
    sa.Column("usage", sa.LargeBinary, nullable=False, default=b""),
    # evaluation.v1.GoldAnswerFigures; absent: none.
    sa.Column("gold_answers", sa.LargeBinary),
    # JSON: see ``throughput``.
    sa.Column("throughput", sa.Text, nullable=False, default="[]"),
    # evaluation.v1.RunIncident; absent: none.
    sa.Column("incident", sa.LargeBinary),
    # Events: the cursor of the newest, and of the newest of each kind with its time.
    sa.Column("cursor", sa.BigInteger, nullable=False, default=1),
    sa.Column("state_cursor", sa.BigInteger, nullable=False, default=1),
    sa.Column("state_time", UtcTimestamp, nullable=False),
    sa.Column("progress_cursor", sa.BigInteger, nullable=False, default=0),
    sa.Column("progress_time", UtcTimestamp),
    sa.UniqueConstraint("tenant", "request_id"),
    sa.Index("runs_by_age", "tenant", "create_time", "id"),
    sqlite_autoincrement=True,
)
"""The runs and their progress."""

# The runs whose rows are to be deleted.
sa.Index("runs_deleted", runs.c.number, sqlite_where=runs.c.deleted, postgresql_where=runs.c.deleted)

run_specs = sa.Table(
    "run_specs",
    metadata,
    _run(),
    # evaluation.v1.RunSpec.
    sa.Column("spec", sa.LargeBinary, nullable=False),
    # evaluation.v1.DatasetManifest; absent until the dataset is read.
    sa.Column("manifest", sa.LargeBinary),
    # The rows of the request, compressed.
    sa.Column("content", sa.LargeBinary, nullable=False),
)
"""The spec and dataset of each run."""

run_labels = sa.Table(
    "run_labels",
    metadata,
    _run(),
    sa.Column("key", SanitizedText, primary_key=True),
    sa.Column("value", SanitizedText, nullable=False),
)
"""The labels of runs."""

run_rows = sa.Table(
    "run_rows",
    metadata,
    _run(),
    sa.Column("sample", sa.BigInteger, primary_key=True),
    sa.Column("line", sa.BigInteger, nullable=False),
    sa.Column("sample_id", SanitizedText, nullable=False),
    # JSON object.
    sa.Column("tags", sa.Text, nullable=False),
    # The request, compressed; absent if the row is invalid.
    sa.Column("request", sa.LargeBinary),
)
"""The rows of each dataset. They never change."""

run_samples = sa.Table(
    "run_samples",
    metadata,
    _run(),
    sa.Column("sample", sa.BigInteger, primary_key=True),
    sa.Column("state", sa.SmallInteger, nullable=False),
    # Whether its row is a valid request.
    sa.Column("valid", sa.Boolean, nullable=False),
    # The gateway that started it. Absent: none.
    sa.Column("executor", SanitizedText),
    sa.Column("crashes", sa.Integer, nullable=False, default=0),
    # The reason of a failed sample, as counted in runs.failures. Absent: it did not fail.
    sa.Column("failure", sa.Text),
    # Why it was judged without a gold answer, as ``dramaturg.results.gold_answers.missing_reason`` says.
    sa.Column("missing_gold_answer", sa.Text),
    # When a sample whose model calls wait for batches is evaluated again. Absent: it does not wait.
    sa.Column("due", UtcTimestamp),
    # How often in a row it was found waiting.
    sa.Column("waits", sa.Integer, nullable=False, default=0, server_default="0"),
    sa.Index("run_samples_by_state", "run", "state", "sample"),
    sa.Index(
        "run_samples_begun",
        "run",
        sqlite_where=sa.text("executor IS NOT NULL"),
        postgresql_where=sa.text("executor IS NOT NULL"),
    ),
    sqlite_with_rowid=False,
)
"""The state of each sample."""

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
    # Its position among the judgements of the sample, from 0.
    sa.Column("place", sa.Integer, primary_key=True),
    sa.Column("model", SanitizedText, nullable=False),
    sa.Column("candidate", SanitizedText, nullable=False),
    sa.Column("measure", SanitizedText, nullable=False),
    sa.Column("outcome", sa.SmallInteger, nullable=False),
    # The reason of an abstention; of other judgements the failure of the model (RunResult.failure_reason).
    sa.Column("reason", sa.SmallInteger, nullable=False),
    sa.Column("value", sa.Double),
    sa.Column("confidence", sa.Double),
    sa.Column("measured_confidence", sa.Double),
    sa.Column("label", SanitizedText, nullable=False),
    sa.Column("role", SanitizedText, nullable=False),
    sa.Column("judge", SanitizedText, nullable=False),
    sqlite_with_rowid=False,
)
"""The judgements of the outcomes without their texts, which only the outcome has."""

run_model_usage = sa.Table(
    "run_model_usage",
    metadata,
    _run(),
    sa.Column("model", SanitizedText, primary_key=True),
    # common.v1.Usage.
    sa.Column("usage", sa.LargeBinary, nullable=False),
)
"""The usage of each model, as far as it can be attributed."""

run_spending = sa.Table(
    "run_spending",
    metadata,
    sa.Column("tenant", SanitizedText, primary_key=True),
    # Days since 1970, UTC.
    sa.Column("day", sa.Integer, primary_key=True),
    sa.Column("tokens", sa.BigInteger, nullable=False),
    sa.Column("usd", sa.Double, nullable=False),
)
"""What each tenant spent on each day, through runs and evaluations."""

judges = sa.Table(
    "judges",
    metadata,
    sa.Column("tenant", SanitizedText, primary_key=True),
    sa.Column("role", SanitizedText, primary_key=True),
    sa.Column("name", SanitizedText, primary_key=True),
    # evaluation.v1.JudgeRegistration.
    sa.Column("registration", sa.LargeBinary, nullable=False),
    sa.Column("revision", sa.BigInteger, nullable=False),
)
"""The judges that tenants registered."""

judge_certificates = sa.Table(
    "judge_certificates",
    metadata,
    sa.Column("tenant", SanitizedText, primary_key=True),
    sa.Column("role", SanitizedText, primary_key=True),
    sa.Column("name", SanitizedText, primary_key=True),
    # evaluation.v1.JudgeCertificate.
    sa.Column("certificate", sa.LargeBinary, nullable=False),
)
"""The certificates of judges, by the tenant that stored them."""

judge_monitors = sa.Table(
    "judge_monitors",
    metadata,
    sa.Column("tenant", SanitizedText, primary_key=True),
    sa.Column("role", SanitizedText, primary_key=True),
    sa.Column("name", SanitizedText, primary_key=True),
    # evaluation.v1.JudgeMonitor.
    sa.Column("monitor", sa.LargeBinary, nullable=False),
    # The answers to compare with, see ``gateway.judges.monitors``.
    sa.Column("base", sa.LargeBinary, nullable=False),
    # JSON: what the judge stated of itself at the last check.
    sa.Column("identity", SanitizedText, nullable=False),
    # The attempt of the run that a check in progress compares. 0: no check is in progress.
    sa.Column("attempt", sa.Integer, nullable=False),
    # Raised with each change.
    sa.Column("revision", sa.BigInteger, nullable=False),
)
"""The monitors of judges, by the tenant that made them."""

run_executors = sa.Table(
    "run_executors",
    metadata,
    sa.Column("id", SanitizedText, primary_key=True),
    # By the clock of the store, in microseconds since 1970.
    sa.Column("expires", sa.BigInteger, nullable=False),
)
"""The leases of the gateways."""

run_judges = sa.Table(
    "run_judges",
    metadata,
    _run(),
    sa.Column("role", SanitizedText, primary_key=True),
    sa.Column("judge", SanitizedText, primary_key=True),
    sa.Column("name", SanitizedText, primary_key=True),
    sa.Column("version", SanitizedText, primary_key=True),
    sa.Column("seen", UtcTimestamp, nullable=False),
)
"""The identities of the judges of each run."""

datasets = sa.Table(
    "datasets",
    metadata,
    sa.Column("number", _Number, primary_key=True, autoincrement=True),
    sa.Column("tenant", SanitizedText, nullable=False),
    # The SHA-256 of the content. Absent: deleted, and its chunks are being deleted.
    sa.Column("id", sa.Text),
    sa.Column("display_name", SanitizedText, nullable=False),
    # evaluation.v1.DatasetFormat.
    sa.Column("format", sa.SmallInteger, nullable=False),
    sa.Column("byte_count", sa.BigInteger, nullable=False),
    sa.Column("received", sa.BigInteger, nullable=False, default=0),
    # Whether the content was compared with the SHA-256.
    sa.Column("ready", sa.Boolean, nullable=False, default=False),
    # By the clock of the store.
    sa.Column("create_time", UtcTimestamp, nullable=False),
    sa.Column("update_time", UtcTimestamp, nullable=False),
    sa.UniqueConstraint("tenant", "id"),
    sqlite_autoincrement=True,
)
"""The uploaded datasets."""

dataset_chunks = sa.Table(
    "dataset_chunks",
    metadata,
    sa.Column("dataset", sa.BigInteger, sa.ForeignKey("datasets.number"), primary_key=True),
    # The place of its first byte in the content.
    sa.Column("position", sa.BigInteger, primary_key=True),
    # Compressed.
    sa.Column("content", sa.LargeBinary, nullable=False),
)
"""The contents of uploaded datasets."""

label_sets = sa.Table(
    "label_sets",
    metadata,
    sa.Column("number", _Number, primary_key=True, autoincrement=True),
    sa.Column("id", SanitizedText, nullable=False, unique=True),
    sa.Column("tenant", SanitizedText, nullable=False),
    sa.Column("request_id", SanitizedText),
    # evaluation.v1.LabelSet.
    sa.Column("description", sa.LargeBinary, nullable=False),
    # By the clock of the store.
    sa.Column("create_time", UtcTimestamp, nullable=False),
    sa.UniqueConstraint("tenant", "request_id"),
    sqlite_autoincrement=True,
)
"""The sets of items that people label."""

label_items = sa.Table(
    "label_items",
    metadata,
    sa.Column("label_set", sa.BigInteger, sa.ForeignKey("label_sets.number"), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    # evaluation.v1.LabelItem, compressed.
    sa.Column("item", sa.LargeBinary, nullable=False),
    sa.Column("sample_id", SanitizedText, nullable=False),
    sa.Column("model", SanitizedText, nullable=False),
    # The model of the second text of a preference. Empty: none.
    sa.Column("opponent", SanitizedText, nullable=False),
    # The value that the judge gave. Absent: it abstained.
    sa.Column("judged", sa.Double),
    # The probability with which it was drawn. Absent: uniform, by a release that kept none.
    sa.Column("probability", sa.Double),
)
"""The items of label sets."""

item_labels = sa.Table(
    "item_labels",
    metadata,
    sa.Column("label_set", sa.BigInteger, sa.ForeignKey("label_sets.number"), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("annotator", SanitizedText, primary_key=True),
    sa.Column("label", SanitizedText, nullable=False),
    sa.Column("note", SanitizedText, nullable=False),
    # By the clock of the store.
    sa.Column("update_time", UtcTimestamp, nullable=False),
)
"""The labels of people."""

RUN_PARTS = (
    run_judges,
    run_model_usage,
    run_results,
    run_outcomes,
    run_samples,
    run_rows,
    run_labels,
    run_specs,
)
"""The tables with rows of a run, in the order of deletion."""

CREATE_QUEUE = (
    "CREATE VIEW run_queue AS SELECT COALESCE(SUM(samples - succeeded - failed), 0) AS samples_pending "  # noqa: S608
    f"FROM runs WHERE state = {RUN_STATE_RUNNING:d}"
)
"""A view for autoscalers, whose one row has the number of samples of running runs that are not completed. Its
name and column are a promise (docs/operate/operations.md); the tables are not."""
sa.event.listen(runs, "after_create", lambda _, connection, **__: connection.exec_driver_sql(CREATE_QUEUE))

SCHEMA = Schema(
    tables=metadata,
    revisions=Path(__file__).parent / "revisions",
    head="0008",
    oldest="0001",
    version_table="run_revision",
    former="run_schema",
)
"""A change of the tables adds a revision and raises the head."""
