from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import numpy as np
import pytest

from services.embedding.backend import LAST_LAYER, Floats, Prepared, TokenChoice, TokenVectors
from services.embedding.local import LocalBackend


class Encoder:
    dimension = 1
    token_dimension = 1
    layer_count = 1

    def prepare(self, texts: Sequence[str]) -> Sequence[Prepared[str]]:
        return [Prepared(text, len(text), truncated=False) for text in texts]

    def encode(self, inputs: Sequence[str]) -> Floats:
        return np.ones((len(inputs), 1), dtype=np.float32)

    def encode_tokens(self, inputs: Sequence[str], choice: TokenChoice) -> Sequence[TokenVectors]:
        return [TokenVectors(list(text), np.ones((len(text), 1), dtype=np.float32)) for text in inputs]


class Loader:
    """Loads when it is let; fails as often as it is told to."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.loads = 0
        self.gate = threading.Event()

    def __call__(self) -> tuple[Encoder, str]:
        self.loads += 1
        assert self.gate.wait(10)
        if self.loads <= self.failures:
            raise OSError("the disk is gone")
        return Encoder(), "hash"


async def test_calls_at_the_same_time_share_one_load_and_a_cancelled_one_does_not_end_it() -> None:
    loader = Loader()
    backend = LocalBackend("model", loader)
    calls = [asyncio.create_task(backend.load()) for _ in range(3)]
    await asyncio.sleep(0)
    calls[0].cancel()
    loader.gate.set()
    facts = await asyncio.gather(*calls[1:])
    assert facts[0] == facts[1] == await backend.load()
    assert facts[0].weights_sha256 == "hash"
    assert loader.loads == 1
    assert calls[0].cancelled()


async def test_a_load_that_failed_is_tried_again() -> None:
    loader = Loader(failures=1)
    loader.gate.set()
    backend = LocalBackend("model", loader)
    with pytest.raises(OSError, match="disk"):
        await backend.load()
    assert (await backend.load()).name == "model"


async def test_nothing_is_encoded_before_the_model_is_loaded() -> None:
    backend = LocalBackend("model", Loader())
    with pytest.raises(RuntimeError, match="load"):
        await backend.encode(["a"])
    with pytest.raises(RuntimeError, match="load"):
        await backend.encode_tokens(["a"], LAST_LAYER)


async def test_many_texts_are_prepared_in_order() -> None:
    loader = Loader()
    loader.gate.set()
    backend = LocalBackend("model", loader)
    await backend.load()
    texts = [str(number) for number in range(1000)]
    assert [prepared.input for prepared in await backend.prepare(texts)] == texts
