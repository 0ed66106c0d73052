"""Adds the requests that wait for batches of providers, and the batches."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "dramaturg_batches",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("process", sa.Text, nullable=False),
        sa.Column("provider", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("remote", sa.Text),
        sa.Column("deadline", sa.Double, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("looked_at", sa.Double, nullable=False),
        sa.Column("misses", sa.Integer, nullable=False, server_default="0"),
        sa.Column("cancelled", sa.Boolean, nullable=False, server_default=sa.false()),
    )
    op.create_table(
        "dramaturg_batch_requests",
        sa.Column("fingerprint", sa.Text, primary_key=True),
        sa.Column("provider", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("call", sa.Text, nullable=False),
        sa.Column("asked_at", sa.Double, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("deadline", sa.Double, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("batch", sa.Text),
        sa.Column("reading", sa.Text),
        sa.Column("answer", sa.Text),
    )
    op.create_index("dramaturg_batch_requests_by_state", "dramaturg_batch_requests", ["state", "created_at"])
    op.create_index("dramaturg_batch_requests_by_batch", "dramaturg_batch_requests", ["batch"])
