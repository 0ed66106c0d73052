"""Adopts the tables of ledgers whose version was a number in ``dramaturg_ledger``."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from dramaturg.database import StoreError

revision = "0001"
down_revision = None

_VERSION = 4


def upgrade() -> None:
    version = op.get_bind().execute(sa.text("SELECT max(version) FROM dramaturg_ledger")).scalar_one()
    if version != _VERSION:
        raise StoreError(f"the ledger has version {version}; only version {_VERSION} can be upgraded")
    op.drop_table("dramaturg_ledger")
