"""The identities of the judges of runs, in the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from dramaturg.database.database import Repository, reading, writing
from gateway.runs.records import SeenJudge
from gateway.runs.store.tables import run_judges, runs, sanitize

_KEY = ("run", "role", "judge", "name", "version")
_COLUMNS = [run_judges.c[name] for name in ("role", "judge", "name", "version", "seen")]
# Built once: every answer with a run asks.
_OF_RUNS = (
    sa.select(runs.c.id, *_COLUMNS)
    .join_from(run_judges, runs)
    .where(runs.c.id.in_(sa.bindparam("wanted", expanding=True)))
    .order_by(run_judges.c.role, run_judges.c.judge, run_judges.c.seen)
)


class SeenJudges(Repository):
    """The identities of the judges that the samples of runs were sent to."""

    @writing
    def note(self, connection: sa.Connection, run_id: str, seen: SeenJudge) -> Sequence[SeenJudge]:
        """Records the identity of a judge that a sample of a run was sent to.

        Returns:
            The other identities of that judge in the run, if this one is new; else none.
        """
        clock = self._database.now(connection)
        number = connection.execute(
            sa.select(runs.c.number).where(runs.c.id == run_id, sa.not_(runs.c.deleted)).with_for_update()
        ).scalar()
        if number is None:
            return ()
        insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
        new = insert(run_judges).values(
            run=number,
            role=sanitize(seen.role),
            judge=sanitize(seen.judge),
            name=sanitize(seen.name),
            version=sanitize(seen.version),
            seen=datetime.fromtimestamp(clock / 1_000_000, UTC),
        )
        # Not the count of rows, which psycopg does not know here.
        added = new.on_conflict_do_nothing(index_elements=_KEY).returning(run_judges.c.run)
        if connection.execute(added).first() is None:
            return ()
        mine = (run_judges.c.role == seen.role) & (run_judges.c.judge == seen.judge)
        found = _select(connection, (run_judges.c.run == number) & mine)
        return [one for one in found if (one.name, one.version) != (seen.name, seen.version)]

    @reading
    def of_runs(self, connection: sa.Connection, run_ids: Sequence[str]) -> Mapping[str, Sequence[SeenJudge]]:
        """The identities of the judges of runs, by the ids of the runs; runs without judges are left out.

        They are ordered by role and judge, then as they were seen.
        """
        found: dict[str, list[SeenJudge]] = {}
        for run_id, *seen in connection.execute(_OF_RUNS, {"wanted": list(run_ids)}):
            found.setdefault(run_id, []).append(SeenJudge(*seen))
        return found


def _select(connection: sa.Connection, where: sa.ColumnElement[bool]) -> Sequence[SeenJudge]:
    of = run_judges.c
    query = sa.select(*_COLUMNS).where(where)
    rows = connection.execute(query.order_by(of.role, of.judge, of.seen))
    return [SeenJudge(*row) for row in rows]
