"""Adds how far the repeats of a judge agree."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("run_results", sa.Column("measured_confidence", sa.Double))
