"""The light encoder: our own forward pass over the weights of a sentence-transformers model.

The forward pass is that of BERT (Devlin et al. 2019; Vaswani et al. 2017, section 3) in NumPy. It is equal to
PyTorch's to about 2e-7, at its speed on a CPU, without its gigabyte.

Mean pooling over the tokens, then length 1 (Reimers & Gurevych 2019, section 3), as all-MiniLM-L6-v2 does it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from scipy.special import erf
from tokenizers import Tokenizer

from services.embedding.backend import LAST_LAYER, Floats, Prepared, TokenChoice, TokenVectors
from services.embedding.weights import WEIGHTS_FILE, WeightsMissingError

_ROWS_AT_ONCE = 512
"""Tokens per block of the feed-forward layer; blocks that fit the processor's cache are a quarter faster."""


@dataclass(frozen=True)
class BertConfig:
    """The fields of ``config.json`` used by the forward pass."""

    num_hidden_layers: int
    num_attention_heads: int
    layer_norm_eps: float


@dataclass(frozen=True)
class _Dense:
    weight: Floats  # (input, output)
    bias: Floats

    def __call__(self, inputs: Floats) -> Floats:
        outputs = inputs @ self.weight
        outputs += self.bias
        return outputs


@dataclass(frozen=True)
class _LayerNorm:
    weight: Floats
    bias: Floats
    epsilon: float

    def __call__(self, inputs: Floats) -> Floats:
        """Normalises in place."""
        inputs -= inputs.mean(axis=-1, keepdims=True)
        variance = np.einsum("...i,...i->...", inputs, inputs)[..., None] / np.float32(inputs.shape[-1])
        inputs *= self.weight / np.sqrt(variance + np.float32(self.epsilon))
        inputs += self.bias
        return inputs


@dataclass(frozen=True)
class _Layer:
    query_key_value: _Dense
    attention_output: _Dense
    attention_norm: _LayerNorm
    intermediate: _Dense
    output: _Dense
    output_norm: _LayerNorm


class Bert:
    """An encoder: word pieces to one vector each.

    Args:
        tensors: The weights under the names that PyTorch's ``BertModel`` gives them.
        config: The shape.

    Raises:
        KeyError: a weight is missing.
    """

    def __init__(self, tensors: Mapping[str, Floats], config: BertConfig) -> None:
        self._words = tensors["embeddings.word_embeddings.weight"]
        # Every token is of the first segment, so its vector is added to the positions once and for all.
        self._positions = (
            tensors["embeddings.position_embeddings.weight"]
            + tensors["embeddings.token_type_embeddings.weight"][0]
        )
        self._heads = config.num_attention_heads
        self._norm = _norm(tensors, "embeddings.LayerNorm", config)
        self._layers = [
            _layer(tensors, f"encoder.layer.{index}", config) for index in range(config.num_hidden_layers)
        ]

    @property
    def dimension(self) -> int:
        return int(self._words.shape[1])

    @property
    def layer_count(self) -> int:
        return len(self._layers)

    @property
    def window(self) -> int:
        """The maximum number of tokens of a text."""
        return int(self._positions.shape[0])

    def __call__(self, ids: NDArray[np.int64], mask: NDArray[np.bool_], layer: int = 0) -> Floats:
        """Encodes a batch.

        Args:
            ids: Token ids, (batch, length), padded at the end.
            mask: Which of them are tokens and not padding, (batch, length).
            layer: The layer, from 1. 0: the last.

        Returns:
            The hidden states of the layer, (batch, length, dimension). Those of padding mean nothing.
        """
        hidden = self._norm(self._words[ids] + self._positions[: ids.shape[1]])
        bias = None if mask.all() else np.where(mask, np.float32(0), np.float32(-1e30))[:, None, None, :]
        for one in self._layers[: layer or None]:
            attended = one.attention_output(self._attend(one.query_key_value(hidden), bias))
            attended += hidden
            hidden = one.attention_norm(attended)
            hidden = _feed_forward(one, hidden)
        return hidden

    def _attend(self, query_key_value: Floats, bias: Floats | None) -> Floats:
        batch, length, width = query_key_value.shape
        size = width // 3 // self._heads
        heads = query_key_value.reshape(batch, length, 3, self._heads, size).transpose(2, 0, 3, 1, 4)
        query, key, value = heads[0], heads[1], heads[2]  # (batch, heads, length, size)
        scores = query @ key.swapaxes(-1, -2)
        scores *= np.float32(1 / math.sqrt(size))
        if bias is not None:
            scores += bias
        _softmax(scores)
        attended: Floats = (scores @ value).transpose(0, 2, 1, 3).reshape(batch, length, width // 3)
        return attended


def _feed_forward(layer: _Layer, hidden: Floats) -> Floats:
    rows = hidden.reshape(-1, hidden.shape[-1])
    outputs = np.empty_like(rows)
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        part = rows[start : start + _ROWS_AT_ONCE]
        inner = layer.output(_gelu(layer.intermediate(part)))
        inner += part
        outputs[start : start + _ROWS_AT_ONCE] = layer.output_norm(inner)
    return outputs.reshape(hidden.shape)


def _softmax(scores: Floats) -> None:
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)


def _gelu(inputs: Floats) -> Floats:
    """The exact Gaussian error linear unit (Hendrycks & Gimpel 2016), not its tanh approximation."""
    gate = inputs * np.float32(1 / math.sqrt(2))
    erf(gate, out=gate)
    gate += np.float32(1)
    gate *= np.float32(0.5)
    gate *= inputs
    return gate


def _layer(tensors: Mapping[str, Floats], name: str, config: BertConfig) -> _Layer:
    projections = [_dense(tensors, f"{name}.attention.self.{part}") for part in ("query", "key", "value")]
    return _Layer(
        query_key_value=_Dense(
            np.concatenate([part.weight for part in projections], axis=1),
            np.concatenate([part.bias for part in projections]),
        ),
        attention_output=_dense(tensors, f"{name}.attention.output.dense"),
        attention_norm=_norm(tensors, f"{name}.attention.output.LayerNorm", config),
        intermediate=_dense(tensors, f"{name}.intermediate.dense"),
        output=_dense(tensors, f"{name}.output.dense"),
        output_norm=_norm(tensors, f"{name}.output.LayerNorm", config),
    )


def _dense(tensors: Mapping[str, Floats], name: str) -> _Dense:
    return _Dense(np.ascontiguousarray(tensors[f"{name}.weight"].T), tensors[f"{name}.bias"])


def _norm(tensors: Mapping[str, Floats], name: str, config: BertConfig) -> _LayerNorm:
    return _LayerNorm(tensors[f"{name}.weight"], tensors[f"{name}.bias"], config.layer_norm_eps)


TokenIds = tuple[int, ...]


class LightEncoder:
    """A loaded model. Its methods block for as long as they compute, and may be called by many threads.

    Args:
        folder: Holds config.json, tokenizer.json and model.safetensors.

    Raises:
        WeightsMissingError: the folder holds no encoder of this kind.
    """

    def __init__(self, folder: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        try:
            self._bert = _read_bert(folder)
        except (KeyError, ValueError) as error:
            raise WeightsMissingError(f"{folder} holds no BERT encoder: {error}") from error
        self._window = min(_read_window(folder) or self._bert.window, self._bert.window)
        self._tokenizer.enable_truncation(self._window)

    @property
    def dimension(self) -> int:
        return self._bert.dimension

    @property
    def token_dimension(self) -> int:
        return self._bert.dimension

    @property
    def layer_count(self) -> int:
        return self._bert.layer_count

    @property
    def window(self) -> int:
        """The most word pieces of a text, the two at its ends included; the rest is cut off."""
        return self._window

    def prepare(self, texts: Sequence[str]) -> list[Prepared[TokenIds]]:
        return [
            Prepared(tuple(encoding.ids), len(encoding.ids), truncated=bool(encoding.overflowing))
            for encoding in self._tokenizer.encode_batch([_encodable(text) for text in texts])
        ]

    def encode(self, inputs: Sequence[TokenIds]) -> Floats:
        """The vectors of whole texts, of length 1, (batch, dimension)."""
        hidden, mask = self._hidden(inputs)
        vectors: Floats = np.einsum("bld,bl->bd", hidden, mask.astype(np.float32))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors

    def encode_tokens(
        self, inputs: Sequence[TokenIds], choice: TokenChoice = LAST_LAYER
    ) -> list[TokenVectors]:
        """The word pieces of texts and their hidden states, scaled to length 1."""
        hidden, _ = self._hidden(inputs, choice.layer)
        hidden /= np.linalg.norm(hidden, axis=2, keepdims=True)
        # The first and the last piece represent the text's two ends.
        ends = int(choice.special)
        return [
            TokenVectors(
                self._pieces(ids[1 - ends : len(ids) - 1 + ends]),
                text[1 - ends : len(ids) - 1 + ends].copy(),
                leading=ends,
                trailing=ends,
            )
            for text, ids in zip(hidden, inputs, strict=True)
        ]

    def _pieces(self, ids: TokenIds) -> list[str]:
        return [str(self._tokenizer.id_to_token(piece)) for piece in ids]

    def _hidden(self, inputs: Sequence[TokenIds], layer: int = 0) -> tuple[Floats, NDArray[np.bool_]]:
        lengths = np.array([len(ids) for ids in inputs])
        mask = np.arange(lengths.max()) < lengths[:, None]
        ids = np.zeros(mask.shape, dtype=np.int64)
        ids[mask] = np.concatenate([np.asarray(row, dtype=np.int64) for row in inputs])
        return self._bert(ids, mask, layer), mask


def _encodable(text: str) -> str:
    # A lone surrogate has no UTF-8 form, and the tokenizer takes nothing else.
    return text.encode("utf-8", "replace").decode("utf-8")


def _read_bert(folder: Path) -> Bert:
    config = _read_json(folder / "config.json")
    if config.get("model_type") != "bert" or config.get("hidden_act") != "gelu":
        raise ValueError("config.json must say model_type bert and hidden_act gelu")
    with safe_open(folder / WEIGHTS_FILE, framework="np") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 # no mapping
    return Bert(
        tensors,
        BertConfig(
            num_hidden_layers=config["num_hidden_layers"],
            num_attention_heads=config["num_attention_heads"],
            layer_norm_eps=config["layer_norm_eps"],
        ),
    )


def _read_window(folder: Path) -> int | None:
    file = folder / "sentence_bert_config.json"
    if not file.is_file():
        return None
    window = _read_json(file).get("max_seq_length")
    return int(window) if window else None


def _read_json(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content
