"""When a gateway serves runs, and what it says where it cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
import sqlalchemy as sa

from dramaturg.api.evaluation.v1.run_service_pb2 import ListRunsRequest
from dramaturg.api.evaluation.v1.run_service_pb2_grpc import RunServiceStub
from dramaturg.service.settings import SettingsError
from dramaturg.testing import serve
from gateway.app import App
from gateway.launch.platform import local_platform
from gateway.runs.settings import RunsSettings, default_url
from gateway.runs.store import open_store
from gateway.settings import GatewaySettings


def settings(folder: Path) -> RunsSettings:
    return RunsSettings(enabled=True, url=f"sqlite:///{folder / 'runs.sqlite3'}", drain_timeout_seconds=0)


def default_store_exists() -> bool:
    return Path(default_url().removeprefix("sqlite:///")).exists()


async def test_a_gateway_serves_runs(tmp_path: Path) -> None:
    app = App(GatewaySettings(), settings(tmp_path))
    async with (
        app.open() as contracts,
        serve(*contracts) as server,
        grpc.aio.insecure_channel(server.target) as channel,
    ):
        listed = await RunServiceStub(channel).ListRuns(ListRunsRequest())
    assert not listed.runs


async def test_a_store_that_is_in_use_is_refused_by_name(tmp_path: Path) -> None:
    store = open_store(settings(tmp_path).url)
    try:
        with pytest.raises(SettingsError, match=r"runs\.url: .*in use"):
            async with App(GatewaySettings(), settings(tmp_path)).open():
                pass
    finally:
        store.close()


@pytest.mark.parametrize("pages", [1, 20, 40, 44, 48, 52])
async def test_a_gateway_that_starts_on_a_full_disk_says_so(tmp_path: Path, pages: int) -> None:
    def bound(connection: Any, record: object) -> None:
        connection.execute(f"PRAGMA max_page_count = {pages}")

    sa.event.listen(sa.pool.Pool, "connect", bound)
    try:
        with pytest.raises(SettingsError, match=r"runs\.url: .*disk is full"):
            async with App(GatewaySettings(), settings(tmp_path)).open():
                pass
    finally:
        sa.event.remove(sa.pool.Pool, "connect", bound)


async def test_a_gateway_of_a_single_command_leaves_the_users_runs_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DRAMATURG_RUNS_ENABLED", "true")
    async with (
        local_platform(roles=["alignment"]) as target,
        grpc.aio.insecure_channel(target) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await RunServiceStub(channel).ListRuns(ListRunsRequest())
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert not default_store_exists()


def test_a_lease_outlasts_one_renewal_that_fails() -> None:
    with pytest.raises(ValueError, match="lease_renewal_seconds must be at most half"):
        RunsSettings(lease_seconds=10, lease_renewal_seconds=6)
