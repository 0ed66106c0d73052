"""The sentence-transformers engine against the light one; skipped where the library is not installed."""

from __future__ import annotations

import sys
from pathlib import Path

import grpc
import numpy as np
import pytest

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.embedding.v1.embedding_service_pb2 import (
    EmbedRequest,
    EmbedResponse,
    EmbedTokensRequest,
)
from dramaturg.service.errors import from_rpc_error
from services.embedding.weights import DEFAULT_WEIGHTS_SHA256, locate
from tests.support.embedding import embedding_stub

TEXTS = [
    "Critic: Reads for the craft.",
    "General reader: wants to know what happened and why it matters.",
    "",
    "   ",
    "Zutaten abwiegen, Teig kneten, 30 Minuten ruhen lassen.",
    "将水烧开，然后放入茶叶。",
    "Emoji 🍰 and a very-long-hyphenated-word; 2.5 cups, \t tabs\nand lines",
    *(f"Step {number}: {'stir the pot and ' * number}wait." for number in range(1, 60, 6)),
    "word " * 300,
    "x" * 5000,
]


@pytest.fixture
def _library() -> None:
    pytest.importorskip(
        "sentence_transformers", reason="sentence-transformers is not installed: the extra [embeddings]"
    )


def matrix(response: EmbedResponse) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    return np.array([embedding.values for embedding in response.embeddings], dtype=np.float32)


@pytest.mark.usefixtures("_library")
async def test_both_engines_give_the_same_vectors() -> None:
    async with (
        embedding_stub() as light,
        embedding_stub(engine="sentence-transformers") as library,
    ):
        ours = await light.Embed(EmbedRequest(texts=TEXTS))
        theirs = await library.Embed(EmbedRequest(texts=TEXTS))
    np.testing.assert_allclose(matrix(ours), matrix(theirs), atol=1e-4)
    assert [one.truncated for one in ours.embeddings] == [one.truncated for one in theirs.embeddings]
    assert any(one.truncated for one in ours.embeddings)
    assert theirs.weights_sha256 == DEFAULT_WEIGHTS_SHA256
    assert (theirs.model, theirs.dimension) == (ours.model, ours.dimension)


@pytest.mark.usefixtures("_library")
async def test_both_engines_give_the_same_vectors_of_the_same_tokens() -> None:
    texts = [*TEXTS, "What the text [SEP] calls an end is none. [CLS]"]
    async with (
        embedding_stub() as light,
        embedding_stub(engine="sentence-transformers") as library,
    ):
        ours = await light.EmbedTokens(EmbedTokensRequest(texts=texts))
        theirs = await library.EmbedTokens(EmbedTokensRequest(texts=texts))
    for text, one, other in zip(texts, ours.texts, theirs.texts, strict=True):
        assert list(one.tokens) == list(other.tokens), text
        assert one.truncated == other.truncated, text
        np.testing.assert_allclose(np.array(one.values), np.array(other.values), atol=1e-4, err_msg=text)
    assert any(one.truncated for one in ours.texts)
    assert (theirs.model, theirs.dimension) == (ours.model, ours.dimension)
    assert theirs.weights_sha256 == DEFAULT_WEIGHTS_SHA256


@pytest.mark.usefixtures("_library")
@pytest.mark.parametrize("layer", [0, 3, 6])
async def test_both_engines_give_the_same_vectors_of_a_layer(layer: int) -> None:
    request = EmbedTokensRequest(texts=TEXTS, layer=layer, with_special_tokens=True)
    async with (
        embedding_stub() as light,
        embedding_stub(engine="sentence-transformers") as library,
    ):
        ours, theirs = await light.EmbedTokens(request), await library.EmbedTokens(request)
    assert ours.layer == theirs.layer == (layer or 6)
    for one, other in zip(ours.texts, theirs.texts, strict=True):
        assert list(one.tokens) == list(other.tokens)
        ends = one.leading_special_count, one.trailing_special_count
        assert ends == (other.leading_special_count, other.trailing_special_count) == (1, 1)
        np.testing.assert_allclose(np.array(one.values), np.array(other.values), atol=1e-4)


@pytest.mark.usefixtures("_library")
async def test_a_folder_of_ones_own_is_served_under_its_name() -> None:
    async with embedding_stub(
        engine="sentence-transformers", model="mine", model_dir=locate(None), preload=True
    ) as stub:
        response = await stub.Embed(EmbedRequest(texts=["a"], model="mine"))
    assert response.model == "mine"
    assert response.weights_sha256 == DEFAULT_WEIGHTS_SHA256


@pytest.mark.usefixtures("_library")
async def test_a_folder_without_a_model_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    async with embedding_stub(engine="sentence-transformers", model="mine", model_dir=tmp_path) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.Embed(EmbedRequest(texts=["a"]))
    error = from_rpc_error(raised.value)
    assert error.reason == error_reason_pb2.ERROR_REASON_WEIGHTS_MISSING
    assert str(tmp_path) in error.message


async def test_without_the_library_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    async with embedding_stub(engine="sentence-transformers", preload=True) as stub:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub.Embed(EmbedRequest(texts=["a"]))
    error = from_rpc_error(raised.value)
    assert error.code is grpc.StatusCode.FAILED_PRECONDITION
    assert error.reason == error_reason_pb2.ERROR_REASON_WEIGHTS_MISSING
    assert error.metadata["command"] == "pip install 'dramaturg[embeddings]'"
