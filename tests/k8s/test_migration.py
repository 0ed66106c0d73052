"""The container that migrates, its own command, run on a real PostgreSQL."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.k8s.rendered import FAKE_SECRET, ROOT, combined
from tests.support.certificates import Authority
from tests.support.postgres import run_postgres


@pytest.mark.slow
def test_it_makes_the_tables_of_the_run_engine(postgres_url: str, tmp_path: Path) -> None:
    job = combined(("migration",)).migration()
    variables = job.environment()
    assert variables["DRAMATURG_RUNS_URL"] == FAKE_SECRET
    program, *arguments = job.container["command"]
    command = [str(Path(sys.executable).with_name(program)), *arguments]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "DRAMATURG_RUNS_URL": postgres_url,
    }
    for _ in range(2):  # every replica runs it
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    with psycopg.connect(postgres_url) as connection:
        found = connection.execute("SELECT to_regclass('dbos.workflow_status')").fetchone()
    assert found is not None
    assert found[0] == "dbos.workflow_status"


@pytest.mark.slow
def test_the_autoscalers_query_runs_on_those_tables(postgres_url: str, tmp_path: Path) -> None:
    test_it_makes_the_tables_of_the_run_engine(postgres_url, tmp_path)
    scaled = combined(("keda",)).one("ScaledObject", "gateway")
    (trigger,) = [found for found in scaled["spec"]["triggers"] if found["type"] == "postgresql"]
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute(trigger["metadata"]["query"].encode()).fetchone() == (0,)


def test_a_database_that_cannot_be_reached_is_reported_without_its_password(tmp_path: Path) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "DRAMATURG_RUNS_URL": "postgresql://user:unspoken@127.0.0.1:1/nothing",
    }
    command = [sys.executable, "-m", "gateway.runs.migration"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "could not be migrated" in done.stderr
    assert "unspoken" not in done.stdout + done.stderr


@pytest.mark.parametrize("trusted", [True, False])
def test_it_migrates_only_a_database_whose_certificate_is_valid(tmp_path: Path, trusted: bool) -> None:
    job = combined(("migration",)).migration()
    authority, other = Authority(tmp_path / "authority"), Authority(tmp_path / "other")
    with run_postgres(certificate=authority.issue("postgres")) as server:
        environment = {
            **job.environment(),
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "PYTHONPATH": str(ROOT),
            "DRAMATURG_RUNS_URL": server.create_database(),
            "PGSSLROOTCERT": str((authority if trusted else other).certificate),
        }
        done = subprocess.run(
            [sys.executable, *job.container["command"][1:]],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == (0 if trusted else 1), done.stderr
    assert ("certificate verify failed" in done.stderr) is not trusted
