"""The light encoder: our own forward pass over the weights of a sentence-transformers model.

Mean pooling over the tokens, then length 1 (Reimers & Gurevych 2019, section 3), as all-MiniLM-L6-v2 does it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from tokenizers import Tokenizer

from services.embedding.backend import LAST_LAYER, Floats, Prepared, TokenChoice, TokenVectors
from services.embedding.bert import Bert, BertConfig
from services.embedding.weights import WEIGHTS_FILE, WeightsMissingError

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
