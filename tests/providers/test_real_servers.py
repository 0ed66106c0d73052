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
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
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
from tests.support.evaluations import decision
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


def scripts() -> Iterable[Message]:
    for number in range(SAMPLES):
        yield EvaluateScriptsRequest(
            task=Task(goal=f"Paint wall {number}", constraints=["with a brush"]),
            candidates=[Candidate(id="a", text="1. Buy paint.\n2. Take a brush.\n3. Paint the wall.")],
        )


def pairs() -> Iterable[Message]:
    for number in range(SAMPLES):
        yield EvaluatePairsRequest(
            id=str(number),
            source=f"The council met on day {number} and raised the tax on water.",
            first=ComparedText(text="The council raised the water tax."),
            second=ComparedText(text="There was a meeting."),
        )


def decisions() -> Iterable[Message]:
    for number in range(SAMPLES):
        yield EvaluateDecisionsRequest(decision=decision(f"is at home on day {number}", id=str(number)))


def dialogues() -> Iterable[Message]:
    task = SimulationTask(name="Chess", description="Play.", kind=dialogue_pb2.SIMULATION_KIND_STATEFUL)
    for number in range(SAMPLES):
        said = Utterance(speaker=dialogue_pb2.SPEAKER_USER, text=f"e{number}")
        yield EvaluateDialoguesRequest(script=DialogueScript(id=str(number), task=task, utterances=[said]))


def graphs() -> Iterable[Message]:
    for number in range(SAMPLES):
        graph = message("a>b b>c", {name: f"{name} of {number}" for name in "abc"}, f"g{number}")
        graph.scenario = f"bake cake {number}"
        yield EvaluateGraphsRequest(reference=graph)


KINDS: dict[str, tuple[Callable[[], Iterable[Message]], tuple[str, ...]]] = {
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
def litellm(upstream: OpenAIServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of LiteLLM's proxy, which refuses a temperature for gpt-5-mini by itself."""
    program, folder, port = (
        installed("litellm", "bin/litellm"),
        tmp_path_factory.mktemp("litellm"),
        free_port(),
    )
    models = [
        {
            "model_name": name,
            "litellm_params": {
                "model": f"openai/{name}",
                "api_base": upstream.base_url,
                "api_key": "x",
                "max_retries": 0,
            },
        }
        for name in ("gpt-5-mini", "plain")
    ]
    config = folder / "config.yaml"
    # The proxy asks once, so that each call of the model behind it is one of ours.
    settings = {"model_list": models, "router_settings": {"num_retries": 0}}
    config.write_text(json.dumps(settings), encoding="utf-8")
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
