"""Keeps the probability with which each item of a label set was drawn."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("label_items", sa.Column("probability", sa.Double))
