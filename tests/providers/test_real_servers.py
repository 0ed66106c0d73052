"""Every kind of evaluation, through servers of other projects.

``make test-servers`` installs the servers under ``.tools/servers`` and runs this module. A server that is not
installed is skipped. Behind LiteLLM's proxy and behind aimock stands ``tests.support.openai_server``;
transformers serves a model of random weights (``tests.support.tiny_model``). llama-cpp-python is not among
them: its installation compiles for longer than 17 minutes on two cores.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message as ProtoMessage
from typer.testing import CliRunner

from dramaturg.api.common.v1 import dialogue_pb2
from dramaturg.api.common.v1.dialogue_pb2 import SimulationTask, Utterance
from dramaturg.api.common.v1.script_pb2 import Candidate, Task
from dramaturg.api.evaluation.v1.decisions_pb2 import EvaluateDecisionsRequest
from dramaturg.api.evaluation.v1.dialogues_pb2 import DialogueScript, EvaluateDialoguesRequest
from dramaturg.api.evaluation.v1.graphs_pb2 import EvaluateGraphsRequest
from dramaturg.api.evaluation.v1.pairs_pb2 import ComparedText, EvaluatePairsRequest
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.cli.main import app
from dramaturg.cli.platform import PARTIAL
from services.generation.calls import Call, Message, ProviderError, Role, Sampling, Until
from services.generation.providers.base import Provider
from services.generation.providers.factory import open_providers
from tests.services.generation.providers.test_packages import FORM, JSON, PNG
from tests.support.api_imitations import IMITATIONS, KEY, Fault, ImitationServer, Said, imitate
from tests.support.evaluations import decision
from tests.support.generation import generation_settings
from tests.support.graphs import message
from tests.support.openai_server import Answer, Body, OpenAIServer, default_responder, in_thread
from tests.support.ports import free_port

pytestmark = [pytest.mark.real_servers, pytest.mark.timeout(600)]

SERVERS = Path(__file__).resolve().parents[2] / ".tools" / "servers"
SAMPLES = 3
MOST_CALLS_A_NEEDED = 1.3
START_SECONDS = 120.0
TINY_MODEL = Path(__file__).resolve().parents[1] / "support" / "tiny_model.py"
POST = "POST /v1/chat/completions"
LITELLM_KEY = "sk-for-this-test-alone-0123456789abcdef"


def scripts() -> Iterable[ProtoMessage]:
    for number in range(SAMPLES):
        yield EvaluateScriptsRequest(
            task=Task(goal=f"Paint wall {number}", constraints=["with a brush"]),
            candidates=[Candidate(id="a", text="1. Buy paint.\n2. Take a brush.\n3. Paint the wall.")],
        )


def pairs() -> Iterable[ProtoMessage]:
    for number in range(SAMPLES):
        yield EvaluatePairsRequest(
            id=str(number),
            source=f"The council met on day {number} and raised the tax on water.",
            first=ComparedText(text="The council raised the water tax."),
            second=ComparedText(text="There was a meeting."),
        )


def decisions() -> Iterable[ProtoMessage]:
    for number in range(SAMPLES):
        yield EvaluateDecisionsRequest(decision=decision(f"is at home on day {number}", id=str(number)))


def dialogues() -> Iterable[ProtoMessage]:
    task = SimulationTask(name="Chess", description="Play.", kind=dialogue_pb2.SIMULATION_KIND_STATEFUL)
    for number in range(SAMPLES):
        said = Utterance(speaker=dialogue_pb2.SPEAKER_USER, text=f"e{number}")
        yield EvaluateDialoguesRequest(script=DialogueScript(id=str(number), task=task, utterances=[said]))


def graphs() -> Iterable[ProtoMessage]:
    for number in range(SAMPLES):
        graph = message("a>b b>c", {name: f"{name} of {number}" for name in "abc"}, f"g{number}")
        graph.scenario = f"bake cake {number}"
        yield EvaluateGraphsRequest(reference=graph)


KINDS: dict[str, tuple[Callable[[], Iterable[ProtoMessage]], tuple[str, ...]]] = {
    "scripts": (scripts, ()),
    "pairs": (pairs, ("--sweep", "0", "--set", "text_metrics=")),
    "decisions": (decisions, ("--model", "MODEL")),
    "dialogues": (dialogues, ("--model", "MODEL")),
    "graphs": (graphs, ("--model", "MODEL")),
}


@contextmanager
def process(arguments: list[str | Path], log: Path, ready: str, **environment: str) -> Iterator[None]:
    """A server that runs until the end of the block.

    Raises:
        AssertionError: It does not answer at ``ready``.
    """
    with log.open("wb") as output:
        started = subprocess.Popen(
            [*map(str, arguments)], stdout=output, stderr=output, env={**os.environ, **environment}
        )
    try:
        _wait(ready, started, log)
        yield
    finally:
        started.terminate()
        try:
            started.wait(20)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def _wait(ready: str, started: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        assert started.poll() is None, log.read_text(errors="replace")[-2000:]
        try:
            with urllib.request.urlopen(ready, timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    raise AssertionError(f"no answer at {ready}: {log.read_text(errors='replace')[-2000:]}")


def installed(name: str, program: str) -> Path:
    """A program of a server's environment; skips the test where it is absent."""
    path = SERVERS / name / program
    if not path.exists():
        pytest.skip(f"{name} is not installed: make test-servers")
    return path


def evaluate(kind: str, model: str, folder: Path) -> dict[str, Any]:
    """Evaluates the rows of a kind, and returns the summary."""
    make, options = KINDS[kind]
    rows = folder / f"{kind}.jsonl"
    rows.write_text("".join(json.dumps(MessageToDict(one)) + "\n" for one in make()), encoding="utf-8")
    told = [model if option == "MODEL" else option for option in options]
    result = CliRunner().invoke(
        app,
        ["eval", "--kind", kind, str(rows), *told, "--out", str(folder / kind), "--json", "--timeout", "300"],
    )
    # The model behind the proxies is no good judge: some kinds have a low coverage, or none.
    assert result.exit_code in (0, 1, PARTIAL), result.output
    summary: dict[str, Any] = json.loads(result.stdout)
    assert (summary["sample_count"], summary["failed_sample_count"]) == (SAMPLES, 0)
    text = (folder / kind / "results.jsonl").read_text(encoding="utf-8")
    assert len(text.splitlines()) == SAMPLES
    assert "ABSTAIN_REASON_JUDGE_UNAVAILABLE" not in text
    return summary


@pytest.fixture(scope="module")
def upstream() -> Iterator[OpenAIServer]:
    """The model behind the proxy."""

    def answer(body: Body) -> str | Answer:
        if not body["messages"]:
            return Answer("messages: at least one is needed", status=400)
        return default_responder(body) if "response_format" in body else "1. Begin.\n2. End. Option 1."

    with in_thread(OpenAIServer(answer)) as server:
        yield server


@pytest.fixture(scope="module")
def imitations() -> Iterator[Mapping[str, ImitationServer]]:
    """A server of the API of each kind of provider."""
    with start_blocking_portal() as portal, ExitStack() as stack:
        yield {
            kind: stack.enter_context(portal.wrap_async_context_manager(imitate(kind, lambda _: Said())))
            for kind in IMITATIONS
        }


AT: Mapping[str, Callable[[str], Body]] = {
    "chat": lambda url: {"model": "openai/m", "api_base": f"{url}/v1", "api_key": KEY},
    "openai": lambda url: {"model": "openai/responses/m", "api_base": f"{url}/v1", "api_key": KEY},
    "anthropic": lambda url: {"model": "anthropic/m", "api_base": url, "api_key": KEY},
    "google": lambda url: {"model": "gemini/gemini-2.5-flash", "api_base": f"{url}/v1", "api_key": KEY},
    "bedrock": lambda url: {
        "model": "bedrock/converse/m",
        "aws_bedrock_runtime_endpoint": url,
        "aws_region_name": "us-east-1",
        "aws_access_key_id": "id",
        "aws_secret_access_key": KEY,
    },
}
"""How LiteLLM is told to call a server of each API."""


@pytest.fixture(scope="module")
def litellm(
    upstream: OpenAIServer,
    imitations: Mapping[str, ImitationServer],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """The address of LiteLLM's proxy, which refuses a temperature for gpt-5-mini by itself."""
    program, folder, port = (
        installed("litellm", "bin/litellm"),
        tmp_path_factory.mktemp("litellm"),
        free_port(),
    )
    at = {
        name: {"model": f"openai/{name}", "api_base": upstream.base_url, "api_key": "x"}
        for name in ("gpt-5-mini", "plain")
    } | {kind: AT[kind](server.base_url) for kind, server in imitations.items()}
    models = [{"model_name": name, "litellm_params": told | {"max_retries": 0}} for name, told in at.items()]
    config = folder / "config.yaml"
    # The proxy asks once, so that each call of the model behind it is one of ours.
    router = {"num_retries": 0, "disable_cooldowns": True}
    config.write_text(json.dumps({"model_list": models, "router_settings": router}), encoding="utf-8")
    with process(
        [program, "--config", config, "--port", str(port), "--host", "127.0.0.1"],
        folder / "log",
        f"http://127.0.0.1:{port}/health/liveliness",
        LITELLM_LOCAL_MODEL_COST_MAP="True",
        LITELLM_TELEMETRY="False",
        LITELLM_MASTER_KEY=LITELLM_KEY,
    ):
        yield f"http://127.0.0.1:{port}/v1"


@pytest.fixture(scope="module")
def aimock(upstream: OpenAIServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of aimock, which passes requests on."""
    program, folder, port = (
        installed("aimock", "node_modules/.bin/llmock"),
        tmp_path_factory.mktemp("aimock"),
        free_port(),
    )
    (folder / "fixtures").mkdir()
    (folder / "fixtures" / "none.json").write_text('{"fixtures": []}', encoding="utf-8")
    behind = upstream.base_url.removesuffix("/v1")
    with process(
        [program, "-p", str(port), "-f", folder / "fixtures", "--proxy-only", "--provider-openai", behind],
        folder / "log",
        f"http://127.0.0.1:{port}/v1/models",
    ):
        yield f"http://127.0.0.1:{port}/v1"


@pytest.fixture(scope="module")
def transformers_log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, Path]]:
    """The address of transformers' server, its model, and its log."""
    program, python = installed("transformers", "bin/transformers"), installed("transformers", "bin/python")
    folder, port = tmp_path_factory.mktemp("transformers"), free_port()
    model, log = folder / "model", folder / "log"
    subprocess.run([python, TINY_MODEL, model], check=True, capture_output=True)
    arguments: list[str | Path] = [
        program,
        "serve",
        model,
        "--port",
        str(port),
        "--host",
        "127.0.0.1",
        "--device",
        "cpu",
    ]
    with process(arguments, log, f"http://127.0.0.1:{port}/health", HF_HUB_OFFLINE="1"):
        yield f"http://127.0.0.1:{port}/v1", str(model), log


@pytest.mark.parametrize("kind", KINDS)
def test_answers_of_random_weights_are_accounted_for(
    kind: str, transformers_log: tuple[str, str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, model, log = transformers_log
    monkeypatch.setenv("OPENAI_BASE_URL", address)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("MODEL", model)
    monkeypatch.setenv("DRAMATURG_GENERATION_LEDGER", ":memory:")
    before = log.read_text().count(POST)
    summary = evaluate(kind, model, tmp_path)
    bought = log.read_text().count(POST) - before
    usage = summary["usage"]
    assert usage["provider_call_count"] == bought
    assert bought <= MOST_CALLS_A_NEEDED * (bought - usage["retried_call_count"])
    assert summary["judgement_count"] >= SAMPLES
    assert set(summary["abstentions_by_reason"]) <= {"UNPARSABLE", "TRUNCATED", "EMPTY"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("proxy", "model"), [("litellm", "gpt-5-mini"), ("litellm", "plain"), ("aimock", "plain")]
)
def test_every_verdict_is_accounted_for(
    kind: str,
    proxy: str,
    model: str,
    request: pytest.FixtureRequest,
    upstream: OpenAIServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", request.getfixturevalue(proxy))
    monkeypatch.setenv("OPENAI_API_KEY", LITELLM_KEY)
    monkeypatch.setenv("MODEL", model)
    monkeypatch.setenv("DRAMATURG_GENERATION_LEDGER", ":memory:")
    upstream.forget()
    summary = evaluate(kind, model, tmp_path)
    bought, needed = upstream.answered.total(), len(upstream.answered)
    assert needed
    assert bought <= MOST_CALLS_A_NEEDED * needed
    # An attempt that was given up may have been answered after that.
    counted, retried = summary["usage"]["provider_call_count"], summary["usage"]["retried_call_count"]
    assert counted <= bought <= counted + retried


CONVERSATION = (
    Message(Role.SYSTEM, "Be brief."),
    Message(Role.USER, "One."),
    Message(Role.ASSISTANT, "Two."),
    Message(Role.USER, "Alike?", (PNG,)),
)
SAMPLING = Sampling(temperature=0.0, top_p=0.5, max_output_tokens=99, stop=("END",), seed=7)
CASES: Mapping[str, tuple[Call, Said | Fault]] = {
    "text": (Call("m", CONVERSATION[:2], SAMPLING), Said()),
    "conversation with an image": (Call("m", CONVERSATION), Said()),
    "JSON": (Call("m", CONVERSATION[:2], json_form=FORM), Said(JSON)),
    "truncated, from the cache": (
        Call("m", CONVERSATION[:2]),
        Said("rea", finish="length", counts=(1000, 900, 4, 0)),
    ),
    "reasoning": (Call("m", CONVERSATION[:2]), Said(thoughts="Let me see.")),
    "filtered": (Call("m", CONVERSATION[:2]), Said("", finish="filter")),
    "a refused key": (Call("m", CONVERSATION[:2]), Fault(401, "The key is not valid")),
    "a model that is not there": (Call("m", CONVERSATION[:2]), Fault(404, "model: m was not found")),
    "a rate limit": (Call("m", CONVERSATION[:2]), Fault(429, "Too many requests")),
    "another refusal": (Call("m", CONVERSATION[:2]), Fault(400, "No.")),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", AT)
async def test_litellm_reads_each_api_as_the_kind_of_provider_does(
    kind: str,
    case: str,
    litellm: str,
    imitations: Mapping[str, ImitationServer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    server, (call, said) = imitations[kind], CASES[case]
    server.script = lambda _: said
    key = {} if kind == "bedrock" else {"api_key_env": "KEY"}
    settings = generation_settings(
        providers={
            "own": {**server.settings, **key},
            "theirs": {"kind": "chat", "base_url": litellm, "api_key_env": "PROXY_KEY"},
        }
    )
    own, theirs = open_providers(settings, {"KEY": KEY, "PROXY_KEY": LITELLM_KEY})
    try:
        seen = [
            await _outcome(opened.checked, replace(call, model=model), server)
            for opened, model in ((own, "m"), (theirs, kind))
        ]
    finally:
        await own.provider.close()
        await theirs.provider.close()
    assert seen[0] == seen[1]


async def _outcome(provider: Provider | None, call: Call, server: ImitationServer) -> Body:
    """What was asked of a server, and what its answer means."""
    assert provider is not None
    server.asked.clear()
    try:
        answer = await provider.complete(call, Until(20))
    except ProviderError as error:
        return {"failure": error.kind, "status": error.status}
    assert answer.counts is not None
    asked = server.asked[-1]
    # The proxy marks no part for the prompt cache, and sends schemas in other forms to some APIs.
    same = replace(asked, model="m", marked=False, schema=None, enforces_json=False)
    # It estimates the tokens of reasoning where an API does not state them.
    counts = replace(answer.counts, reasoning=0)
    return {
        "asked": same,
        "text": answer.text,
        "end": answer.finish,
        "counts": counts,
        "reasoning": answer.reasoning,
    }
