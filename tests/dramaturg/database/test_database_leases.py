from __future__ import annotations

import time

import pytest
import sqlalchemy as sa

from dramaturg.database.database import Database, Leases, create_engine
from tests.support.runs import lost_acknowledgements

TABLE = sa.Table(
    "leases_of_tests",
    sa.MetaData(),
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("expires", sa.BigInteger, nullable=False),
    sa.Column("machine", sa.Text, nullable=False, server_default=""),
)


@pytest.fixture
def leases(database: Database) -> Leases:
    database.write_repeatable(TABLE.create)
    return Leases(database, TABLE)


def test_a_lease_that_is_renewed_lives_until_it_is_dropped(leases: Leases) -> None:
    leases.renew("g1", 30)
    leases.renew("g2", 30)
    leases.renew("g1", 60)
    assert leases.live() == ["g1", "g2"]
    leases.drop("g1")
    assert leases.live() == ["g2"]


def test_a_lease_runs_out(leases: Leases) -> None:
    leases.renew("g1", -0.001)
    leases.renew("g2", 30)
    assert leases.live() == ["g2"]


def test_a_lease_that_ran_out_is_kept_for_a_week(leases: Leases, database: Database) -> None:
    leases.renew("old", -8 * 24 * 3600)
    leases.renew("recent", -6 * 24 * 3600)
    leases.renew("new", 30)
    assert [row.id for row, _ in database.read(leases.remaining)] == ["recent", "new"]


def test_a_lease_says_who_holds_it_and_how_long_by_the_clock_of_the_database(
    leases: Leases, database: Database
) -> None:
    leases.renew("g1", 30, machine="here")
    leases.renew("g1", 60, machine="here")
    ((row, seconds),) = database.read(leases.remaining)
    assert (row.id, row.machine) == ("g1", "here")
    assert 50 < seconds <= 60
    assert abs(row.expires / 1e6 - time.time() - 60) < 10


def test_a_renewal_whose_acknowledgement_is_lost_is_repeated(postgres_url: str) -> None:
    database = Database(*create_engine(postgres_url), retry_seconds=5)
    database.write_repeatable(TABLE.create)
    leases = Leases(database, TABLE)
    with lost_acknowledgements():
        leases.renew("g1", 30)
    with lost_acknowledgements():
        leases.renew("g1", 60)
    assert leases.live() == ["g1"]
    with lost_acknowledgements():
        leases.drop("g1")
    assert leases.live() == []
    database.close()
