"""Generation killed under load: what was answered is not bought again, and what may have been is counted."""

from __future__ import annotations

import asyncio
import random
import resource
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import psycopg
import pytest

from dramaturg.api.common.v1.error_reason_pb2 import ERROR_REASON_STORE_UNAVAILABLE, ErrorReason
from dramaturg.api.generation.v1 import generation_service_pb2 as pb
from dramaturg.api.generation.v1.generation_service_pb2_grpc import GenerationServiceStub
from dramaturg.service.channel import open_channel
from dramaturg.service.errors import from_rpc_error
from dramaturg.testing import until
from tests.support.openai_server import Body, OpenAIServer
from tests.support.processes import ForkedService, ServiceProcess

if TYPE_CHECKING:  # the generated types of asynchronous stubs exist for type checkers alone
    from dramaturg.api.generation.v1.generation_service_pb2_grpc import GenerationServiceAsyncStub

CALLERS = 32
KILLS = 10
CALLS = 400


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


@asynccontextmanager
async def generation(server: OpenAIServer, folder: Path, ledger_url: str) -> AsyncIterator[ServiceProcess]:
    configuration = folder / "dramaturg.toml"
    configuration.write_text(
        f"""
        [generation]
        ledger_url = "{ledger_url}"
        [generation.providers.local]
        kind = "chat"
        base_url = "{server.base_url}"
        default_model = "m"
        concurrency = {{ start = {CALLERS} }}
        """
    )
    process = ForkedService(folder, {"DRAMATURG_CONFIG": str(configuration)}, "serve", "generation")
    await process.start()
    try:
        yield process
    finally:
        await process.stop()


def question(number: int) -> pb.GenerateRequest:
    return pb.GenerateRequest(messages=[pb.Message(role=pb.MESSAGE_ROLE_USER, text=f"question {number}")])


class Callers:
    """Ask all questions, each until it is answered, some at a time."""

    def __init__(self, target: str) -> None:
        self._target = target
        self.answers: dict[int, pb.Completion] = {}
        self.refusals: Counter[ErrorReason.ValueType] = Counter()

    async def run(self, numbers: range) -> None:
        turn = asyncio.Semaphore(CALLERS)
        async with open_channel(self._target) as channel, asyncio.TaskGroup() as group:
            for number in numbers:
                group.create_task(self._ask(GenerationServiceStub(channel), number, turn))

    async def _ask(self, stub: GenerationServiceAsyncStub, number: int, turn: asyncio.Semaphore) -> None:
        async with turn:
            while number not in self.answers:
                try:
                    response = await stub.Generate(question(number), wait_for_ready=True, timeout=300)
                except grpc.aio.AioRpcError as error:
                    if error.code() is not grpc.StatusCode.UNAVAILABLE:
                        raise
                    self.refusals[from_rpc_error(error).reason] += 1
                    await asyncio.sleep(0.05)
                else:
                    self.answers[number] = response.completion


async def ledger_status(target: str) -> pb.LedgerStatus:
    async with open_channel(target) as channel:
        response = await GenerationServiceStub(channel).GetLedgerStatus(pb.GetLedgerStatusRequest())
    return response.status


@pytest.mark.slow
@pytest.mark.timeout(1200)
async def test_a_call_is_paid_twice_only_if_it_was_under_way_and_then_it_is_counted(
    ledger_url: str, tmp_path: Path
) -> None:
    paid: Counter[str] = Counter()

    def answer(body: Body) -> str:
        asked = str(body["messages"][-1]["content"])
        paid[asked] += 1
        return f"answer to {asked}"

    draw = random.Random(f"kills/{ledger_url.partition(':')[0]}")
    moments = sorted(draw.sample(range(5, CALLS - 10), KILLS))
    async with (
        OpenAIServer(answer, latency=0.05, record=False) as server,
        generation(server, tmp_path, ledger_url) as process,
    ):
        callers = Callers(process.target)
        asking = asyncio.create_task(callers.run(range(CALLS)))
        for moment in moments:
            await until(lambda moment=moment: len(paid) >= moment or asking.done(), 120)  # type: ignore[misc]
            await asyncio.sleep(draw.uniform(0, 0.05))  # anywhere between a request and its answer
            await process.kill()
            await process.start()
        await asking
        # Calls that were under way at a kill and that nobody waits for any more.
        await until(lambda: server.in_flight == 0)
        status = await ledger_status(process.target)

        # Whatever a caller was told is kept: it is served although the endpoint knows no answer any more.
        bought = sum(paid.values())
        server.responder = lambda _: "another answer"
        again = Callers(process.target)
        await again.run(range(CALLS))

    assert {n: a.text for n, a in again.answers.items()} == {n: a.text for n, a in callers.answers.items()}
    assert all(answer.calls[0].cached for answer in again.answers.values())
    assert sum(paid.values()) == bought
    fingerprints = {f"question {n}": answer.fingerprint for n, answer in callers.answers.items()}
    twice = Counter({fingerprints[asked]: times - 1 for asked, times in paid.items() if times > 1})
    lost = Counter(call.fingerprint for call in status.lost_calls)
    assert not twice - lost, "paid again, and not counted"
    assert sum(lost.values()) == status.possibly_paid_twice_count <= KILLS * CALLERS
    assert status.completion_count == CALLS
    assert (status.call_under_way_count, status.process_count) == (0, 1)
    again_count, reported = sum(twice.values()), status.possibly_paid_twice_count
    print(  # noqa: T201 - what a reader of the slow tests wants to know
        f"{KILLS} kills: {again_count} of {CALLS} calls paid again, {reported} reported"
    )


@contextmanager
def unwritable(process: ServiceProcess, ledger_url: str) -> Iterator[None]:
    """Has the ledger refuse every write: no file of the process grows, or the database is read-only."""
    if ledger_url.startswith("sqlite"):
        unlimited = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, unlimited[1]))
        yield
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, unlimited)
        return
    name = ledger_url.rpartition("/")[2]
    with psycopg.connect(ledger_url, autocommit=True) as connection:
        for mode in ("on", "off"):
            connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = {mode}'.encode())
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            if mode == "on":
                yield


@pytest.mark.slow
async def test_a_store_that_takes_no_write_stops_purchases(ledger_url: str, tmp_path: Path) -> None:
    async with (
        OpenAIServer(lambda _: "x" * 2000, record=False) as server,
        generation(server, tmp_path, ledger_url) as process,
    ):
        callers = Callers(process.target)
        asking = asyncio.create_task(callers.run(range(400)))
        await until(lambda: len(callers.answers) > 50, 60)
        with unwritable(process, ledger_url):
            await until(lambda: callers.refusals[ERROR_REASON_STORE_UNAVAILABLE] > CALLERS, 60)
            await until(lambda: server.in_flight == 0)
            bought = server.calls.total()
            await until(lambda: callers.refusals[ERROR_REASON_STORE_UNAVAILABLE] > 3 * CALLERS, 60)
            assert server.calls.total() == bought < 400
        await asking
        assert len(callers.answers) == 400
        assert server.calls.total() == 400


async def test_a_store_that_cannot_be_used_ends_the_start_with_its_name(tmp_path: Path) -> None:
    environment = {"DRAMATURG_GENERATION_LEDGER_URL": "postgresql://a:secret@127.0.0.1:1/none"}
    process = ServiceProcess("dramaturg", tmp_path, environment, "serve", "generation")
    with pytest.raises(AssertionError):
        await process.start()
    told = process.log.read_text()
    assert told.startswith(
        "generation.ledger_url: the ledger postgresql://a:***@127.0.0.1:1/none is unavailable"
    )
    assert "secret" not in told
    assert "Traceback" not in told
