"""Runs have the principal that created them; those of earlier releases have none."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("runs", sa.Column("creator", sa.Text, nullable=False, server_default=""))
