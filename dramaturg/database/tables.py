"""The tables of every database, and the collection of all tables."""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()

run_writers = sa.Table(
    "run_writers",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    # The number of its last operation that was committed.
    sa.Column("operation", sa.BigInteger, nullable=False),
    # When that began, in seconds since 1970, by the clock of its process.
    sa.Column("time", sa.BigInteger, nullable=False),
)
"""The writers of all processes. Each operation is recorded in its own transaction, see ``Database.write``."""
