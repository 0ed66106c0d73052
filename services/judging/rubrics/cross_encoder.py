"""A classifier or a reward model in this process: a CrossEncoder of sentence-transformers."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dramaturg.service.settings import SettingsError

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

_WEIGHTS = "model.safetensors"


class TooLongError(ValueError):
    """Two texts are longer than the model reads."""


class LocalModel:
    """A loaded model, which reads two texts at once. It computes one request after the other.

    Args:
        model: The library's model.
        weights_sha256: The SHA-256 of its weights. Empty: they are not in one file.
    """

    def __init__(self, model: CrossEncoder, weights_sha256: str) -> None:
        self.weights_sha256 = weights_sha256
        self._model = model
        self._lock = asyncio.Lock()

    @property
    def labels(self) -> Sequence[str]:
        """The labels, by output. One output is a score."""
        named = self._model.config.id2label
        return [str(named[index]) for index in range(self._model.config.num_labels)]

    async def classify(self, other: str, text: str) -> tuple[str, float]:
        """The likeliest label of a text beside another one, and its probability.

        Raises:
            TooLongError: They are longer than the model reads.
        """
        async with self._lock:
            probabilities = (await asyncio.to_thread(self._predict, other, text, apply_softmax=True)).tolist()
        best = max(range(len(probabilities)), key=probabilities.__getitem__)
        return self.labels[best], float(probabilities[best])

    async def score(self, other: str, text: str) -> float:
        """The score of a text beside another one, as the model gives it: most give one from 0 to 1.

        Raises:
            TooLongError: They are longer than the model reads.
        """
        async with self._lock:
            return float(await asyncio.to_thread(self._predict, other, text))

    def _predict(self, other: str, text: str, **options: Any) -> Any:
        tokenizer = self._model.tokenizer
        # The library cuts what is longer, and says nothing.
        most = getattr(self._model, "max_seq_length", None) or tokenizer.model_max_length
        count = len(tokenizer(other, text, truncation=False, verbose=False)["input_ids"])
        if count > most:
            raise TooLongError(f"The texts have {count} tokens; the model reads {most}.")
        return self._model.predict([(other, text)], show_progress_bar=False, **options)[0]


def load_local_model(folder: Path) -> LocalModel:
    """Loads a model. Takes seconds.

    Raises:
        SettingsError: The library is not installed, or cannot load the folder.
    """
    try:
        # Torch takes seconds and hundreds of megabytes to import.
        from sentence_transformers import CrossEncoder
    except ImportError as error:
        raise SettingsError(
            f"classifier.model_dir: sentence-transformers is not installed ({error}): "
            "run `pip install 'dramaturg[embeddings]'`"
        ) from error
    if not folder.is_dir():
        raise SettingsError(f"classifier.model_dir: {folder} is no folder")
    try:
        model = CrossEncoder(str(folder), local_files_only=True)
    except (OSError, ValueError) as error:
        raise SettingsError(f"classifier.model_dir: {folder} cannot be loaded: {error}") from error
    weights = folder / _WEIGHTS
    digest = ""
    if weights.is_file():
        with weights.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    return LocalModel(model, digest)
