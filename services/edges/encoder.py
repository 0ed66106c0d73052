"""The cross-encoder: classifies the order of two events of a scenario.

torch and sentence-transformers are imported when an encoder is made, not before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from services.edges.inference import ParameterGroup, inference_batches
from services.edges.order import Edge, Pair, Relation, merge_orders, pairs_of
from services.edges.plan import Precision

INSTALL_COMMAND = "pip install 'dramaturg[embeddings]'"

# A long scenario must not push the events out of the window; this leaves them more than half of it.
_SCENARIO_CHARACTERS_PER_TOKEN = 2
# More than any window has; longer texts only cost time.
_EVENT_CHARACTERS_PER_TOKEN = 20


class ExtraMissingError(ImportError):
    """sentence-transformers is not installed."""

    def __init__(self) -> None:
        super().__init__(f"sentence-transformers is not installed: run {INSTALL_COMMAND}")


def require_extra() -> None:
    """Checks that sentence-transformers is installed, without importing it.

    Raises:
        ExtraMissingError: It is not installed.
    """
    if find_spec("sentence_transformers") is None:
        raise ExtraMissingError


def default_precision(device: str | None) -> Precision:
    """bfloat16 on a CUDA device that multiplies in it, else float32.

    Args:
        device: The torch device; absent: the fastest available.
    """
    if find_spec("sentence_transformers") is None:
        return Precision.FLOAT32
    import torch
    from sentence_transformers.util import get_device_name

    name = device or get_device_name()
    halves = name.startswith("cuda") and torch.cuda.is_bf16_supported(including_emulation=False)
    return Precision.BFLOAT16 if halves else Precision.FLOAT32


class EncoderError(ValueError):
    """The encoder cannot be loaded."""


@dataclass(frozen=True)
class Tokens:
    """The model inputs of a pair."""

    inputs: dict[str, list[int]]
    """The model's inputs by name, without padding."""
    truncated: bool
    """Whether the texts were truncated to the window."""

    @property
    def length(self) -> int:
        return len(self.inputs["input_ids"])


class PairEncoder:
    """A cross-encoder over three classes, one for each ``Relation``. Its methods block."""

    def __init__(self, cross_encoder: Any, max_length: int, precision: Precision) -> None:
        self._cross_encoder = cross_encoder
        self._precision = precision
        self._max_length = max_length
        self.model: Any = cross_encoder.model
        """The ``torch.nn.Module``; its output has ``logits``, (pairs, 3)."""

    @classmethod
    def load(
        cls, source: str, max_length: int, precision: Precision, *, device: str | None = None
    ) -> PairEncoder:
        """Loads a trained cross-encoder, or an encoder that gets a new, random layer of three classes.

        Args:
            source: A folder or hub id.
            max_length: The maximum number of tokens of a pair.
            precision: The precision of matrix products.
            device: The torch device; absent: the fastest available.

        Raises:
            ExtraMissingError: sentence-transformers is not installed.
            EncoderError: The encoder cannot be loaded, or its window is too small.
        """
        require_extra()
        from sentence_transformers import CrossEncoder

        try:
            # Only hub ids may use the network.
            loaded = CrossEncoder(
                source,
                num_labels=len(Relation),
                device=device,
                local_files_only=Path(source).is_dir(),
            )
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise EncoderError(f"{source!r} cannot be loaded as an encoder: {error}") from error
        window = getattr(loaded.model.config, "max_position_embeddings", max_length)
        if max_length > window:
            raise EncoderError(f"{source!r} reads at most {window} tokens, not {max_length}")
        return cls(loaded, max_length, precision)

    @property
    def parameter_groups(self) -> Sequence[ParameterGroup]:
        """The whole model at one rate."""
        return (ParameterGroup(self.model, 1.0),)

    def tokenize(self, pairs: Sequence[Pair]) -> list[Tokens]:
        """Tokenizes pairs. Long pairs are truncated: first the scenario, then the longer segment."""
        if not pairs:
            return []
        window = self._max_length
        limits = _SCENARIO_CHARACTERS_PER_TOKEN * window, _EVENT_CHARACTERS_PER_TOKEN * window
        clipped = [pair.clipped(*limits) for pair in pairs]
        first, second = zip(*(pair.texts for pair in clipped), strict=True)
        read = self._cross_encoder.tokenizer(
            list(first), list(second), truncation="longest_first", max_length=window
        )
        return [
            Tokens(
                {name: read[name][index] for name in read},
                truncated=clipped[index] != pair or bool(read.encodings[index].overflowing),
            )
            for index, pair in enumerate(pairs)
        ]

    def logits(self, batch: Sequence[Tokens]) -> Any:
        """The logits of a batch, a float tensor (batch, 3), with gradients if enabled."""
        import torch

        columns = _columns(tokens.inputs for tokens in batch)
        inputs = self._cross_encoder.tokenizer.pad(columns, return_tensors="pt").to(self.model.device)
        half = self._precision is Precision.BFLOAT16
        with torch.autocast(inputs["input_ids"].device.type, dtype=torch.bfloat16, enabled=half):
            return self.model(**inputs).logits.float()

    def probabilities(self, batch: Sequence[Tokens]) -> list[list[float]]:
        """The probabilities of the three relations for each member of a batch, in evaluation mode."""
        import torch

        self.model.eval()
        with torch.inference_mode():
            rows: list[list[float]] = torch.softmax(self.logits(batch), dim=-1).tolist()
        return rows

    def inference(self, scenario: str, events: Sequence[str], batch_size: int) -> PairInference:
        """Starts an inference over every pair of events in both orders."""
        return PairInference(self, scenario, events, batch_size)

    def save(self, folder: Path) -> None:
        """Saves weights and tokenizer in sentence-transformers' format."""
        self._cross_encoder.save_pretrained(str(folder))


class PairInference:
    """An inference over one script: every pair in both orders; the probabilities are averaged."""

    def __init__(self, encoder: PairEncoder, scenario: str, events: Sequence[str], batch_size: int) -> None:
        self._encoder = encoder
        self._size = len(events)
        self._tokens = encoder.tokenize(pairs_of(scenario, events))
        self._batches = inference_batches([one.length for one in self._tokens], batch_size)
        self._answers: list[Sequence[float]] = [()] * len(self._tokens)

    @property
    def batch_count(self) -> int:
        return len(self._batches)

    @property
    def truncated(self) -> int:
        """The number of truncated inputs; each pair is two inputs, one for each order."""
        return sum(one.truncated for one in self._tokens)

    def run_batch(self, batch: int) -> None:
        """Runs one batch of pairs."""
        indices = self._batches[batch]
        rows = self._encoder.probabilities([self._tokens[index] for index in indices])
        for index, row in zip(indices, rows, strict=True):
            self._answers[index] = row

    def probabilities(self) -> Mapping[Edge, float]:
        """The means of both orders."""
        return merge_orders(self._size, self._answers)


def _columns(rows: Iterable[dict[str, list[int]]]) -> dict[str, list[list[int]]]:
    columns: dict[str, list[list[int]]] = {}
    for row in rows:
        for name, values in row.items():
            columns.setdefault(name, []).append(values)
    return columns
