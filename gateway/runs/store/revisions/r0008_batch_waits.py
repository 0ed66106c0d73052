"""Adds the waits of samples for batches of model calls."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("run_samples", sa.Column("due", sa.BigInteger))
    op.add_column("run_samples", sa.Column("waits", sa.Integer, nullable=False, server_default="0"))
