from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from dramaturg.judge.streams import MAX_UNREQUESTED, collect_responses


class Judge:
    """Answers each call with the responses of a script, and counts those that were read."""

    def __init__(self, *responses: str | None, endless: str | None = "") -> None:
        self.read = 0
        self._responses = responses
        self._endless = endless

    async def call(self, keys: Sequence[str]) -> AsyncIterator[str | None]:
        del keys
        for response in self._responses:
            self.read += 1
            yield response
        while self._endless != "":
            self.read += 1
            yield self._endless

    async def answers(self, *keys: str) -> list[str]:
        found = [pair async for pair in collect_responses(keys, self.call, lambda response: response)]
        assert all(key == response for key, response in found)
        return [key for key, _ in found]


@pytest.mark.parametrize("unrequested", ["z", "a", None])
async def test_a_stream_of_responses_that_nobody_requested_is_cut(unrequested: str | None) -> None:
    judge = Judge("a", endless=unrequested)
    assert await judge.answers("a", "b") == ["a"]
    assert judge.read == 1 + MAX_UNREQUESTED + 1


async def test_fewer_such_responses_are_dropped() -> None:
    judge = Judge(*["z"] * MAX_UNREQUESTED, "a", "b")
    assert await judge.answers("a", "b") == ["a", "b"]
