from __future__ import annotations

import asyncio

import grpc
import pytest

from dramaturg.api.evaluation.v1 import run_pb2, run_service_pb2
from dramaturg.api.evaluation.v1.run_service_pb2 import WatchRunResponse
from dramaturg.client import DramaturgClient, ServiceError
from dramaturg.testing import until
from tests.support.run_service import RUN, run_service, scripted_runs

UNAVAILABLE, DEADLINE = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_stream_that_breaks_off_goes_on_where_it_was() -> None:
    scripted = scripted_runs(8, [DEADLINE, UNAVAILABLE, None])
    lost: list[ServiceError] = []
    async with run_service(scripted) as target, DramaturgClient(target) as client:
        events = [event async for event in client.runs.watch(RUN, on_lost=lost.append)]
    assert scripted.cursors == [0, 2, 4, 6]
    assert [event.cursor for event in events] == list(range(1, 10))
    assert events[-1].run.state == run_pb2.RUN_STATE_SUCCEEDED
    # A stream that is as old as a call may be is no lost connection.
    assert [error.code for error in lost] == [UNAVAILABLE]


async def test_a_stream_that_a_proxy_ends_goes_on_where_it_was() -> None:
    """Envoy resets a stream at its time limit, which gRPC reports as INTERNAL, without a reason."""
    scripted = scripted_runs(6, [grpc.StatusCode.INTERNAL, grpc.StatusCode.INTERNAL])
    async with run_service(scripted) as target, DramaturgClient(target) as client:
        events = [event async for event in client.runs.watch(RUN)]
    assert scripted.cursors == [0, 2, 4]
    assert events[-1].run.state == run_pb2.RUN_STATE_SUCCEEDED


async def test_a_gateway_that_starts_again_is_found_again() -> None:
    first, second = scripted_runs(4, [UNAVAILABLE]), scripted_runs(4)
    lost: list[ServiceError] = []
    async with run_service(first) as target:
        client = DramaturgClient(target)
        events = client.runs.watch(RUN, on_lost=lost.append)
        seen = [await anext(events), await anext(events)]

    async def rest() -> list[WatchRunResponse]:
        return [event async for event in events]

    task = asyncio.create_task(rest())
    await until(lambda: len(lost) > 1)
    async with run_service(second, port=int(target.rpartition(":")[2])), client:
        seen += await asyncio.wait_for(task, 30)
    assert second.cursors == [2]
    assert [event.cursor for event in seen] == [1, 2, 3, 4, 5]


async def test_a_run_that_has_ended_has_nothing_more_to_tell() -> None:
    scripted = scripted_runs(2)
    async with run_service(scripted) as target, DramaturgClient(target) as client:
        first = [event async for event in client.runs.watch(RUN)]
        scripted.breaks.append(None)
        assert [event async for event in client.runs.watch(RUN, cursor=first[-1].cursor)] == []


async def test_what_no_waiting_mends_is_raised() -> None:
    scripted = scripted_runs(8, [grpc.StatusCode.NOT_FOUND])
    async with run_service(scripted) as target, DramaturgClient(target) as client:
        with pytest.raises(ServiceError) as caught:
            [event async for event in client.runs.watch(RUN)]
    assert caught.value.code is grpc.StatusCode.NOT_FOUND


async def test_all_pages_are_listed() -> None:
    async with run_service(scripted_runs(1)) as target, DramaturgClient(target) as client:
        assert [run.id async for run in client.runs.find()] == ["0", "1", "2", "3", "4"]


async def test_a_run_that_is_not_there_is_a_typed_error() -> None:
    async with run_service(scripted_runs(1)) as target, DramaturgClient(target) as client:
        with pytest.raises(ServiceError) as caught:
            await client.runs.get("another")
    assert caught.value.reason_name == "ERROR_REASON_RESOURCE_NOT_FOUND"


async def test_a_file_that_breaks_off_is_an_error() -> None:
    async with run_service(scripted_runs(1)) as target, DramaturgClient(target) as client:
        pieces = client.runs.export(RUN, run_service_pb2.EXPORT_FORMAT_CSV)
        assert await anext(pieces) == b"half a "
        with pytest.raises(ServiceError):
            await anext(pieces)
