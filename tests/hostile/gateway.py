"""A gateway that serves every contract, and calls of any method.

Its judges of scripts pass everything; its other judges answer with empty messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pool import Default

from dramaturg.api.common.v1.dialogue_pb2 import SPEAKER_SIMULATOR, SPEAKER_USER, SimulationTask, Utterance
from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.dialogues_pb2 import DialogueScript
from dramaturg.api.evaluation.v1.evaluation_service_pb2 import SummarizeRequest
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import ListJudgesRequest
from dramaturg.api.evaluation.v1.judge_directory_service_pb2_grpc import JudgeDirectoryServiceStub
from dramaturg.api.evaluation.v1.label_service_pb2 import CreateLabelSetRequest
from dramaturg.api.evaluation.v1.label_service_pb2_grpc import LabelServiceStub
from dramaturg.api.evaluation.v1.run_pb2 import Dataset, RunSpec
from dramaturg.api.evaluation.v1.run_service_pb2_grpc import RunServiceStub
from dramaturg.api.evaluation.v1.summary_pb2 import SummaryOptions
from dramaturg.api.graph.v1.script_graph_pb2 import Event, ScriptGraph
from dramaturg.judge.roles import ROLES
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from dramaturg.testing import serve
from gateway.app import App
from gateway.http.server import HttpServer
from gateway.http.settings import HttpSettings
from gateway.runs.records import ACTIVE
from gateway.runs.settings import RunsSettings
from gateway.settings import GatewaySettings, JudgeEntry
from tests.hostile.requests import filled
from tests.support.auth import channel_of, every_method, holder, noting, path, token_settings
from tests.support.bombs import GOOD_LINE
from tests.support.engines import judges_of
from tests.support.gateway import agents

HOSTILE, GOOD = holder("team-a", "operator"), holder("team-b", "operator")

_BEHIND = ("GenerationService",)
"""The services that no gateway serves."""
_CHANGING = ("DeleteRun", "RerunRun", "RerunSamples", "ExtendRun", "UpdateRun", "DeleteLabelSet")
_IDENTITY = "dramaturg.api.identity.v1.IdentityService"
_SECONDS = 60.0


def _spec() -> RunSpec:
    spec = RunSpec(dataset=Dataset(content=GOOD_LINE))
    spec.scripts.SetInParent()
    return spec


_GIVEN: Mapping[str, Mapping[str, Any]] = {
    "CreateRun": {"spec": _spec()},
    "CheckJudge": {"role": "critic", "judge": "fake"},
    "EvaluateGraphs": {
        "reference": ScriptGraph(
            scenario="Make tea", events=[Event(id="a", text="boil"), Event(id="b", text="pour")]
        )
    },
    "EvaluateDialogues": {
        "script": DialogueScript(
            id="a",
            task=SimulationTask(name="a", description="a"),
            utterances=[
                Utterance(speaker=SPEAKER_USER, text="a"),
                Utterance(speaker=SPEAKER_SIMULATOR, text="b"),
                Utterance(speaker=SPEAKER_USER, text="c"),
            ],
        )
    },
    **{
        name: {"contract": "dramaturg.api.evaluation.v1.EvaluationService"}
        for name in ("GetIdentity", "CheckModel", "ListModelWaits")
    },
}
"""Fields of valid requests beyond the limits of the contract, by method."""


def public_methods() -> Sequence[MethodDescriptor]:
    """The methods of a gateway that has a judge of each role."""
    return [method for method in every_method() if method.containing_service.name not in _BEHIND]


@dataclass
class PublicGateway:
    """A gateway with the channels of two tenants."""

    hostile: grpc.aio.Channel
    good: grpc.aio.Channel
    run_ids: Sequence[str]
    """Two runs of the hostile tenant that have ended."""
    label_set_id: str
    """Judgements of the first."""
    target: str
    url: str
    """Its address over HTTP; empty without."""

    def request(self, method: MethodDescriptor) -> Any:
        """A valid request of a method. It changes neither run."""
        given: dict[str, Any] = {"run_ids": list(self.run_ids)}
        if method.name not in _CHANGING:
            given |= {"run_id": self.run_ids[0], "label_set_id": self.label_set_id}
        return filled(method.input_type, {**given, **_GIVEN.get(method.name, {})})


@asynccontextmanager
async def public_gateway(
    folder: Path, http: HttpSettings | None = None, **settings: Any
) -> AsyncIterator[PublicGateway]:
    """Serves a gateway and a judge of each role."""
    contracts = {role.contract for role in ROLES.values()}
    answers = [noting(Default().FindServiceByName(name), lambda *_: None) for name in sorted(contracts)]
    runs = RunsSettings(enabled=True, url=f"sqlite:///{folder}/runs.sqlite3", drain_timeout_seconds=0)
    async with AsyncExitStack() as stack:
        judges = await stack.enter_async_context(serve(*answers, drain_grace_seconds=0.2))
        entries = await stack.enter_async_context(judges_of(agents()))
        known = {entry.role for entry in entries}
        entries += [
            JudgeEntry(role=role, name="empty", target=judges.target) for role in ROLES if role not in known
        ]
        app = App(GatewaySettings(judges=tuple(entries), **settings), runs)
        made = await stack.enter_async_context(app.open())
        served = {contract.full_name for contract in made} | {_IDENTITY}
        assert served == {method.containing_service.full_name for method in public_methods()}
        serving = ServerSettings.loopback(drain_grace_seconds=0.2)
        auth = token_settings(folder, HOSTILE, GOOD)
        fronts = [] if http is None else [HttpServer(http, 0)]
        server = await stack.enter_async_context(Server(made, serving, auth, fronts=fronts))
        hostile, good = [
            await stack.enter_async_context(channel_of(server.target, folder, one)) for one in (HOSTILE, GOOD)
        ]
        run_ids = [await _ended_run(hostile) for _ in range(2)]
        labels = LabelServiceStub(hostile)
        creating = CreateLabelSetRequest(run_id=run_ids[0])
        label_set = (await labels.CreateLabelSet(creating, timeout=_SECONDS)).label_set
        url = "".join(front.url for front in fronts)
        yield PublicGateway(hostile, good, run_ids, label_set.id, server.target, url)


async def _ended_run(channel: grpc.aio.Channel) -> str:
    stub = RunServiceStub(channel)
    run = (await stub.CreateRun(pb.CreateRunRequest(spec=_spec()), timeout=_SECONDS)).run
    async with asyncio.timeout(_SECONDS):
        while run.state in ACTIVE:
            await asyncio.sleep(0.05)
            run = (await stub.GetRun(pb.GetRunRequest(run_id=run.id), timeout=_SECONDS)).run
    return str(run.id)


async def ask(
    channel: grpc.aio.Channel,
    method: MethodDescriptor,
    request: Any,
    timeout: float = _SECONDS,
    *,
    metadata: Sequence[tuple[str, str]] = (),
    note: Callable[[Any], object] = lambda response: None,
) -> grpc.aio.AioRpcError | None:
    """Calls a method and reads its answer to the end; returns its error.

    Args:
        channel: The channel.
        method: The method.
        request: The request, or bytes in its place.
        timeout: The deadline in seconds.
        metadata: The metadata of the call, besides the role of a call that is passed on.
        note: Called with each response.
    """
    response = message_factory.GetMessageClass(method.output_type)
    one: Any = channel.stream_unary if method.client_streaming else channel.unary_unary
    make: Any = channel.unary_stream if method.server_streaming else one
    serialize = (lambda data: data) if isinstance(request, bytes) else type(request).SerializeToString
    call = make(path(method), serialize, response.FromString)
    given = request
    if method.client_streaming:
        given = [request]
        if method.name == "Summarize" and not isinstance(request, bytes) and not request.HasField("options"):
            given = [SummarizeRequest(options=SummaryOptions()), request]
    role = (("dramaturg-role", "critic"),) if method.name == "Judge" else ()
    try:
        answer = call(given, timeout=timeout, metadata=(*role, *metadata))
        if method.server_streaming:
            async for response_message in answer:
                note(response_message)
        else:
            note(await answer)
    except grpc.aio.AioRpcError as error:
        return error
    return None


@asynccontextmanager
async def watched(channel: grpc.aio.Channel) -> AsyncIterator[list[str]]:
    """Calls of another tenant meanwhile; yields their failures."""
    failures: list[str] = []
    stub = JudgeDirectoryServiceStub(channel)

    async def call() -> None:
        while True:
            try:
                await stub.ListJudges(ListJudgesRequest(role="critic"), timeout=_SECONDS)
            except grpc.aio.AioRpcError as error:
                failures.append(f"{error.code().name}: {error.details()}")
            await asyncio.sleep(0.02)

    calls = asyncio.create_task(call())
    try:
        yield failures
    finally:
        calls.cancel()
        await asyncio.gather(calls, return_exceptions=True)
