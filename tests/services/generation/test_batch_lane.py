"""Calls that wait for batches: sent, collected, and made live where no batch answers."""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1.error_reason_pb2 import ERROR_REASON_BATCH_PENDING
from dramaturg.api.generation.v1 import generation_service_pb2 as pb
from dramaturg.service.context import BATCH_METADATA
from dramaturg.service.errors import from_rpc_error
from dramaturg.testing import until
from services.generation import batch_lane
from services.generation.answers.forms import JsonForm
from services.generation.calls import Call, Image, Message, Role, Sampling
from services.generation.records import call_from_text, call_to_text, fingerprint
from tests.support.api_imitations import (
    IMITATIONS,
    KEY,
    Asked,
    Batches,
    Fault,
    ImitationServer,
    Said,
    imitate,
)
from tests.support.generation import SCHEMA, Service, generation_service, request

SECONDS = 20.0
"""The most that a test waits for answers."""
LATER = 3600.0
"""A deadline that is not reached, in seconds."""
PRICES = '["m*"]\nprompt = 1000000\ncompletion = 1000000\n'
"""A dollar a token: an answer costs 14."""


@pytest.fixture(params=["openai, sqlite", "openai, postgresql", "anthropic, sqlite", "google, sqlite"])
def kind_and_store(request: pytest.FixtureRequest) -> tuple[str, str]:
    kind, _, store = request.param.partition(", ")
    if importlib.util.find_spec(IMITATIONS[kind].extra.partition(".")[0]) is None:
        pytest.skip(f"{IMITATIONS[kind].extra} is not installed")
    return kind, store


@pytest.fixture
def kind(kind_and_store: tuple[str, str]) -> str:
    return kind_and_store[0]


@pytest.fixture
def ledger_url(kind_and_store: tuple[str, str], request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if kind_and_store[1] == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", KEY)


class Lane:
    """A generation service whose calls wait for batches, and its provider."""

    def __init__(self, service: Service, server: ImitationServer, deadline: float) -> None:
        assert server.batches is not None
        self.service = service
        self.server = server
        self.batches: Batches = server.batches
        self._until = time.time() + deadline

    async def once(self, text: str) -> pb.Completion | None:
        """The completion of a question; None while it waits."""
        metadata = ((BATCH_METADATA, f"{self._until:.3f}"),)
        try:
            asked = request(text, json_format=False)
            answered = await self.service.generation.Generate(asked, metadata=metadata, timeout=SECONDS)
        except grpc.aio.AioRpcError as error:
            failed = from_rpc_error(error)
            assert (failed.code, failed.reason) == (grpc.StatusCode.ABORTED, ERROR_REASON_BATCH_PENDING)
            assert failed.retry_after
            return None
        return answered.completion

    async def all(self, texts: Sequence[str]) -> list[pb.Completion]:
        """Asks questions until all are answered."""
        found: dict[str, pb.Completion] = {}
        async with asyncio.timeout(SECONDS):
            while len(found) < len(texts):
                for text in texts:
                    if text not in found and (answered := await self.once(text)) is not None:
                        found[text] = answered
                await asyncio.sleep(0.05)
        return [found[text] for text in texts]

    def sent_once(self) -> bool:
        """Whether requests were in one batch each."""
        return set(Counter(chain.from_iterable(self.batches.created)).values()) == {1}

    def asked(self) -> Counter[str]:
        """How often the model was asked each question."""
        return Counter(one.messages[-1][1] for one in self.server.asked)


def echo(asked: Asked) -> Said | Fault:
    return Said(f"answer to {asked.messages[-1][1]}")


@asynccontextmanager
async def lane(
    kind: str,
    ledger_url: str,
    tmp_path: Path,
    script: Any = echo,
    *,
    prices: str = PRICES,
    deadline: float = LATER,
    replicas: int = 1,
    **batches: Any,
) -> AsyncIterator[Lane]:
    (tmp_path / "prices.toml").write_text(prices, encoding="utf-8")
    async with imitate(kind, script) as server:
        for name, value in batches.items():
            setattr(server.batches, name, value)
        provider = {
            **server.settings,
            "api_key_env": "KEY",
            "prices": tmp_path / "prices.toml",
            "retries": {"first_wait_seconds": 0, "longest_wait_seconds": 0},
        }
        settings: dict[str, Any] = {
            "ledger_url": ledger_url,
            "providers": {"p": provider},
            "batches": {"gather_seconds": 0.2, "poll_seconds": 0.1},
        }
        async with AsyncExitStack() as stack:
            services = [
                await stack.enter_async_context(generation_service(**settings)) for _ in range(replicas)
            ]
            yield Lane(services[0], server, deadline)


QUESTIONS = [f"question {number}" for number in range(5)]


async def test_a_batch_answers_at_its_price_and_nothing_is_bought_twice(
    kind: str, ledger_url: str, tmp_path: Path
) -> None:
    async with lane(kind, ledger_url, tmp_path) as made:
        answers = await made.all(QUESTIONS)
        again = await made.all(QUESTIONS)
        status = (await made.service.generation.GetLedgerStatus(pb.GetLedgerStatusRequest())).status
    assert [one.text for one in answers] == [f"answer to {text}" for text in QUESTIONS]
    # The first call of its kind is made live, so that refused parameters are known.
    assert sorted(one.usage.cost_usd for one in answers) == [7, 7, 7, 7, 14]
    assert not any(one.calls[0].cached for one in answers)
    assert [(one.text, one.calls[0].cached, one.usage.cost_usd) for one in again] == [
        (one.text, True, 0) for one in answers
    ]
    assert set(made.asked().values()) == {1}
    assert len(made.server.batched) == len(QUESTIONS) - 1
    assert (status.completion_count, status.possibly_paid_twice_count) == (len(QUESTIONS), 0)


async def test_replicas_send_a_request_once(postgres_url: str, tmp_path: Path) -> None:
    async with lane("openai", postgres_url, tmp_path, replicas=3) as made:
        answers = await made.all(QUESTIONS)
    assert [one.text for one in answers] == [f"answer to {text}" for text in QUESTIONS]
    assert set(made.asked().values()) == {1}


async def test_a_question_that_is_not_asked_again_is_not_sent(
    kind: str, ledger_url: str, tmp_path: Path
) -> None:
    async with lane(kind, ledger_url, tmp_path) as made:
        assert await made.once("given up") is None
        await made.all(QUESTIONS)
        await made.all([f"{text}, later" for text in QUESTIONS])
    assert made.asked()["given up"] == 0


async def test_what_a_batch_refuses_or_leaves_is_called_live(
    kind: str, ledger_url: str, tmp_path: Path
) -> None:
    def script(asked: Asked) -> Said | Fault:
        refused = asked.messages[-1][1] == QUESTIONS[2] and made.asked()[QUESTIONS[2]] == 1
        return Fault(500, "overloaded") if refused else echo(asked)

    async with lane(kind, ledger_url, tmp_path, script, expires=QUESTIONS[1]) as made:
        answers = await made.all(QUESTIONS)
    assert [one.text for one in answers] == [f"answer to {text}" for text in QUESTIONS]
    assert made.asked() == {**dict.fromkeys(QUESTIONS, 1), QUESTIONS[2]: 2}
    # Live: the first of its kind, the refused one and the expired one.
    assert sorted(one.usage.cost_usd for one in answers) == [7, 7, 14, 14, 14]


async def test_a_batch_that_fails_as_a_whole_is_called_live(
    kind: str, ledger_url: str, tmp_path: Path
) -> None:
    if kind == "anthropic":
        pytest.skip("its batches fail by request alone")
    async with lane(kind, ledger_url, tmp_path, failed="the token limit is reached") as made:
        answers = await made.all(QUESTIONS)
    assert [one.usage.cost_usd for one in answers] == [14] * len(QUESTIONS)
    assert set(made.asked().values()) == {1}


async def test_at_the_deadline_a_batch_is_cancelled_and_the_rest_is_called_live(
    kind: str, ledger_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lane(kind, ledger_url, tmp_path, holds=True) as made:
        asking = asyncio.create_task(made.all(QUESTIONS))
        await until(lambda: bool(made.batches.created))
        monkeypatch.setattr(batch_lane, "time", SimpleNamespace(time=lambda: time.time() + LATER))
        answers = await asking
    assert set(made.asked().values()) == {1}
    assert all(made.batches.cancelled)
    # Each batch had answered its first request.
    count = len(made.batches.created)
    assert sorted(one.usage.cost_usd for one in answers) == [7] * count + [14] * (len(QUESTIONS) - count)


async def test_what_was_never_sent_is_called_live_at_the_deadline(
    kind: str, ledger_url: str, tmp_path: Path
) -> None:
    async with lane(kind, ledger_url, tmp_path, deadline=0.1) as made:
        answers = await made.all(QUESTIONS)
    assert not made.batches.created
    assert set(made.asked().values()) == {1}
    assert [one.usage.cost_usd for one in answers] == [14] * len(QUESTIONS)


async def test_a_batch_whose_id_was_lost_is_found_at_the_provider(
    kind: str, ledger_url: str, tmp_path: Path
) -> None:
    async with lane(kind, ledger_url, tmp_path, drops=True) as made:
        await made.all(QUESTIONS)
    assert made.sent_once()
    assert set(made.asked().values()) == {1}


async def test_a_batch_that_did_not_arrive_is_sent_again(kind: str, ledger_url: str, tmp_path: Path) -> None:
    async with lane(kind, ledger_url, tmp_path, loses=True) as made:
        asking = asyncio.create_task(made.all(QUESTIONS))
        await until(lambda: made.batches.losses > 0)
        made.batches.loses = False
        await asking
    assert made.sent_once()
    assert set(made.asked().values()) == {1}


async def test_an_answer_of_no_use_is_not_bought_again_while_others_wait(
    kind: str, ledger_url: str, tmp_path: Path
) -> None:
    def script(asked: Asked) -> Said:
        return Said("no", finish="filter") if asked.messages[-1][1] == "refused" else Said("yes")

    async with lane(kind, ledger_url, tmp_path, script) as made:
        [first] = (await made.all([*QUESTIONS, "refused"]))[-1:]
        again = await made.once("refused")
    assert again is not None
    assert first.status == again.status == pb.COMPLETION_STATUS_FILTERED
    assert (first.usage.cost_usd, again.usage.cost_usd) == (7, 0)
    assert made.asked()["refused"] == 1


async def test_a_truncated_answer_is_asked_for_again_by_a_batch(
    kind: str, ledger_url: str, tmp_path: Path
) -> None:
    def script(asked: Asked) -> Said:
        is_cut = asked.messages[-1][1] == "long" and made.asked()["long"] == 1
        return Said("cut", finish="length") if is_cut else Said("whole")

    async with lane(kind, ledger_url, tmp_path, script) as made:
        await made.all(QUESTIONS)
        [found] = await made.all(["long"])
    assert (found.text, len(found.calls), made.asked()["long"]) == ("whole", 2, 2)


async def test_a_live_call_takes_the_answer_of_a_batch(kind: str, ledger_url: str, tmp_path: Path) -> None:
    async with lane(kind, ledger_url, tmp_path) as made:
        await made.all(QUESTIONS)
        assert [await made.once("shared") for _ in range(2)] == [None, None]
        await until(lambda: made.asked()["shared"] > 0)
        await made.all(["later"])  # by a later batch
        live = await made.service.generate("shared", json_format=False)
    assert (live.usage.cost_usd, made.asked()["shared"]) == (7, 1)


async def test_the_price_of_batches_is_that_of_the_price_table(
    kind: str, ledger_url: str, tmp_path: Path
) -> None:
    async with lane(kind, ledger_url, tmp_path, prices=f"{PRICES}batch = 0.25\n") as made:
        answers = await made.all(QUESTIONS)
        check = (
            await made.service.generation.CheckProvider(pb.CheckProviderRequest(configuration_only=True))
        ).check
    assert sorted(one.usage.cost_usd for one in answers) == [3.5, 3.5, 3.5, 3.5, 14]
    assert check.batch_price_share == 0.25


def test_a_recorded_call_is_the_same_call() -> None:
    form = JsonForm("verdict", SCHEMA, '{"type":"object"}')
    image = Image(b"\x89PNG\r\n\x1a\n?>", "image/png")
    messages = Message(Role.SYSTEM, "Be brief."), Message(Role.USER, "What is this?", (image, "And why?"))
    sampling = Sampling(0.5, 0.9, 100, 7, ("END",), "low")
    call = Call("m", messages, sampling, form, True, 3, 2, 1, frozenset({"seed"}), "tenant")
    recorded = call_from_text(call_to_text(call))
    assert recorded == call
    assert fingerprint(recorded, "address") == fingerprint(call, "address")
