"""The container that migrates, its own command, run on a real PostgreSQL."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from dramaturg.api.evaluation.v1.graphs_pb2 import EvaluateGraphsRequest, GivenGraph
from dramaturg.api.evaluation.v1.run_pb2 import RUN_STATE_SUCCEEDED, GraphsRunOptions, Run, RunSpec
from dramaturg.api.graph.v1.script_graph_pb2 import Event, EventEdge, ScriptGraph
from dramaturg.client import DramaturgClient
from tests.k8s.processes import caller, ran, started
from tests.k8s.rendered import FAKE_SECRET, ROOT, combined, render
from tests.support.certificates import Authority
from tests.support.engines import lines
from tests.support.postgres import run_postgres

OPERATIONS = (ROOT / "docs" / "operate" / "operations.md").read_text(encoding="utf-8")
DATABASES = ["DRAMATURG_RUNS_URL", "DRAMATURG_GENERATION_LEDGER_URL"]
OWNER, SERVICE = "dramaturg_owner", "dramaturg_service"


def migrated(url: str, place: Path) -> subprocess.CompletedProcess[str]:
    """Runs the container on a database."""
    migration = combined(("migration",)).migration()
    assert [name for name, value in migration.environment().items() if value == FAKE_SECRET] == DATABASES
    return ran(migration, place, **dict.fromkeys(DATABASES, url))


@pytest.fixture
def database() -> Iterator[str]:
    """A database of two roles: the owner, and one that reads and writes rows alone, as operations.md says."""
    commands = re.search(r"\n(REVOKE CREATE.*?)```", OPERATIONS, re.DOTALL)
    assert commands is not None
    with run_postgres() as server:
        url = server.create_database()
        with psycopg.connect(url, autocommit=True) as connection:
            for role in (OWNER, SERVICE):
                connection.execute(f"CREATE ROLE {role} LOGIN".encode())
            connection.execute(f'ALTER DATABASE "{connection.info.dbname}" OWNER TO {OWNER}'.encode())
            connection.execute(commands[1].encode())
        yield url


def of_role(url: str, role: str) -> str:
    return url.replace("postgres@", f"{role}@")


@pytest.mark.slow
async def test_services_that_may_only_change_rows_start_on_its_tables(database: str, tmp_path: Path) -> None:
    (tmp_path / "migration").mkdir()
    for _ in range(2):  # every replica runs it
        done = migrated(of_role(database, OWNER), tmp_path / "migration")
        assert done.returncode == 0, done.stdout + done.stderr
    before = definitions(database)
    service = of_role(database, SERVICE)
    urls = dict.fromkeys(DATABASES, service)
    rendering = render(
        {"size": "single", "store": {"type": "postgres", "caSecret": {"name": ""}}, "backend": "offline"}
    )
    async with started(rendering, tmp_path, urls) as replica, caller(tmp_path) as client:
        with psycopg.connect(database) as connection:
            named = connection.execute("SELECT DISTINCT application_name FROM pg_stat_activity")
            assert ("gateway",) in named.fetchall()
        run = await completed(client)
    assert run.state == RUN_STATE_SUCCEEDED, replica.log.read_text()
    assert definitions(database) == before
    triggers = combined(("keda",)).one("ScaledObject", "gateway")["spec"]["triggers"]
    (query,) = [found["metadata"]["query"] for found in triggers if found["type"] == "postgresql"]
    with psycopg.connect(service) as connection:
        assert connection.execute(query.encode()).fetchone() == (0,)


async def completed(client: DramaturgClient) -> Run:
    """A run without a model, followed to its end."""
    run = await client.runs.create(spec())
    async for event in client.runs.watch(run.id):
        if event.HasField("run"):
            run = event.run
    return run


def spec() -> RunSpec:
    """A run without a model."""
    edges = [EventEdge(source_id="a", target_id="b")]
    events = [Event(id=one, text=f"Do {one}.") for one in "ab"]
    graph = ScriptGraph(scenario="do it", events=events, edges=edges)
    row = EvaluateGraphsRequest(reference=graph, graphs=[GivenGraph(model="m", graph=graph)])
    made = RunSpec(graphs=GraphsRunOptions())
    made.dataset.content = lines([row])
    return made


def definitions(url: str) -> list[tuple[object, ...]]:
    """All columns and indexes of the database."""
    with psycopg.connect(url) as connection:
        return connection.execute(
            "SELECT table_schema, table_name, column_name, data_type FROM information_schema.columns "
            "WHERE table_schema IN ('public', 'dbos') UNION ALL "
            "SELECT schemaname, tablename, indexname, indexdef FROM pg_indexes "
            "WHERE schemaname IN ('public', 'dbos') ORDER BY 1, 2, 3, 4"
        ).fetchall()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gateway", "generation"])
async def test_a_service_that_may_not_make_its_tables_says_who_does(
    database: str, tmp_path: Path, name: str
) -> None:
    service = of_role(database, SERVICE)
    urls = dict.fromkeys(DATABASES, service)
    rendering = render({"backend": "offline", "store": {"caSecret": {"name": ""}}})
    async with started(rendering, tmp_path, urls, name=name, ready=False) as replica:
        assert await asyncio.wait_for(replica.ended(), 60) != 0
    assert "run `python -m dramaturg.service.migration`" in replica.log.read_text()


def test_a_migration_without_a_database_of_postgresql_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in DATABASES:
        monkeypatch.delenv(name, raising=False)
    command = [sys.executable, "-m", "dramaturg.service.migration"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no database of PostgreSQL is named" in done.stderr
    monkeypatch.setenv("DRAMATURG_RUN_URL", "postgresql://localhost/x")
    misspelt = subprocess.run(command, capture_output=True, text=True, check=False)
    assert misspelt.returncode == 2
    assert "is DRAMATURG_RUNS_URL meant?" in misspelt.stderr


def test_a_database_that_cannot_be_reached_is_reported_without_its_password(tmp_path: Path) -> None:
    done = migrated("postgresql://user:unspoken@127.0.0.1:1/nothing", tmp_path)
    assert done.returncode == 1
    assert "is unavailable" in done.stderr
    assert "unspoken" not in done.stdout + done.stderr


@pytest.mark.parametrize("trusted", [True, False])
def test_it_migrates_only_a_database_whose_certificate_is_valid(tmp_path: Path, trusted: bool) -> None:
    migration = combined(("migration",)).migration()
    authority, other = Authority(tmp_path / "authority"), Authority(tmp_path / "other")
    with run_postgres(certificate=authority.issue("postgres")) as server:
        known = {"PGSSLROOTCERT": str((authority if trusted else other).certificate)}
        databases = dict.fromkeys(DATABASES, server.create_database())
        done = ran(migration, tmp_path, **{**migration.environment(), **databases, **known})
    assert done.returncode == (0 if trusted else 1), done.stderr
    assert ("certificate verify failed" in done.stderr) is not trusted
