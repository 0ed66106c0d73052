"""A model file: what is refused before a call, and its process, with a stand-in for llama.cpp."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import textwrap
from pathlib import Path

import pytest

from dramaturg.service.settings import SettingsError
from services.generation.calls import Call, Message, ProviderError, Role, Until
from services.generation.providers.factory import open_providers
from services.generation.providers.model_file import ModelFileProvider
from tests.support.generation import generation_settings

CALL = Call("tiny", (Message(Role.USER, "Ready?"),))
STAND_IN = textwrap.dedent(
    """
    import http.server, json, os, threading
    from types import SimpleNamespace

    def CommonParams():
        return SimpleNamespace(model=SimpleNamespace(path=""))

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            message = {"role": "assistant", "content": str(os.getpid())}
            body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    class Server:
        def __init__(self, settings):
            if settings.model.path.endswith("broken.gguf"):
                raise RuntimeError(f"no tensors, context {settings.n_ctx}, slots {settings.n_parallel}")
            server = http.server.HTTPServer(("127.0.0.1", settings.port), Handler)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self.listening_address = f"http://127.0.0.1:{server.server_port}"
    """
)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with model files, with a module in the place of llama.cpp."""
    (tmp_path / "xllamacpp.py").write_text(STAND_IN)
    for name in ("tiny", "broken"):
        (tmp_path / f"{name}.gguf").write_bytes(b"GGUF" + bytes(100))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{Path.cwd()}")
    return tmp_path


@pytest.mark.parametrize(
    ("content", "problem"), [(None, "cannot be read"), (b"", "not a model"), (b"GGML....", "not a model")]
)
def test_a_file_that_is_no_model_is_refused(tmp_path: Path, content: bytes | None, problem: str) -> None:
    path = tmp_path / "m.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError, match=problem):
        ModelFileProvider("p", path, context_tokens=512, slots=1)


def test_a_missing_extra_is_named(stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(SettingsError, match=r"dramaturg\[local\]"):
        ModelFileProvider("p", stand_in / "tiny.gguf", context_tokens=512, slots=1)


def test_files_are_told_apart_by_their_content(stand_in: Path) -> None:
    first, second = (
        ModelFileProvider("p", stand_in / f"{name}.gguf", context_tokens=512, slots=1).address
        for name in ("tiny", "broken")
    )
    assert first == second
    (stand_in / "tiny.gguf").write_bytes(b"GGUF" + bytes(101))
    assert ModelFileProvider("p", stand_in / "tiny.gguf", context_tokens=512, slots=1).address != first


async def test_model_files_come_behind_other_providers(stand_in: Path) -> None:
    table = {"kind": "file", "path": str(stand_in / "tiny.gguf")}
    settings = generation_settings(providers={"mine": table})
    alone = open_providers(settings, {})
    beside = open_providers(settings, {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "MODEL": "m"})
    try:
        assert [one.provider.default_model for one in alone] == ["tiny"]
        assert [one.provider.name for one in beside] == ["environment", "mine"]
        assert alone[0].prices.price("tiny") is not None
    finally:
        for one in (*alone, *beside):
            await one.provider.close()


@pytest.mark.slow
async def test_calls_start_one_process_that_ends_with_the_provider(stand_in: Path) -> None:
    provider = ModelFileProvider("p", stand_in / "tiny.gguf", context_tokens=512, slots=2)
    assert await provider.models() == ["tiny"]
    answers = await asyncio.gather(*(provider.complete(CALL, Until(20)) for _ in range(3)))
    [pid] = {int(answer.text) for answer in answers}
    # A process that died is started again.
    os.kill(pid, 9)
    assert provider._process is not None
    await provider._process.wait()
    second = int((await provider.complete(CALL, Until(20))).text)
    assert second != pid
    await provider.close()
    with pytest.raises(ProcessLookupError):
        os.kill(second, 0)


@pytest.mark.slow
async def test_a_model_that_cannot_be_loaded_says_why(stand_in: Path) -> None:
    provider = ModelFileProvider("p", stand_in / "broken.gguf", context_tokens=512, slots=2)
    with pytest.raises(ProviderError, match="no tensors, context 1024, slots 2") as raised:
        await provider.complete(CALL, Until(20))
    assert raised.value.settled
    await provider.close()
