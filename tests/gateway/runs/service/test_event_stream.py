from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
import pytest

from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_STATE_PAUSED,
    RUN_STATE_PREPARING,
    RUN_STATE_RUNNING,
    RUN_STATE_SUCCEEDED,
    DatasetManifest,
)
from dramaturg.testing import until
from gateway.runs.records import Incident
from gateway.runs.service import event_stream
from gateway.runs.store_calls import ServiceCaller
from tests.gateway.runs.service.conftest import Service
from tests.support.runs import judged

Stream = grpc.aio.UnaryStreamCall[pb.WatchRunRequest, pb.WatchRunResponse]


def watch(service: Service, cursor: int = 0) -> Stream:
    stream: Stream = service.stub.WatchRun(pb.WatchRunRequest(run_id="run", cursor=cursor), timeout=30)
    return stream


async def following(stream: Stream) -> pb.WatchRunResponse:
    event = await stream.read()
    assert isinstance(event, pb.WatchRunResponse)
    return event


async def rest(stream: Stream) -> Sequence[pb.WatchRunResponse]:
    events = []
    while isinstance(event := await stream.read(), pb.WatchRunResponse):
        events.append(event)
    return events


def finish(service: Service, index: int) -> None:
    service.store.attempts.finish("run", 1, [judged(index, {"m": [True]})])


def end(service: Service) -> None:
    service.store.runs.change_state("run", RUN_STATE_SUCCEEDED, expected=[RUN_STATE_RUNNING])


def noted(monkeypatch: pytest.MonkeyPatch) -> Sequence[str]:
    """The names of the reads of the store that have ended, as they end."""
    ended: list[str] = []
    call = ServiceCaller.call

    async def note(caller: ServiceCaller, function: Any, *args: Any, **kwargs: Any) -> Any:
        read = await call(caller, function, *args, **kwargs)
        ended.append(function.__name__)
        return read

    monkeypatch.setattr(ServiceCaller, "call", note)
    return ended


async def test_a_watcher_sees_the_run_its_progress_and_its_end(service: Service) -> None:
    service.run(RUN_STATE_RUNNING)
    stream = watch(service)
    first = await following(stream)
    assert first.run.state == RUN_STATE_RUNNING
    assert first.event_time.seconds > 0
    for done in (1, 2):
        finish(service, done)
        event = await following(stream)
        assert event.WhichOneof("event") == "progress"
        assert event.progress.succeeded_count == done
        assert event.cursor > first.cursor
    end(service)
    (last,) = await rest(stream)
    assert last.run.state == RUN_STATE_SUCCEEDED


async def test_a_stream_continues_from_a_cursor(service: Service) -> None:
    service.run(RUN_STATE_RUNNING)
    first = await following(stream := watch(service))
    stream.cancel()
    finish(service, 0)
    stream = watch(service, first.cursor)
    progressed = await following(stream)
    assert progressed.progress.succeeded_count == 1
    stream.cancel()
    end(service)
    (ended,) = await rest(watch(service, progressed.cursor))
    assert ended.run.state == RUN_STATE_SUCCEEDED
    # There is nothing after the end.
    assert await rest(watch(service, ended.cursor)) == []
    # A cursor of another run, beyond all of this one's.
    assert await rest(watch(service, 1 << 40)) == []


async def test_the_watch_of_an_ended_run_reads_the_store_once(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.run(RUN_STATE_SUCCEEDED)
    calls = noted(monkeypatch)
    (event,) = await rest(watch(service))
    assert event.run.state == RUN_STATE_SUCCEEDED
    assert calls == ["_first_step"]


async def test_a_watch_ends_with_the_deletion_of_the_run(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The watcher looks only when it is notified: it never sees the moment between the end and the deletion.
    monkeypatch.setattr(event_stream, "_POLL_SECONDS", 1000.0)
    calls = noted(monkeypatch)
    service.run(RUN_STATE_RUNNING)
    stream = watch(service)
    await following(stream)
    await until(lambda: calls == ["_first_step", "_step"])
    end(service)
    service.store.runs.delete("run")
    service.notifier.notify_progress("run")
    assert await rest(stream) == []


async def test_watchers_hear_at_once_of_what_happens_in_their_process(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than the limit of the test: whoever looks at intervals hears nothing.
    monkeypatch.setattr(event_stream, "_POLL_SECONDS", 1000.0)
    monkeypatch.setattr(event_stream, "_MAX_SILENT_SECONDS", 1000.0)
    service.run(RUN_STATE_RUNNING)
    streams = [watch(service) for _ in range(3)]
    for stream in streams:
        await following(stream)
    for index in range(3):
        await asyncio.sleep(0.05)  # the watchers have seen the last one and wait for a notification
        finish(service, index)
        service.notifier.notify_progress("run")
        for stream in streams:
            assert (await following(stream)).progress.succeeded_count == index + 1
    for stream in streams:
        stream.cancel()


async def test_what_another_gateway_does_is_seen_without_a_bell(service: Service) -> None:
    service.run(RUN_STATE_PREPARING)
    stream = watch(service)
    await following(stream)
    service.store.runs.set_manifest("run", DatasetManifest(row_count=3))
    event = await following(stream)
    assert event.WhichOneof("event") == "progress"
    stream.cancel()


async def test_a_watcher_hears_of_trouble_and_of_its_end(service: Service) -> None:
    service.run(RUN_STATE_RUNNING)
    stream = watch(service)
    await following(stream)
    service.store.runs.report_incident("run", 1, Incident("the judge is down", 3, 10.0, 5.0))
    assert (await following(stream)).progress.incident.description == "the judge is down"
    finish(service, 0)
    event = await following(stream)
    assert event.progress.succeeded_count == 1
    assert not event.progress.HasField("incident")
    stream.cancel()


async def test_a_run_that_gets_nothing_done_is_told_of_all_the_same(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "_MAX_SILENT_SECONDS", 0.1)
    service.run(RUN_STATE_RUNNING)
    stream = watch(service)
    first = await following(stream)
    for _ in range(2):
        again = await following(stream)
        assert again.WhichOneof("event") == "progress"
        assert again.cursor == first.cursor
        assert again.event_time.ToDatetime() > first.event_time.ToDatetime()
    end(service)
    (*_, last) = await rest(stream)
    assert last.run.state == RUN_STATE_SUCCEEDED


async def test_the_stream_of_a_paused_run_is_not_silent(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proxies end silent streams, Envoy after five minutes unless it is told otherwise."""
    assert event_stream._MAX_SILENT_SECONDS < event_stream._MAX_IDLE_SECONDS == 20
    monkeypatch.setattr(event_stream, "_MAX_IDLE_SECONDS", 0.1)
    service.run(RUN_STATE_PAUSED)
    stream = watch(service)
    first = await following(stream)
    repeated = [await following(stream) for _ in range(3)]
    assert [one.WhichOneof("event") for one in (first, *repeated)] == ["run", *["progress"] * 3]
    assert {one.cursor for one in repeated} == {first.cursor}
    stream.cancel()


async def test_watchers_that_leave_are_forgotten(service: Service) -> None:
    service.run(RUN_STATE_RUNNING)
    streams = [watch(service) for _ in range(5)]
    for stream in streams:
        await following(stream)
        stream.cancel()
    await until(lambda: not service.notifier._progress_listeners)
