"""A view of the samples that wait, for autoscalers."""

from __future__ import annotations

from alembic import op

from gateway.runs.store.tables import CREATE_QUEUE

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.execute(CREATE_QUEUE)
