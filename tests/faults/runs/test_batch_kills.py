"""A run by batches whose processes are killed finds what a live run finds, and pays for nothing twice."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dramaturg.api.evaluation.v1.run_pb2 import BatchThenLive
from dramaturg.testing import until
from tests.support.api_imitations import KEY, Asked, Fault, ImitationServer, Said, imitate
from tests.support.fleet import SUCCEEDED, Fleet, comparable, fleet, seeds
from tests.support.ports import free_port
from tests.support.scripted_model import judge

SAMPLES = 40
KILLS = 4

_undisturbed: dict[str, list[bytes]] = {}
"""What a live run finds, by the kind of the provider."""

# One for all fleets, since a completion's fingerprint holds the address of its provider.
_PORT = free_port()

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def answer(asked: Asked) -> Said | Fault:
    if not asked.messages:
        return Fault(400, "messages are missing")  # a check of the connection
    return Said(judge(asked.chat))


@asynccontextmanager
async def batching(
    kind: str, folder: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Fleet, ImitationServer]]:
    """A fleet whose provider has batches, which are looked at often."""
    monkeypatch.setenv("KEY", KEY)

    def configure(text: str) -> str:
        before, _, after = text.partition("[generation.providers.local]")
        table = after[: after.index("[synthesize]")]
        settings = "".join(f"{name} = {json.dumps(value)}\n" for name, value in server.settings.items())
        if store.startswith("postgresql"):
            file = re.search(r'ledger = ".*"', before)
            assert file is not None
            before = before.replace(file[0], f'ledger_url = "{store}"')
        return (
            f"{before}[generation.batches]\n"
            # Several batches, however the calls fall together: each kill waits for one more.
            f"max_requests = {2 * SAMPLES // (2 * KILLS)}\ngather_seconds = 0.5\npoll_seconds = 0.2\n"
            f'[generation.providers.local]\n{settings}api_key_env = "KEY"\n{after.removeprefix(table)}'
        ).replace("[runs]", "[runs]\nbatch_poll_seconds = 0.2")

    async with (
        imitate(kind, answer, _PORT) as server,
        fleet(folder, store, configure=configure) as made,
    ):
        yield made, server


@pytest.mark.parametrize("seed", seeds("0"))
@pytest.mark.parametrize(
    ("name", "kind", "store_url"),
    [
        ("gateway", "openai", "sqlite"),
        ("gateway", "openai", "postgresql"),
        ("generation", "openai", "sqlite"),
        ("generation", "openai", "postgresql"),
        # A provider's kind does not know the store.
        ("generation", "anthropic", "sqlite"),
        ("generation", "google", "sqlite"),
    ],
    indirect=["store_url"],
)
async def test_a_kill_changes_no_result_and_buys_nothing_twice(
    name: str, kind: str, seed: int, store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind not in _undisturbed:
        (tmp_path / "live").mkdir()
        live_store = f"sqlite:///{tmp_path / 'live' / 'runs.sqlite3'}"
        async with batching(kind, tmp_path / "live", live_store, monkeypatch) as (made, _):
            run = await made.ended(await made.create(SAMPLES))
            _undisturbed[kind] = comparable(await made.samples(run.id))

    moments = random.Random(f"{name}/{seed}")
    async with batching(kind, tmp_path, store_url, monkeypatch) as (made, server):
        assert server.batches is not None
        lane = BatchThenLive()
        lane.deadline.FromSeconds(3600)
        run_id = await made.create(SAMPLES, batch_then_live=lane)
        victim = {"gateway": made.gateways[0], "generation": made.generation}[name]
        for count in range(KILLS):
            # At different steps: before the first batch, while batches are made and collected.
            await until(lambda count=count: len(server.batches.created) >= count, 60)  # type: ignore[misc]
            await asyncio.sleep(moments.uniform(0, 0.6))
            await made.kill(victim)
            await victim.start()
        run = await made.ended(run_id)
        samples = await made.samples(run_id)
        accounts = await made.accounts([])
    assert (run.state, run.progress.succeeded_count) == (SUCCEEDED, SAMPLES), run.state_reason
    assert comparable(samples) == _undisturbed[kind]
    # Ids of Anthropic's requests begin with the batch.
    sent = Counter(key.rpartition("_")[2] for batch in server.batches.created for key in batch)
    asked = [one for one in server.asked if one.messages]
    twice = Counter(map(str, asked))
    live = len(asked) - len(server.batched)
    assert set(sent.values()) == {1}, "a request was in two batches"
    # The first call of a form is live. One that was under way at a kill is reported.
    assert sum(twice.values()) - len(twice) <= accounts.reported.total() <= live
    assert len(server.batched) >= 2 * SAMPLES - live
