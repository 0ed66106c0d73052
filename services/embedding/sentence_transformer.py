"""The sentence-transformers library as an encoder: any model that it can load, at the price of torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from services.embedding.backend import LAST_LAYER, Floats, Prepared, TokenChoice, TokenVectors
from services.embedding.weights import WEIGHTS_FILE, WeightsMissingError, verify

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import Tensor

INSTALL_COMMAND = "pip install 'dramaturg[embeddings]'"
"""What installs the library."""


class SentenceTransformerEncoder:
    """A loaded model. Its methods block for as long as they compute, and may be called by many threads.

    Args:
        model: The library's model.
    """

    def __init__(self, model: SentenceTransformer) -> None:
        self._model = model
        # Measured: the declared dimension may differ from the actual one.
        self._dimension = int(self.encode([""]).shape[1])
        added = model.tokenizer("a", return_special_tokens_mask=True)["special_tokens_mask"]
        self._added_before = added.index(0)
        self._added_after = added[::-1].index(0)
        self._token_dimension = int(self.encode_tokens(["a"])[0].values.shape[1])

    @property
    def dimension(self) -> int:
        return self._dimension

    @property
    def token_dimension(self) -> int:
        """The length of a token's vector: the output of the encoder, before pooling and projection."""
        return self._token_dimension

    @property
    def layer_count(self) -> int:
        return int(self._model[0].auto_model.config.num_hidden_layers)

    def prepare(self, texts: Sequence[str]) -> list[Prepared[str]]:
        """Counts the tokens of texts, those at their ends included; the library cuts them itself."""
        window = self._model.max_seq_length
        encoded = self._model.tokenizer(list(texts), truncation=False, verbose=False)
        lengths = [len(ids) for ids in encoded["input_ids"]]
        return [
            Prepared(text, min(length, window or length), truncated=window is not None and length > window)
            for text, length in zip(texts, lengths, strict=True)
        ]

    def encode(self, inputs: Sequence[str]) -> Floats:
        """The vectors of whole texts, of length 1, (batch, dimension)."""
        vectors = self._model.encode(
            list(inputs), batch_size=len(inputs), normalize_embeddings=True, show_progress_bar=False
        )
        return np.asarray(vectors, dtype=np.float32)

    def encode_tokens(self, inputs: Sequence[str], choice: TokenChoice = LAST_LAYER) -> list[TokenVectors]:
        """The tokens of texts and their hidden states, scaled to length 1.

        A prompt that the model declares for whole texts is not put before them.
        """
        if choice.layer:
            return self._layer(inputs, choice)
        # Without an output value the library returns everything, including token ids.
        texts = self._model.encode(
            list(inputs), prompt="", batch_size=len(inputs), output_value=None, show_progress_bar=False
        )
        return [self._tokens(text, special=choice.special) for text in texts]

    def _layer(self, inputs: Sequence[str], choice: TokenChoice) -> list[TokenVectors]:
        import torch

        read = self._model.tokenizer(
            list(inputs),
            padding=True,
            truncation=True,
            max_length=self._model.max_seq_length,
            return_tensors="pt",
        ).to(self._model.device)
        with torch.no_grad():
            states = self._model[0].auto_model(**read, output_hidden_states=True).hidden_states[choice.layer]
        return [
            self._tokens(
                {"attention_mask": mask, "input_ids": ids, "token_embeddings": values}, special=choice.special
            )
            for mask, ids, values in zip(read["attention_mask"], read["input_ids"], states, strict=True)
        ]

    def _tokens(self, text: Mapping[str, Tensor], *, special: bool) -> TokenVectors:
        real = text["attention_mask"].bool()
        ids = text["input_ids"][real].tolist()
        first, last = (0, 0) if special else (self._added_before, self._added_after)
        own = slice(first, len(ids) - last)
        values: Floats = text["token_embeddings"][real][own].float().cpu().numpy()
        values = values / np.linalg.norm(values, axis=1, keepdims=True)
        return TokenVectors(
            self._model.tokenizer.convert_ids_to_tokens(ids[own]),
            values,
            leading=self._added_before if special else 0,
            trailing=self._added_after if special else 0,
        )


def load_sentence_transformer(
    source: Path | str, sha256: str | None
) -> tuple[SentenceTransformerEncoder, str]:
    """Loads a model; returns it with the SHA-256 of its weights, empty if they are not in a folder.

    Args:
        source: The model's folder, or its id on the hub of the library. An id is downloaded once, unless the
            environment sets HF_HUB_OFFLINE.
        sha256: What model.safetensors in the folder must hash to. None: it is not checked.

    Raises:
        WeightsMissingError: The library or the model is not there, or not the one that is meant.
    """
    digest = ""
    if isinstance(source, Path) and (sha256 is not None or (source / WEIGHTS_FILE).is_file()):
        if not (source / WEIGHTS_FILE).is_file():
            raise WeightsMissingError(f"{source} has no {WEIGHTS_FILE}")
        digest = verify(source, sha256)
    try:
        # Torch takes seconds and hundreds of megabytes to import; it is imported on first use.
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise WeightsMissingError(
            f"sentence-transformers is not installed ({error}): run `{INSTALL_COMMAND}`, or serve with the "
            "engine 'light' or 'openai'",
            INSTALL_COMMAND,
        ) from error
    try:
        return SentenceTransformerEncoder(SentenceTransformer(str(source))), digest
    except (OSError, ValueError) as error:
        raise WeightsMissingError(f"sentence-transformers cannot load {str(source)!r}: {error}") from error
