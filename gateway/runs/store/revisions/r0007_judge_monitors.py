"""Adds the monitors of judges."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "judge_monitors",
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("role", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("monitor", sa.LargeBinary, nullable=False),
        sa.Column("base", sa.LargeBinary, nullable=False),
        sa.Column("identity", sa.Text, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
    )
