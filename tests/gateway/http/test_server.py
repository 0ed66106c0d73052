"""The API over HTTP: results and errors equal those of gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import logging
import shutil
import ssl
import tempfile
import threading
import tracemalloc
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from google.protobuf import json_format
from google.protobuf.message import Message

from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.evaluation.v1 import evaluation_service_pb2, run_service_pb2, run_service_pb2_grpc
from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.run_pb2 import Run, RunSample
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.api.evaluation.v1.summary_pb2 import SummaryOptions
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings, SettingsError
from dramaturg.testing import until
from gateway.app import App
from gateway.http import bodies
from gateway.http.bodies import _inflate
from gateway.http.server import HttpServer
from gateway.http.settings import HttpSettings
from gateway.settings import GatewaySettings, JudgeEntry
from services.alignment.app import App as AlignmentApp
from tests.support.auth import holder, token_settings
from tests.support.certificates import Authority
from tests.support.evaluation_samples import samples
from tests.support.gateway import scripts_request
from tests.support.http_api import PROTOCOLS, Outcome, Request, by_grpc, envelope, opened
from tests.support.http_servers import everything, serve_http
from tests.support.run_service import RUN, ScriptedRuns

RUNS = "/dramaturg.api.evaluation.v1.RunService/"
EVALUATION = "/dramaturg.api.evaluation.v1.EvaluationService/"
LIMIT = 64 * 1024
EVALUATOR = holder("research", "evaluator")
VIEWER = holder("research", "viewer")
SERVICE = holder("", "service")
LATE = "late"
"""A run with times that JSON cannot state."""
ORIGIN = "http://app.example:8000"


class Runs(ScriptedRuns):
    """Runs of which PauseRun hangs until its caller gives up."""

    def __init__(self) -> None:
        super().__init__(3)
        self.pausing = self.cancelled = 0
        self.release = asyncio.Event()

    async def GetRun(self, request: pb.GetRunRequest, context: Any) -> pb.GetRunResponse:
        if request.run_id == LATE:
            response = pb.GetRunResponse()
            response.run.spec.policy.sample_timeout.seconds = 2**62
            return response
        return await super().GetRun(request, context)

    async def WatchRun(self, request: pb.WatchRunRequest, context: Any) -> AsyncIterator[pb.WatchRunResponse]:
        if request.run_id == LATE:
            yield pb.WatchRunResponse()
            response = pb.WatchRunResponse()
            response.event_time.seconds = 2**62
            yield response
            return
        async for response in super().WatchRun(request, context):
            yield response

    async def PauseRun(self, request: pb.PauseRunRequest, context: Any) -> pb.PauseRunResponse:
        self.pausing += 1
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return pb.PauseRunResponse(run=Run(id=request.run_id))


@dataclass
class Running:
    """A gateway over gRPC and HTTP."""

    target: str
    url: str
    runs: Runs
    server: Server

    async def equal(self, request: Request) -> Outcome:
        """The outcome by gRPC, after those by HTTP were found to be equal."""
        expected = await by_grpc(self.target, self.url, request)
        for name, call in PROTOCOLS.items():
            assert await call(self.target, self.url, request) == expected, name
        return expected

    async def post(self, method: str, data: Any, **headers: str) -> tuple[int, Mapping[str, str], bytes]:
        given = {"Content-Type": "application/json", "Authorization": f"Bearer {EVALUATOR.token}"}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.post(self.url + method, data=data, headers=given | named) as response,
        ):
            return response.status, response.headers, await response.read()


@asynccontextmanager
async def running(
    folder: Path,
    http: HttpSettings | None = None,
    *,
    authenticate: bool = True,
    judges: Sequence[JudgeEntry] = (),
    **settings: Any,
) -> AsyncIterator[Running]:
    runs = Runs()  # type: ignore[abstract] # other methods answer UNIMPLEMENTED
    contract = Contract.make(
        run_service_pb2.DESCRIPTOR.services_by_name["RunService"],
        run_service_pb2_grpc.add_RunServiceServicer_to_server,
        runs,
        name="runs",
        version="1.0.0",
        description="Runs for tests.",
    )
    auth = token_settings(folder, EVALUATOR, VIEWER, SERVICE) if authenticate else None
    front = HttpServer(http or HttpSettings(), 0)
    async with (
        App(GatewaySettings(judges=tuple(judges))).open() as contracts,
        Server(
            [*contracts, contract],
            ServerSettings.loopback(max_message_bytes=LIMIT, **settings),
            auth,
            fronts=[front],
        ) as server,
    ):
        yield Running(server.target, front.url, runs, server)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(tmp_path) as started:
        yield started


def metadata(token: str = EVALUATOR.token) -> Mapping[str, str]:
    return (
        {"authorization": f"Bearer {token}", "x-request-id": "fixed"} if token else {"x-request-id": "fixed"}
    )


def reason(outcome: Outcome) -> str:
    return str(getattr(outcome.details[0], "reason", "")) if outcome.details else ""


SUMMARY = evaluation_service_pb2.SummarizeRequest
INVALID = EvaluateScriptsRequest(task=Task(id="t"))
CASES: Mapping[str, tuple[Request, str, str]] = {
    "a call": (Request(RUNS + "ListRuns", [pb.ListRunsRequest()], metadata()), "OK", ""),
    "a stream": (Request(RUNS + "WatchRun", [pb.WatchRunRequest(run_id=RUN)], metadata()), "OK", ""),
    "a stream that fails": (Request(RUNS + "ExportResults", [pb.ExportResultsRequest(run_id=RUN)],
        metadata()), "INTERNAL", ""),
    "a stream of requests": (Request(EVALUATION + "Summarize", [SUMMARY(), SUMMARY(samples=[RunSample()])],
        metadata()), "INVALID_ARGUMENT", "ERROR_REASON_FIELD_INVALID"),
    "an unknown run": (Request(RUNS + "GetRun", [pb.GetRunRequest(run_id="another")], metadata()),
        "NOT_FOUND", "ERROR_REASON_RESOURCE_NOT_FOUND"),
    "an invalid field": (Request(RUNS + "GetRun", [pb.GetRunRequest()], metadata()), "INVALID_ARGUMENT",
        "ERROR_REASON_FIELD_INVALID"),
    "invalid fields of a stream": (Request(EVALUATION + "EvaluateScripts", [INVALID], metadata()),
        "INVALID_ARGUMENT", "ERROR_REASON_FIELD_INVALID"),
    "no judge": (Request(EVALUATION + "EvaluateScripts", [scripts_request()], metadata()),
        "FAILED_PRECONDITION", ""),
    "an unknown method": (Request(RUNS + "Nothing", [pb.GetRunRequest()], metadata()), "UNIMPLEMENTED",
        "ERROR_REASON_NOT_IMPLEMENTED"),
    "an unknown method, without a token": (Request(RUNS + "Nothing", [pb.GetRunRequest()], metadata("")),
        "UNAUTHENTICATED", "ERROR_REASON_UNAUTHENTICATED"),
    "a method that is not implemented": (Request(RUNS + "DeleteRun", [pb.DeleteRunRequest(run_id=RUN)],
        metadata()), "UNIMPLEMENTED", "ERROR_REASON_NOT_IMPLEMENTED"),
    "no token": (Request(RUNS + "ListRuns", [pb.ListRunsRequest()], metadata("")), "UNAUTHENTICATED",
        "ERROR_REASON_UNAUTHENTICATED"),
    "a wrong token": (Request(RUNS + "ListRuns", [pb.ListRunsRequest()], metadata("wrong")),
        "UNAUTHENTICATED", "ERROR_REASON_UNAUTHENTICATED"),
    "no permission": (Request(RUNS + "CancelRun", [pb.CancelRunRequest(run_id=RUN)], metadata(VIEWER.token)),
        "PERMISSION_DENIED", "ERROR_REASON_PERMISSION_DENIED"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
async def test_results_and_errors_equal_those_of_grpc(gateway: Running, name: str) -> None:
    request, code, cause = CASES[name]
    outcome = await gateway.equal(request)
    assert (outcome.code, reason(outcome) if cause else "") == (code, cause)
    assert bool(outcome.messages) == (code == "OK" or name == "a stream that fails")


async def test_deadlines_and_sizes_are_those_of_grpc(gateway: Running) -> None:
    late = Request(RUNS + "PauseRun", [pb.PauseRunRequest(run_id=RUN)], metadata(), timeout=0.3)
    for call in [by_grpc, *PROTOCOLS.values()]:
        assert (await call(gateway.target, gateway.url, late)).code == "DEADLINE_EXCEEDED"
    await until(lambda: gateway.runs.cancelled == gateway.runs.pausing)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("GetRun", pb.GetRunRequest(run_id="x" * (LIMIT + 1))),
        ("WatchRun", pb.WatchRunRequest(run_id="x" * (LIMIT + 1))),
    ],
)
async def test_a_request_that_is_too_large_is_refused_like_by_grpc(
    gateway: Running, method: str, message: Message, caplog: pytest.LogCaptureFixture
) -> None:
    request = Request(RUNS + method, [message], metadata())
    expected = await by_grpc(gateway.target, gateway.url, request)
    assert (expected.code, reason(expected)) == ("RESOURCE_EXHAUSTED", "ERROR_REASON_TOO_LARGE")
    written = len(json_format.MessageToJson(message))
    for name, call in PROTOCOLS.items():
        with caplog.at_level(logging.INFO, "gateway.http"):
            outcome = await call(gateway.target, gateway.url, request)
        if name == "connect-json":
            # The text counts there.
            assert f"the request has {written} bytes" in outcome.message
            assert outcome.details[1:] == expected.details[1:]
        else:
            assert outcome == expected, name
    refused = [one.__dict__["fields"] for one in caplog.records if one.getMessage() == "refused"]
    assert [one["request_id"] for one in refused] == [metadata()["x-request-id"]] * len(PROTOCOLS)


@pytest.mark.parametrize(
    ("method", "body", "field"),
    [
        (RUNS + "ListRuns", '{"pagesize": 5}', "pagesize"),
        (RUNS + "CreateRun", '{"spec": {"dataset": {"url": "x"}}}', "spec.dataset.url"),
        (RUNS + "ListRuns", '{"pageSize": 99999999999999999999}', "pageSize"),
        (RUNS + "CreateRun", '{"spec": {"dataset": {"rowLimit": "x"}}}', "spec.dataset.rowLimit"),
        (RUNS + "CreateRun", '{"spec": {"dataset": {"format": "JSON"}}}', "spec.dataset.format"),
    ],
)
async def test_unknown_and_unreadable_fields_of_json_are_named(
    gateway: Running, method: str, body: str, field: str
) -> None:
    status, _, answer = await gateway.post(method, body)
    error = json.loads(answer)
    assert (status, error["code"]) == (400, "invalid_argument")
    assert error["details"][0]["debug"]["metadata"] == {"field": field}
    assert [one["field"] for one in error["details"][1]["debug"]["fieldViolations"]] == [field]
    words_named = "it must be one of DATASET_FORMAT_JSONL, " in error["message"]
    assert words_named == (field == "spec.dataset.format")


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "{",
        "null",
        '"x"',
        "[" * 50_000,
        '{"pageSize": "x"}',
        '{"pageSize": 1e99}',
        b"\xff",
        '{"a": 1, "a": 2}',
    ],
)
async def test_a_body_that_is_no_message_is_refused_after_authentication(gateway: Running, body: Any) -> None:
    status, _, answer = await gateway.post(RUNS + "ListRuns", body)
    assert (status, json.loads(answer)["code"]) == (400, "invalid_argument")
    status, _, answer = await gateway.post(RUNS + "ListRuns", body, Authorization="Bearer wrong")
    assert (status, json.loads(answer)["code"]) == (401, "unauthenticated")


async def test_compressed_bodies_are_bounded_after_decompression(gateway: Running) -> None:
    fits = gzip.compress(b'{"pageSize": 5}')
    status, _, _ = await gateway.post(RUNS + "ListRuns", fits, Content_Encoding="gzip")
    assert status == 200
    bomb = gzip.compress(b" " * (50 << 20))
    assert len(bomb) < LIMIT
    status, _, answer = await gateway.post(RUNS + "ListRuns", bomb, Content_Encoding="gzip")
    assert (status, json.loads(answer)["code"]) == (429, "resource_exhausted")
    headers = {"Content_Type": "application/connect+json", "Connect_Content_Encoding": "gzip"}
    for data, code in ((bomb, "resource_exhausted"), (b"no gzip", "invalid_argument")):
        _, _, answer = await gateway.post(RUNS + "WatchRun", envelope(data, 1), **headers)
        assert json.loads(opened(answer)[-1][1])["error"]["code"] == code
    status, _, answer = await gateway.post(RUNS + "ListRuns", fits, Content_Encoding="br")
    assert (status, json.loads(answer)["code"]) == (501, "unimplemented")


@pytest.mark.parametrize(
    ("method", "kind", "data"),
    [
        ("ListRuns", "application/json", b"{" + b" " * LIMIT),
        ("WatchRun", "application/connect+json", b"\0" + (LIMIT + 1).to_bytes(4, "big")),
    ],
)
async def test_a_body_that_is_too_large_is_refused_before_its_end(
    gateway: Running, method: str, kind: str, data: bytes
) -> None:
    head = (
        f"POST {RUNS}{method} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\n"
        f"Authorization: Bearer {EVALUATOR.token}\r\nTransfer-Encoding: chunked\r\n\r\n{len(data):x}\r\n"
    )
    host, _, port = gateway.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(head.encode() + data + b"\r\n")
    answer = await asyncio.wait_for(reader.readuntil(b"resource_exhausted"), 20)
    writer.close()
    assert answer.startswith(b"HTTP/1.1 ")


def test_json_of_very_many_values_is_not_read() -> None:
    for body in (b'{"runIds": [' + b"0," * 1_000_000 + b"0]}", b'{"a":' * 1_000_001):
        with pytest.raises(ServiceError, match="JSON of more than 1,000,000 values"):
            bodies._parse(body, pb.CompareRunsRequest)


def test_decompression_ends_at_the_limit() -> None:
    bomb = gzip.compress(b" " * (50 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(ServiceError, match="has more than"):
            _inflate(bomb, LIMIT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * LIMIT


async def test_a_caller_that_goes_away_cancels_its_call(gateway: Running) -> None:
    calls = [
        asyncio.create_task(gateway.post(RUNS + "PauseRun", json.dumps({"runId": RUN}))) for _ in range(3)
    ]
    await until(lambda: gateway.runs.pausing == 3)
    for call in calls:
        call.cancel()
    await until(lambda: gateway.runs.cancelled == 3)


@pytest.mark.parametrize(
    ("token", "status"), [(EVALUATOR.token, b"504 Gateway Timeout"), ("wrong", b"401 Unauthorized")]
)
async def test_a_body_is_awaited_for_known_callers_and_not_for_long(
    tmp_path: Path, token: str, status: bytes
) -> None:
    head = (
        f"POST {RUNS}ListRuns HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {token}\r\nContent-Length: 100\r\n\r\n{{"
    )
    async with running(tmp_path, HttpSettings(body_timeout_seconds=0.3)) as gateway:
        host, _, port = gateway.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(head.encode())
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n"), 20)
        writer.close()
    assert answer == b"HTTP/1.1 " + status + b"\r\n"


async def test_a_stream_of_requests_is_summarized_as_by_grpc(tmp_path: Path) -> None:
    async with (
        AlignmentApp().open() as contracts,
        Server(contracts, ServerSettings.loopback()) as alignment,
        running(
            tmp_path, judges=(JudgeEntry(role="alignment", name="x", target=alignment.target),)
        ) as gateway,
    ):
        messages = [SUMMARY(options=SummaryOptions(seed=1)), SUMMARY(samples=samples("scripts"))]
        outcome = await gateway.equal(Request(EVALUATION + "Summarize", messages, metadata()))
    assert outcome.code == "OK"
    assert [message.ByteSize() > 100 for message in outcome.messages] == [True]


async def test_a_caller_reads_one_large_body_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, end = threading.Semaphore(0), threading.Event()

    def parse(data: bytes, kind: object) -> bytes:
        if data[:1] == b"a":
            begun.release()
            end.wait(30)
        return data[:1]

    monkeypatch.setattr(bodies, "_parse", parse)
    method = pb.DESCRIPTOR.services_by_name["RunService"].methods_by_name["ListRuns"]
    large = bodies.LARGE_BYTES + 1
    calls = [asyncio.create_task(bodies.JsonCodec(method, "a").decode(b"a" * large)) for _ in range(3)]
    assert await asyncio.to_thread(begun.acquire, timeout=30)
    assert await asyncio.wait_for(bodies.JsonCodec(method, "b").decode(b"b" * large), 30) == b"b"
    assert not begun.acquire(blocking=False)
    end.set()
    await asyncio.gather(*calls)


async def test_requests_whose_bodies_are_awaited_count_against_the_limit(tmp_path: Path) -> None:
    head = (
        f"POST {RUNS}ListRuns HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {EVALUATOR.token}\r\nContent-Length: 100\r\n\r\n{{"
    )
    async with running(tmp_path, max_concurrent_calls=2) as gateway:
        host, _, port = gateway.url.removeprefix("http://").partition(":")
        writers = [(await asyncio.open_connection(host, int(port)))[1] for _ in range(2)]
        for writer in writers:
            writer.write(head.encode())
        async with asyncio.timeout(20):
            while (answer := await gateway.post(RUNS + "ListRuns", "{}"))[0] != 429:
                pass
        assert json.loads(answer[2])["details"][0]["debug"]["reason"] == "ERROR_REASON_OVERLOADED"
        for writer in writers:
            writer.close()


async def test_calls_above_the_limit_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path, max_concurrent_calls=2) as gateway:
        body = json.dumps({"runId": RUN})
        calls = [asyncio.create_task(gateway.post(RUNS + "PauseRun", body)) for _ in range(2)]
        await until(lambda: gateway.runs.pausing == 2)
        status, _, answer = await gateway.post(RUNS + "ListRuns", "{}")
        assert status == 429
        assert json.loads(answer)["details"][0]["debug"]["reason"] == "ERROR_REASON_OVERLOADED"
        gateway.runs.release.set()
        assert [status for status, _, _ in await asyncio.gather(*calls)] == [200, 200]


async def test_a_drain_lets_calls_end(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        call = asyncio.create_task(gateway.post(RUNS + "PauseRun", json.dumps({"runId": RUN})))
        await until(lambda: gateway.runs.pausing == 1)
        drain = asyncio.create_task(gateway.server.drain())

        answered = 0
        with contextlib.suppress(aiohttp.ClientError):
            while answered < 1000:
                assert (await gateway.post(RUNS + "ListRuns", "{}"))[0] == 200
                answered += 1
        assert answered < 1000, "new calls are still taken"
        gateway.runs.release.set()
        answer = await call
        assert answer[0] == 200, answer
        await drain


async def test_the_log_has_the_callers_address(gateway: Running, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dramaturg.access")
    forged = {"x_dramaturg_peer": "ipv4:10.0.0.1:1"}
    await gateway.post(RUNS + "ListRuns", "{}", **forged)
    await by_grpc(
        gateway.target,
        gateway.url,
        Request(RUNS + "ListRuns", [pb.ListRunsRequest()], {**metadata(), "x-dramaturg-peer": "forged"}),
    )
    peers = [record.__dict__["fields"]["peer"] for record in caplog.records]
    assert len(peers) == 2
    assert all(peer.startswith("ipv4:127.0.0.1:") for peer in peers), peers


async def test_other_requests_are_refused(gateway: Running) -> None:
    for method, kind, status in (
        (RUNS + "ListRuns", "text/plain", 415),
        (RUNS + "ListRuns", "application/connect+json", 415),
        (RUNS + "WatchRun", "application/json", 415),
        ("/grpc.health.v1.Health/Check", "application/proto", 501),
        ("/", "application/json", 404),
    ):
        assert (await gateway.post(method, "{}", Content_Type=kind))[0] == status, (method, kind)
    for method, kind, accepted in (
        (RUNS + "ListRuns", "text/plain", "application/json"),
        (RUNS + "WatchRun", "application/json", "application/connect+json"),
        ("/v1/evaluate", "application/proto", "application/json"),
    ):
        _, headers, body = await gateway.post(method, "{}", Content_Type=kind)
        assert accepted in json.loads(body)["message"]
        assert kind not in headers["Accept-Post"].split(", ")
    assert (await gateway.post(RUNS + "ListRuns", "{}", Connect_Protocol_Version="2"))[0] == 400
    assert (await gateway.post(RUNS + "ListRuns", "{}", Connect_Timeout_Ms="soon"))[0] == 400
    async with aiohttp.ClientSession() as session, session.get(gateway.url + RUNS + "ListRuns") as response:
        assert response.status == 405


async def test_pages_of_other_origins_are_refused(gateway: Running, tmp_path: Path) -> None:
    status, headers, _ = await gateway.post(RUNS + "ListRuns", "{}", Origin=ORIGIN)
    assert status == 403
    assert "Access-Control-Allow-Origin" not in headers
    async with running(tmp_path, HttpSettings(allowed_origins=(ORIGIN,))) as allowing:
        status, headers, _ = await allowing.post(RUNS + "ListRuns", "{}", Origin=ORIGIN)
        assert (status, headers["Access-Control-Allow-Origin"]) == (200, ORIGIN)
        assert (await allowing.post(RUNS + "ListRuns", "{}", Origin="http://other"))[0] == 403


PAGE = """
<body>waiting<script>
const call = (method, type, body) => fetch(`%(url)s/dramaturg.api.evaluation.v1.RunService/${method}`, {
  method: "POST", body, headers: {"Content-Type": type, "Authorization": "Bearer %(token)s"},
});
(async () => {
  try {
    const runs = await (await call("ListRuns", "application/json", "{}")).json();
    const web = await call("ListRuns", "application/grpc-web+proto", new Uint8Array(5));
    const bytes = new Uint8Array(await web.arrayBuffer());
    const status = new TextDecoder().decode(bytes).match(/grpc-status: 0/);
    document.body.textContent = `runs ${runs.runs.length} trailers ${status}`;
  } catch (error) { document.body.textContent = `failed: ${error}`; }
})();
</script></body>
"""


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
@pytest.mark.parametrize("allowed", [True, False])
async def test_a_page_in_a_browser(tmp_path: Path, *, allowed: bool) -> None:
    html = ""

    async def page(request: web.Request) -> web.Response:
        return web.Response(text=html, content_type="text/html")

    async with serve_http(everything(page)) as origin:
        http = HttpSettings(allowed_origins=(origin,) if allowed else ())
        async with running(tmp_path, http) as gateway:
            html = PAGE % {"url": gateway.url, "token": EVALUATOR.token}
            with tempfile.TemporaryDirectory() as profile:
                browser = await asyncio.create_subprocess_exec(
                    *(
                        "chromium",
                        "--headless",
                        "--no-sandbox",
                        "--disable-gpu",
                        "--virtual-time-budget=20000",
                    ),
                    *(f"--user-data-dir={profile}", "--dump-dom", f"{origin}/"),
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.DEVNULL,
                )
                output, _ = await asyncio.wait_for(browser.communicate(), 60)
    expected = b"<body>runs 2 trailers grpc-status: 0</body>" if allowed else b"<body>failed: TypeError"
    assert expected in output, output


async def test_it_has_the_certificates_of_the_server(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    mine, client = authority.issue("server"), authority.issue("client")
    files: dict[str, Any] = {
        "tls_certificate_file": mine.certificate,
        "tls_private_key_file": mine.private_key,
    }
    async with running(tmp_path, tls_client_ca_file=authority.certificate, **files) as gateway:
        assert gateway.url.startswith("https://")
        with pytest.raises((aiohttp.ClientError, OSError)):
            await _over_tls(gateway.url, authority, None)
        assert await _over_tls(gateway.url, authority, client) == 200
    with pytest.raises(SettingsError, match="tls_client_ca_file"):
        async with running(
            tmp_path,
            HttpSettings(**files),
            authenticate=False,
            tls_client_ca_file=authority.certificate,
            **files,
        ):
            pass


async def _over_tls(url: str, authority: Authority, client: Any) -> int:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    if client is not None:
        context.load_cert_chain(client.certificate, client.private_key)
    async with (
        aiohttp.ClientSession() as session,
        session.post(url + RUNS + "ListRuns", json={}, headers=dict(metadata()), ssl=context) as response,
    ):
        return response.status


async def test_a_response_that_json_cannot_state_is_a_typed_error(gateway: Running) -> None:
    status, _, body = await gateway.post(RUNS + "GetRun", f'{{"runId": "{LATE}"}}')
    assert (status, json.loads(body)["code"]) == (500, "internal")
    request = envelope(f'{{"runId": "{LATE}"}}'.encode())
    status, _, body = await gateway.post(RUNS + "WatchRun", request, Content_Type="application/connect+json")
    (_, first), (flags, end) = opened(body)
    assert (status, first, flags, json.loads(end)["error"]["code"]) == (200, b"{}", 2, "internal")
