"""What holds of a ledger wherever it keeps."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from services.generation.calls import Answer, Purchase
from services.generation.ledger import Ledger, LedgerError, LedgerKind, open_ledger
from tests.support.command_line import ROOT

Open = Callable[[], AbstractAsyncContextManager[Ledger]]

DIES = """
import asyncio, os, sys
from services.generation.calls import Answer, Purchase
from services.generation.ledger import open_ledger

async def main(url):
    async with open_ledger(url) as ledger:
        for number in range(5):
            kept = await ledger.record_call(f"kept {number}")
            answer = Answer("x", call_number=kept)
            await ledger.put(f"kept {number}", [Purchase(f"kept {number}", "p", "m", answer)])
        refused = await ledger.record_call("refused")
        ledger.settle([refused])
        ledger.mark_unstored([await ledger.record_call("answered")])
        ledger.abandon([await ledger.record_call("given up")])
        for number in range(3):
            await ledger.record_call(f"under way {number}")
        os.kill(os.getpid(), 9)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def opened(ledger_url: str) -> Open:
    return lambda: open_ledger(ledger_url)


def bought(fingerprint: str, text: str = "text 好 \x00", call_number: int | None = None) -> Purchase:
    return Purchase(fingerprint, "p", "m", Answer(text, call_number=call_number), cost=0.5)


async def test_what_is_put_is_there_at_once_and_after_a_restart(opened: Open) -> None:
    async with opened() as ledger:
        assert await ledger.get("f") == ()
        await ledger.put("f", [bought("f"), bought("g")])
        first, second = await ledger.get("f")
        assert await ledger.get("g") == ()
    async with opened() as ledger:
        assert await ledger.get("f") == (first, second)
    assert (first.cached, first.cost, first.answer.text) == (True, 0.0, "text 好 \x00")


async def test_the_later_of_two_completions_stands(opened: Open) -> None:
    async with opened() as ledger:
        await ledger.put("f", [bought("f", "old")])
        await ledger.put("f", [bought("f", "new")])
        assert (await ledger.get("f"))[0].answer.text == "new"
        assert (await ledger.status()).completions == 1
    async with opened() as ledger:
        assert (await ledger.get("f"))[0].answer.text == "new"


async def test_a_note_stands_until_its_call_is_kept_or_settled(opened: Open) -> None:
    async with opened() as ledger:
        kept, refused, lost = [await ledger.record_call(name) for name in ("kept", "refused", "lost")]
        status = await ledger.status()
        assert (status.under_way, status.lost, status.abandoned) == (3, 0, 0)
        await ledger.put("kept", [bought("kept", call_number=kept)])
        ledger.settle([refused])
        ledger.abandon([lost])
        status = await ledger.status()
        assert (status.under_way, status.lost, status.abandoned) == (0, 0, 1)
        assert [(call.fingerprint, call.abandoned) for call in status.lost_calls] == [("lost", True)]
        assert status.completions == 1
        assert status.size > 0
        assert status.processes == 1


async def test_what_a_process_held_when_it_was_killed_is_kept_and_its_calls_are_counted(
    opened: Open, ledger_url: str
) -> None:
    async with opened() as other:
        for _ in range(2):
            command = (sys.executable, "-c", DIES, ledger_url)
            process = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
            assert await process.wait() == -9
        async with opened() as ledger:
            for number in range(5):
                assert await ledger.get(f"kept {number}")
            status = await ledger.status()
        assert (status.completions, status.under_way, status.processes) == (5, 0, 2)
        assert (status.lost, status.abandoned, status.bought_again) == (6, 2, 1)
        assert [call.fingerprint for call in status.lost_calls if call.answered] == ["answered"]
        lost = [call.fingerprint for call in status.lost_calls if not call.answered]
        assert sorted(lost) == sorted(2 * ["given up", *(f"under way {number}" for number in range(3))])
        # The others see the same.
        assert (await other.status()).lost == 6


async def test_an_answer_that_is_not_stored_counts_once_its_request_is_sent_again(opened: Open) -> None:
    async def bought_again() -> tuple[int, list[str]]:
        async with opened() as ledger:
            status = await ledger.status()
        assert (status.under_way, status.lost, status.abandoned) == (0, 0, 0)
        listed = status.lost_calls
        assert all(call.answered and not call.abandoned and call.sent_at > 0 for call in listed)
        return status.bought_again, sorted(call.fingerprint for call in listed)

    async with opened() as ledger:
        ledger.mark_unstored([await ledger.record_call("refused"), await ledger.record_call("cut off")])
    assert await bought_again() == (0, [])
    async with opened() as ledger:
        ledger.mark_unstored([await ledger.record_call("refused")])
    assert await bought_again() == (1, ["refused"])
    async with opened() as ledger:
        await ledger.put("cut off", [bought("cut off", call_number=await ledger.record_call("cut off"))])
    assert await bought_again() == (2, ["cut off", "refused"])


async def test_the_record_of_a_repair_stands_when_the_completion_is_kept(opened: Open) -> None:
    async with opened() as ledger:
        numbers = [await ledger.record_call(name) for name in ("f", "repair of f")]
        await ledger.put("f", [bought("f", "bad", numbers[0]), bought("repair of f", "good", numbers[1])])
        assert (await ledger.status()).under_way == 1
        ledger.mark_unstored(numbers[1:])
        status = await ledger.status()
    assert (status.completions, status.under_way, status.bought_again) == (1, 0, 0)


async def test_processes_share_what_they_keep(opened: Open) -> None:
    async with opened() as one:
        async with opened() as two:
            await one.put("f", [bought("f")])
            mine = await two.record_call("g")
            assert (await one.status()).processes == 2
        assert (await one.status()).lost == 1, "two has left, and its call with it"
        assert mine == 1
        async with opened() as three:
            assert await three.get("f")


@pytest.mark.parametrize(
    ("address", "named"),
    [
        ("sqlite:////proc/nothing/ledger.sqlite3", "/proc/nothing/ledger.sqlite3"),
        ("postgresql://nobody@127.0.0.1:1/none", "127.0.0.1:1/none"),
        ("postgresql://a:secret@127.0.0.1:1/none?strange=1", "strange"),
        ("mysql://host/db", "sqlite:///PATH"),
    ],
)
async def test_a_store_that_cannot_be_used_is_named(address: str, named: str) -> None:
    with pytest.raises(LedgerError, match=named) as raised:
        async with open_ledger(address):
            pass
    assert "secret" not in str(raised.value)


async def test_a_ledger_in_memory_notes_too() -> None:
    async with open_ledger("sqlite://") as ledger:
        ledger.abandon([await ledger.record_call("f")])
        status = await ledger.status()
    assert (status.kind, status.abandoned, status.processes) == (LedgerKind.MEMORY, 1, 1)
