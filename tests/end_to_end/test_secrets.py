"""Secrets are planted everywhere that one can be, and looked for in everything that comes out."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from dramaturg.api.evaluation.v1 import run_service_pb2 as pb
from dramaturg.api.evaluation.v1.evaluation_service_pb2_grpc import EvaluationServiceStub
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import CheckJudgeRequest, ListJudgesRequest
from dramaturg.api.evaluation.v1.judge_directory_service_pb2_grpc import JudgeDirectoryServiceStub
from dramaturg.api.evaluation.v1.run_pb2 import Run
from dramaturg.api.evaluation.v1.run_service_pb2_grpc import RunServiceStub
from dramaturg.api.identity.v1.identity_service_pb2 import GetIdentityRequest
from dramaturg.api.identity.v1.identity_service_pb2_grpc import IdentityServiceStub
from dramaturg.service.channel import open_channel
from dramaturg.service.settings import ChannelSettings
from gateway.runs.records import ACTIVE
from tests.support.auth import holder, write_tokens
from tests.support.certificates import Authority
from tests.support.command_line import ROOT
from tests.support.engines import lines, script_rows, scripts_spec
from tests.support.gateway import scripts_request
from tests.support.openai_server import Answer, OpenAIServer
from tests.support.processes import ForkedService, ServiceProcess
from tests.support.scripted_model import judge

pytestmark = [pytest.mark.endurance, pytest.mark.timeout(400)]

_PATIENCE_SECONDS = 150

PROVIDER_KEY = "sk-pl4nted-provider-key-0123456789"
PASSWORD = "pl4nted-database-password"
EVALUATOR = holder("team-a", "evaluator")
BROKEN = "break the model"


def echo(body: dict[str, Any]) -> Any:
    """A provider that shows the key in its errors, as some do."""
    if BROKEN in json.dumps(body):
        return Answer(
            f"Incorrect API key provided: {PROVIDER_KEY}.", status=401, error_code="invalid_api_key"
        )
    return judge(body)


@dataclass
class Planted:
    """The secrets, and everything that came out."""

    secrets: dict[str, str]
    out: list[tuple[str, str]] = field(default_factory=list)

    def note(self, where: str, what: object) -> None:
        """Takes an output: a message, an error, or text."""
        self.out.append((where, what if isinstance(what, str) else f"{what!r} {what}"))

    async def note_call(self, where: str, call: Any) -> Any:
        """Makes a call, and takes what comes of it."""
        try:
            if isinstance(call, grpc.aio.UnaryStreamCall):
                answer = [response async for response in call]
            else:
                answer = await call
        except grpc.aio.AioRpcError as error:
            self.note(
                where, f"{error!r} {error.details()} {error.trailing_metadata()} {error.debug_error_string()}"
            )
            return None
        self.note(where, answer)
        return answer

    def found(self) -> set[tuple[str, str]]:
        """Which secret came out where."""
        return {
            (name, where)
            for where, text in self.out
            for name, secret in self.secrets.items()
            if secret in text
        }


def web_token(folder: Path) -> str:
    """A JWT, and the file of the key that signs it."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = json.loads(ECAlgorithm.to_jwk(key.public_key()))
    (folder / "jwks.json").write_text(json.dumps({"keys": [{**public, "kid": "k"}]}))
    claims = {
        "iss": "https://issuer.example",
        "aud": "dramaturg",
        "sub": "alice",
        "exp": datetime.now(UTC) + timedelta(hours=1),
        "tenant": "team-a",
        "roles": ["operator"],
    }
    return jwt.encode(claims, key, "ES256", headers={"kid": "k"})


@pytest.fixture
def issuer(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


@pytest.fixture
def environment(tmp_path: Path, issuer: Authority, postgres_url: str) -> dict[str, str]:
    """The variables of a platform with every kind of secret."""
    served = issuer.issue("localhost")
    write_tokens(tmp_path, EVALUATOR)
    database = postgres_url.replace("postgres@", f"postgres:{PASSWORD}@")
    return {
        "DRAMATURG_SERVER_TLS_CERTIFICATE_FILE": str(served.certificate),
        "DRAMATURG_SERVER_TLS_PRIVATE_KEY_FILE": str(served.private_key),
        "DRAMATURG_SERVER_LOG_LEVEL": "DEBUG",
        "DRAMATURG_SERVER_DRAIN_GRACE_SECONDS": "1",
        "DRAMATURG_AUTH_TOKENS_FILE": str(tmp_path / "tokens.json"),
        "DRAMATURG_AUTH_JWKS_FILE": str(tmp_path / "jwks.json"),
        "DRAMATURG_AUTH_JWT_ISSUER": "https://issuer.example",
        "DRAMATURG_AUTH_JWT_AUDIENCE": "dramaturg",
        "DRAMATURG_AUTH_AUDIT": str(tmp_path / "audit.jsonl"),
        "DRAMATURG_GENERATION_LEDGER_URL": database,
        "DRAMATURG_RUNS_ENABLED": "true",
        "DRAMATURG_RUNS_OUTAGE_TIMEOUT_SECONDS": "0",
        "DRAMATURG_RUNS_URL": database,
        "OPENAI_API_KEY": PROVIDER_KEY,
        "MODEL": "test-model",
    }


@pytest.fixture
def planted(tmp_path: Path, environment: dict[str, str]) -> Iterator[Planted]:
    token = web_token(tmp_path)
    private_key = Path(environment["DRAMATURG_SERVER_TLS_PRIVATE_KEY_FILE"]).read_text().splitlines()[1]
    made = Planted(
        {
            "provider key": PROVIDER_KEY,
            "bearer token": EVALUATOR.token,
            "JWT": token,
            "JWT's signature": token.rpartition(".")[2],
            "TLS key": private_key,
            "database password": PASSWORD,
        }
    )
    yield made
    for file in (tmp_path / "audit.jsonl", *tmp_path.glob("*.log")):
        if file.exists():
            made.note(file.name, file.read_text())
    assert made.out
    assert made.found() == set()


@asynccontextmanager
async def platform(
    folder: Path, issuer: Authority, environment: dict[str, str]
) -> AsyncIterator[ServiceProcess]:
    """`dramaturg up`, before a provider."""

    def connect(target: str) -> grpc.aio.Channel:
        return open_channel(target, ChannelSettings(tls_ca_file=issuer.certificate))

    async with OpenAIServer(echo, api_key=PROVIDER_KEY) as model:
        variables = {**environment, "OPENAI_BASE_URL": model.base_url}
        process = ForkedService(folder, variables, "up", connect=connect)
        try:
            await process.start()
            yield process
        finally:
            await process.stop()


def as_caller(process: ServiceProcess, issuer: Authority, folder: Path, token: str) -> grpc.aio.Channel:
    """A channel with a token."""
    file = folder / "caller"
    file.write_text(token)
    return open_channel(process.target, ChannelSettings(tls_ca_file=issuer.certificate, token_file=file))


async def test_nothing_comes_out_of_a_platform_at_work(
    tmp_path: Path, issuer: Authority, environment: dict[str, str], planted: Planted
) -> None:
    good, bad = scripts_request(), scripts_request()
    bad.task.goal = BROKEN
    async with platform(tmp_path, issuer, environment) as process:
        for token in (planted.secrets["JWT"], EVALUATOR.token):
            async with as_caller(process, issuer, tmp_path, token) as channel:
                evaluations = EvaluationServiceStub(channel)
                events = await planted.note_call("evaluation", evaluations.EvaluateScripts(good))
                assert events[-1].WhichOneof("event") == "result"
                await planted.note_call("failing evaluation", evaluations.EvaluateScripts(bad))
                await observe(channel, planted)
                await run_to_the_end(channel, planted)
        for wrong in (f"{EVALUATOR.token}x", f"{planted.secrets['JWT']}x", "wrong"):
            async with as_caller(process, issuer, tmp_path, wrong) as channel:
                assert (
                    await planted.note_call("refusal", RunServiceStub(channel).ListRuns(pb.ListRunsRequest()))
                    is None
                )
    planted.note("log", process.log.read_text())
    text = dict(planted.out)
    assert "dramaturg.access" in text["log"]
    assert "UNAUTHENTICATED" in text["refusal"]
    assert "401" in text["log"] or "UNAUTHENTICATED" in text["failing evaluation"]
    assert "CreateRun" in (tmp_path / "audit.jsonl").read_text()


async def observe(channel: grpc.aio.Channel, planted: Planted) -> None:
    """Asks for everything that the platform says of itself."""
    directory, identity = JudgeDirectoryServiceStub(channel), IdentityServiceStub(channel)
    judges = await planted.note_call("judges", directory.ListJudges(ListJudgesRequest()))
    for entry in judges.judges:
        request = CheckJudgeRequest(role=entry.role, judge=entry.name)
        await planted.note_call("judge", directory.CheckJudge(request))
    contract = "dramaturg.api.evaluation.v1.RunService"
    await planted.note_call("identity", identity.GetIdentity(GetIdentityRequest(contract=contract)))
    await planted.note_call("identity", identity.GetIdentity(GetIdentityRequest(contract="nonsense")))


async def run_to_the_end(channel: grpc.aio.Channel, planted: Planted) -> None:
    """A run of which one sample fails, its results and its report."""
    runs = RunServiceStub(channel)
    rows: Any = script_rows(3)
    rows[1].task.goal = BROKEN
    spec = scripts_spec()
    spec.dataset.content = lines(rows)
    run: Run = (await planted.note_call("run", runs.CreateRun(pb.CreateRunRequest(spec=spec)))).run
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while run.state in ACTIVE:
            await asyncio.sleep(0.1)
            run = (await planted.note_call("run", runs.GetRun(pb.GetRunRequest(run_id=run.id)))).run
    asked: dict[str, Any] = {
        "samples": runs.ListSamples(pb.ListSamplesRequest(run_id=run.id)),
        "results": runs.ListResults(pb.ListResultsRequest(run_id=run.id)),
        "export": runs.ExportResults(pb.ExportResultsRequest(run_id=run.id, format=pb.EXPORT_FORMAT_JSONL)),
        "report": runs.GetReport(pb.GetReportRequest(run_id=run.id)),
        "events": runs.WatchRun(pb.WatchRunRequest(run_id=run.id)),
    }
    for where, call in asked.items():
        assert await planted.note_call(where, call), where


WRONG: dict[str, dict[str, str]] = {
    "a database that is not there": {
        "DRAMATURG_RUNS_URL": f"postgresql://dramaturg:{PASSWORD}@127.0.0.1:1/runs"
    },
    "a ledger that is not there": {
        "DRAMATURG_GENERATION_LEDGER_URL": f"postgresql://dramaturg:{PASSWORD}@127.0.0.1:1/ledger"
    },
    "a ledger of another kind": {"DRAMATURG_GENERATION_LEDGER_URL": f"oracle://d:{PASSWORD}@127.0.0.1/l"},
    "a database of another kind": {"DRAMATURG_RUNS_URL": f"oracle://dramaturg:{PASSWORD}@127.0.0.1/runs"},
    "an address that is no URL": {"DRAMATURG_RUNS_URL": f"dramaturg:{PASSWORD}@127.0.0.1"},
    "a port that is no number": {"DRAMATURG_RUNS_URL": f"postgresql://d:{PASSWORD}@127.0.0.1:port/runs"},
    "identities that are no JSON": {"DRAMATURG_AUTH_IDENTITIES": f"[{{{EVALUATOR.token}"},
    "tokens in the clear": {"DRAMATURG_AUTH_TOKENS_FILE": "clear.json"},
    "a key in the place of a certificate": {"DRAMATURG_SERVER_TLS_CERTIFICATE_FILE": "key"},
    "a token in the place of keys": {"DRAMATURG_AUTH_JWKS_FILE": "token"},
    "a key in the place of a file": {"DRAMATURG_GENERATION_PROVIDERS": f'{{"p": "{PROVIDER_KEY}"}}'},
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_nothing_comes_out_of_settings_that_are_refused(
    tmp_path: Path, environment: dict[str, str], planted: Planted, wrong: str
) -> None:
    token = tmp_path / "token"
    token.write_text(planted.secrets["JWT"])
    clear = tmp_path / "clear.json"
    clear.write_text(
        json.dumps({"tokens": [{"sha256": EVALUATOR.token, "principal": "a", "roles": ["viewer"]}]})
    )
    files = {"clear.json": clear, "token": token, "key": environment["DRAMATURG_SERVER_TLS_PRIVATE_KEY_FILE"]}
    changed = {name: str(files.get(value, value)) for name, value in WRONG[wrong].items()}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dramaturg", "up", "--port", "0"),
        cwd=ROOT,
        env={**os.environ, **environment, **changed},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    planted.note(wrong, output.decode())
    assert process.returncode not in {0, None}, output.decode()[-2000:]
