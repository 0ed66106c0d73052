"""The migration Job's own command, run on a real PostgreSQL."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.k8s.rendered import FAKE_SECRET, combined


@pytest.mark.slow
def test_the_job_makes_the_tables_of_the_run_engine(postgres_url: str, tmp_path: Path) -> None:
    job = next(pod for pod in combined(("migration",)).pods() if pod.name == "migration")
    assert job.environment() == {"STORE_URL": FAKE_SECRET}
    program, *arguments = [word.replace("$(STORE_URL)", postgres_url) for word in job.container["command"]]
    command = [str(Path(sys.executable).with_name(program)), *arguments]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    for _ in range(2):  # a Job may run its pod more than once
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
    test_the_job_makes_the_tables_of_the_run_engine(postgres_url, tmp_path)
    scaled = combined(("keda",)).one("ScaledObject", "gateway")
    (trigger,) = [found for found in scaled["spec"]["triggers"] if found["type"] == "postgresql"]
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute(trigger["metadata"]["query"].encode()).fetchone() == (0,)
