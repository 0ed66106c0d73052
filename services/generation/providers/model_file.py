"""A model file, served by llama.cpp in a process of the platform."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import logging
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dramaturg.service.settings import SettingsError
from services.generation.calls import Answer, Call, Deadline, FailureKind, ProviderError
from services.generation.providers.base import Provider
from services.generation.providers.openai_compatible import OpenAICompatibleProvider

END_SECONDS = 5.0
"""How long the process has to end by itself."""
_MAGIC = b"GGUF"
_DIGESTED = 2**20
_KEPT_LINES = 20

logger = logging.getLogger(__name__)


def check_model_file(path: Path) -> None:
    """Checks that a file is in the GGUF format, which llama.cpp reads.

    Raises:
        ValueError: it is not, or cannot be read; names the file.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    if magic != _MAGIC:
        raise ValueError(f"{path} is not a model in the GGUF format")


class ModelFileProvider(Provider):
    """A model file. Its process starts with the first call and ends with the provider."""

    keeps = False

    def __init__(self, name: str, path: Path, *, context_tokens: int, slots: int) -> None:
        """Checks the file and that llama.cpp is installed. Loads nothing.

        Args:
            name: The provider's name.
            path: The file.
            context_tokens: The tokens of a prompt and its answer.
            slots: The calls at once.

        Raises:
            SettingsError: the file is no model, or the extra is missing.
        """
        try:
            check_model_file(path)
        except ValueError as error:
            raise SettingsError(f"generation.providers.{name}.path: {error}") from error
        if importlib.util.find_spec("xllamacpp") is None:
            raise SettingsError(
                f"generation.providers.{name}: a model file needs the extra local: "
                "pip install 'dramaturg[local]'"
            )
        self.name = name
        self.default_model = path.stem
        self.address = f"file:{_digest(path)}"
        self._path = path
        self._arguments = ("--context", str(context_tokens), "--slots", str(slots))
        self._loading: asyncio.Task[OpenAICompatibleProvider] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._endpoint: OpenAICompatibleProvider | None = None
        self._said: deque[str] = deque(maxlen=_KEPT_LINES)
        self._reader: asyncio.Task[None] | None = None

    async def complete(self, call: Call, deadline: Deadline) -> Answer:
        """Answers a call, after the model is loaded.

        Raises:
            ProviderError: the model cannot be loaded, or does not answer.
        """
        return await (await self._loaded()).complete(call, deadline)

    async def models(self) -> Sequence[str]:
        """The name of the file, without its ending."""
        return [self.default_model]

    async def close(self) -> None:
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait([self._loading])
        await self._end()

    async def _loaded(self) -> OpenAICompatibleProvider:
        if self._loading is None or (self._loading.done() and not self._runs()):
            self._loading = asyncio.create_task(self._load())
        # A caller that gives up does not end the loading, which others wait for.
        return await asyncio.shield(self._loading)

    def _runs(self) -> bool:
        return self._endpoint is not None and self._process is not None and self._process.returncode is None

    async def _load(self) -> OpenAICompatibleProvider:
        await self._end()
        begun = time.monotonic()
        logger.info("loads the model file %s", self._path)
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "services.generation.model_server",
            str(self._path),
            *self._arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self._reader = asyncio.create_task(self._read_errors(self._process))
        address = (await self._process.stdout.readline()).decode().strip()
        if not address:
            await self._process.wait()
            await self._reader
            words = " ".join(self._said)[-400:] or "it says nothing"
            message = f"the model file {self._path.name} cannot be loaded: {words}"
            raise ProviderError(FailureKind.REJECTED, self.name, message, settled=True)
        seconds, memory = time.monotonic() - begun, _memory(self._process.pid)
        logger.info("the model file is loaded after %.1f s; its process has %s", seconds, memory)
        self._endpoint = OpenAICompatibleProvider(self.name, f"{address}/v1", address=self.address)
        return self._endpoint

    async def _read_errors(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while line := await process.stderr.readline():
            self._said.append(line.decode(errors="replace").strip())

    async def _end(self) -> None:
        endpoint, process, reader = self._endpoint, self._process, self._reader
        self._endpoint = self._process = self._reader = None
        if endpoint is not None:
            await endpoint.close()
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            with suppress(ProcessLookupError):
                try:
                    async with asyncio.timeout(END_SECONDS):
                        await process.wait()
                except TimeoutError:
                    process.kill()
                    await process.wait()
        if reader is not None:
            await reader


def _digest(path: Path) -> str:
    """Tells files apart by size, start and end: a file of several GiB is not read whole."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(_DIGESTED)
        file.seek(max(0, size - _DIGESTED))
        return hashlib.sha256(b"%d %b%b" % (size, start, file.read())).hexdigest()


def _memory(pid: int) -> str:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        kilobytes = int(status.partition("VmRSS:")[2].split()[0])
    except (OSError, ValueError, IndexError):
        return "an unknown amount of memory"
    return f"{kilobytes / 2**20:.1f} GiB of memory"
