"""What the audit log holds, and what it does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.run_pb2 import Run
from dramaturg.api.evaluation.v1.run_service_pb2_grpc import (
    RunServiceServicer,
    RunServiceStub,
    add_RunServiceServicer_to_server,
)
from dramaturg.service.auth import audit
from dramaturg.service.contract import Contract
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings, SettingsError
from tests.support.auth import channel_of, holder, token_settings

EVALUATOR, VIEWER = holder("team-a", "evaluator"), holder("team-b", "viewer")
SECRET = "pl4nted-secret"


class _Runs(RunServiceServicer):
    async def CreateRun(self, request: pb.CreateRunRequest, context: Any) -> pb.CreateRunResponse:
        return pb.CreateRunResponse(run=Run(id="run-1"))

    async def GetRun(self, request: pb.GetRunRequest, context: Any) -> pb.GetRunResponse:
        return pb.GetRunResponse()


@pytest.fixture
def lines(tmp_path: Path) -> Iterator[Any]:
    """Gives the lines of the audit log so far."""
    file = tmp_path / "audit.jsonl"
    audit.configure(str(file))
    yield lambda: [json.loads(line) for line in file.read_text().splitlines()]
    audit.configure("")


def runs() -> Contract:
    return Contract.make(
        pb.DESCRIPTOR.services_by_name["RunService"],
        add_RunServiceServicer_to_server,
        _Runs(),  # type: ignore[abstract]  # other methods answer UNIMPLEMENTED
        name="runs",
        version="1.0.0",
        description="Runs.",
    )


async def work(folder: Path) -> None:
    """Creates a run, looks at one, and tries what is refused."""
    auth = token_settings(folder, EVALUATOR, VIEWER)
    async with Server([runs()], ServerSettings.loopback(drain_grace_seconds=0.2), auth) as server:
        async with channel_of(server.target, folder, EVALUATOR) as channel:
            stub = RunServiceStub(channel)
            request = pb.CreateRunRequest()
            named = [("x-request-id", "8c6b8a4e-0000-4000-8000-000000000001")]
            request.spec.scripts.SetInParent()
            request.spec.dataset.content = SECRET.encode()
            await stub.CreateRun(request, metadata=named)
            await stub.GetRun(pb.GetRunRequest(run_id="run-1"))
        for who in (VIEWER, None):
            async with channel_of(server.target, folder, who) as channel:
                with pytest.raises(grpc.aio.AioRpcError):
                    await RunServiceStub(channel).CancelRun(pb.CancelRunRequest(run_id="run-1"))


async def test_a_line_for_each_change_and_each_refusal(tmp_path: Path, lines: Any) -> None:
    await work(tmp_path)
    created, denied, unknown = lines()
    service = "/dramaturg.api.evaluation.v1.RunService"
    assert created["method"] == f"{service}/CreateRun"
    assert (created["principal"], created["tenant"]) == ("evaluator@team-a", "team-a")
    assert (created["run_id"], created["outcome"]) == ("run-1", "OK")
    assert created["request_id"] == "8c6b8a4e-0000-4000-8000-000000000001"
    assert created["peer"].startswith("ipv4:127.0.0.1")
    assert (denied["principal"], denied["tenant"]) == ("viewer@team-b", "team-b")
    assert (denied["outcome"], denied["reason"]) == ("PERMISSION_DENIED", "ERROR_REASON_PERMISSION_DENIED")
    assert (unknown["principal"], unknown["tenant"]) == ("", "")
    assert unknown["outcome"] == "UNAUTHENTICATED"
    text = json.dumps(lines())
    assert SECRET not in text
    assert EVALUATOR.token not in text
    assert VIEWER.token not in text


async def test_it_goes_to_standard_output_where_that_is_wanted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    audit.configure("stdout")
    try:
        await work(tmp_path)
    finally:
        audit.configure("")
    assert [json.loads(line)["outcome"] for line in capsys.readouterr().out.splitlines()] == [
        "OK",
        "PERMISSION_DENIED",
        "UNAUTHENTICATED",
    ]


async def test_without_a_place_nothing_is_written(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    await work(tmp_path)
    assert "audit" not in capfd.readouterr().out
    assert "dramaturg.audit" not in {record.name for record in caplog.records}


async def test_a_file_that_was_moved_away_is_begun_anew(tmp_path: Path, lines: Any) -> None:
    await work(tmp_path)
    (tmp_path / "audit.jsonl").rename(tmp_path / "audit.jsonl.1")
    await work(tmp_path)
    assert len(lines()) == 3


def test_a_file_that_cannot_be_written_to_is_said_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"auth\.audit"):
        audit.configure(str(tmp_path / "absent" / "audit.jsonl"))
    assert audit.logger.disabled
