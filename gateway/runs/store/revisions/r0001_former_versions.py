"""Adopts the tables of stores whose version was a number in ``run_schema``."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from dramaturg.database import StoreError

revision = "0001"
down_revision = None

_VERSION = 11


def upgrade() -> None:
    version = op.get_bind().execute(sa.text("SELECT max(version) FROM run_schema")).scalar_one()
    if version != _VERSION:
        raise StoreError(f"the run store has version {version}; only version {_VERSION} can be upgraded")
    op.drop_table("run_schema")
