from __future__ import annotations

import threading

from dramaturg.judge import text_pool


async def test_long_texts_are_parsed_in_a_thread_and_short_ones_in_the_event_loop() -> None:
    def parser() -> str:
        return threading.current_thread().name

    here = threading.current_thread().name
    assert await text_pool.parse(text_pool.MAX_INLINE_LENGTH, parser) == here
    assert (await text_pool.parse(text_pool.MAX_INLINE_LENGTH + 1, parser)).startswith("parser")
