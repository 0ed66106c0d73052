from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint

import pytest

from dramaturg.client import DramaturgClient
from dramaturg.service import installed
from dramaturg.testing import FakeJudge, PlatformMissingError, RegisteredJudge, serve, serve_gateway

IN_THREAD = """
import grpc
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import ListJudgesRequest
from dramaturg.api.evaluation.v1.judge_directory_service_pb2_grpc import JudgeDirectoryServiceStub
from dramaturg.testing import FakeJudge, RegisteredJudge, in_thread, serve_gateway

judge = RegisteredJudge("critic", FakeJudge().contract(), name="mine")
with in_thread(serve_gateway(judge)) as server, grpc.insecure_channel(server.target) as channel:
    (found,) = JudgeDirectoryServiceStub(channel).ListJudges(ListJudgesRequest()).judges
assert found.name == "mine", found
"""


async def test_the_judges_are_registered() -> None:
    async with (
        serve(FakeJudge().contract()) as elsewhere,
        serve_gateway(
            RegisteredJudge("critic", FakeJudge().contract(), name="mine", default=True),
            RegisteredJudge("critic", elsewhere.target, name="theirs"),
            calls_per_judge=2,
        ) as server,
        DramaturgClient(server.target) as client,
    ):
        judges = {judge.name: judge for judge in await client.list_judges("critic")}
    assert {name: judge.default_for_role for name, judge in judges.items()} == {"mine": True, "theirs": False}
    assert judges["theirs"].target == elsewhere.target


def test_it_runs_in_a_thread() -> None:
    done = subprocess.run([sys.executable, "-c", IN_THREAD], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("entries", [[], [EntryPoint("gateway", "absent.app:App", installed.GROUP)]])
async def test_without_the_services_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, entries: Sequence[EntryPoint]
) -> None:
    monkeypatch.setattr(installed, "_services", lambda: {one.name: one for one in entries})
    with pytest.raises(PlatformMissingError, match=r"pip install -e '\.\[platform\]'"):
        async with serve_gateway():
            pass
