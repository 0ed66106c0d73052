from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest
import uvloop

from dramaturg.testing import until
from gateway.launch.platform import Activations, _pump


@dataclass
class EchoService:
    """Echoes what it receives, in capitals."""

    events: list[str] = field(default_factory=list)
    error: Exception | None = None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        if self.error is not None:
            raise self.error
        server = await asyncio.start_server(self.echo, "127.0.0.1", 0)
        self.events.append("started")
        yield "{}:{}".format(*server.sockets[0].getsockname())
        server.close()
        self.events.append("stopped")

    async def echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(1000):
            writer.write(chunk.upper())
        writer.close()


async def ask(target: str, text: bytes) -> bytes:
    host, port = target.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(text)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


async def test_a_service_is_started_once_by_its_first_connection() -> None:
    used, unused = EchoService(), EchoService()
    async with Activations() as activations:
        target = await activations.add(used.open)
        await activations.add(unused.open)
        assert used.events == []
        answers = await asyncio.gather(*(ask(target, b"abc" * 50_000) for _ in range(3)))
        assert used.events == ["started"]
    assert answers == [b"ABC" * 50_000] * 3
    assert used.events == ["started", "stopped"]
    assert unused.events == []


async def use(service: EchoService, error: Exception | None = None) -> None:
    async with Activations() as activations:
        target = await activations.add(service.open)
        if error is not None:
            raise error
        await ask(target, b"abc")
        await asyncio.Event().wait()


async def test_a_service_that_cannot_be_started_ends_the_block_with_its_error() -> None:
    with pytest.raises(OSError, match="no such prompt"):
        await use(EchoService(error=OSError("no such prompt")))


async def test_an_error_of_the_block_is_raised_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        await use(EchoService(), ZeroDivisionError())


async def test_an_open_connection_does_not_keep_the_block() -> None:
    service = EchoService()
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    async with asyncio.timeout(10):
        async with Activations() as activations:
            host, port = (await activations.add(service.open)).split(":")
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"abc")
            await until(lambda: bool(service.events))
        writer.close()
    await asyncio.sleep(0)  # callbacks of the cancelled connection
    assert service.events == ["started", "stopped"]
    assert reported == []


@pytest.mark.parametrize("rest", [b"", b"abc"])
def test_what_comes_after_the_other_connection_is_closed_is_dropped(rest: bytes) -> None:
    async def main() -> None:
        async with EchoService().open() as target:
            host, port = target.split(":")
            _, closed = await asyncio.open_connection(host, int(port))
            closed.transport.abort()
            with suppress(OSError):
                await closed.wait_closed()
            reader = asyncio.StreamReader()
            reader.feed_data(rest)
            reader.feed_eof()
            await _pump(reader, closed)

    # As the command line does.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
