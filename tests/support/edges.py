"""Edge models for tests: one that orders by the alphabet, and one small enough to be trained in seconds."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, cast

from dramaturg_research.training.progress import Progress
from services.edges.card import DataFacts, EpochFacts, ModelCard
from services.edges.encoder import PairEncoder, PairInference, Tokens
from services.edges.inference import EdgeEncoder, WindowError
from services.edges.model import TrainedModel
from services.edges.order import Pair
from services.edges.plan import TrainingPlan

WORDS = ("decide", "search", "choose", "order", "fetch", "open", "mix", "heat", "serve", "clean")
"""The words of synthetic events, in the order that a model is to learn."""


def write_card(folder: Path, **changes: Any) -> ModelCard:
    """A card of a training that never was."""
    epoch = EpochFacts(loss=0.5, threshold=0.35, f1=0.6, precision=0.6, recall=0.6, exact_matches=3)
    card = ModelCard(
        **{
            "plan": TrainingPlan(encoder="tiny"),
            "data": DataFacts(sha256="d" * 64, trained_scripts=9, held_out_scripts=1, skipped={}),
            "epochs": (epoch.model_copy(update={"f1": 0.5}), epoch),
            "chosen_epoch": 1,
            "weights_sha256": "a" * 64,
            "versions": {"torch": "0"},
            **changes,
        }
    )
    card.write(folder)
    return card


class AlphabeticalEncoder:
    """Stands where a trained encoder does: what comes first in the alphabet comes first.

    Args:
        before_batch: Called in the thread that works on a batch.
    """

    def __init__(self, before_batch: Callable[[], None] = lambda: None) -> None:
        self._before_batch = before_batch
        self.read: list[Pair] = []

    def tokenize(self, pairs: Sequence[Pair]) -> list[Tokens]:
        start = len(self.read)
        self.read += pairs
        return [
            Tokens({"input_ids": [start + index]}, truncated=len(pair.second) > 10)
            for index, pair in enumerate(pairs)
        ]

    def probabilities(self, batch: Sequence[Tokens]) -> list[list[float]]:
        self._before_batch()
        pairs = [self.read[tokens.inputs["input_ids"][0]] for tokens in batch]
        return [[0.1, 0.7, 0.2] if pair.first < pair.second else [0.1, 0.2, 0.7] for pair in pairs]

    def inference(self, scenario: str, events: Sequence[str], batch_size: int) -> PairInference:
        return PairInference(cast("PairEncoder", self), scenario, events, batch_size)


class NarrowEncoder:
    """Stands where an encoder does that reads all events together, and has no room for them."""

    def inference(self, scenario: str, events: Sequence[str], batch_size: int) -> PairInference:
        raise WindowError(len(events) * 10, 16)


def narrow_model(folder: Path) -> TrainedModel:
    """A model that can read no script."""
    return TrainedModel(cast("EdgeEncoder", NarrowEncoder()), write_card(folder))


def alphabetical_model(folder: Path, before_batch: Callable[[], None] = lambda: None) -> TrainedModel:
    """A model that orders by the alphabet."""
    return TrainedModel(cast("EdgeEncoder", AlphabeticalEncoder(before_batch)), write_card(folder))


def write_scripts(path: Path, count: int, seed: int = 0) -> None:
    """Writes scripts without roots whose events are ordered as their words are in ``WORDS``."""
    rng = Random(seed)
    records = []
    for index in range(count):
        words = sorted(rng.sample(range(len(WORDS)), 5))
        shown = rng.sample(words, len(words))
        place = {word: str(shown.index(word)) for word in words}
        records.append(
            {
                "scenario": f"scenario {index}",
                "events": {place[word]: WORDS[word] for word in shown},
                "gold_edges_for_prediction": [
                    f"{place[first]}->{place[second]}" for first, second in pairwise(words)
                ],
            }
        )
    path.write_text(json.dumps(records))


def write_tiny_encoder(folder: Path) -> None:
    """Writes a BERT encoder of two layers with random weights that knows ``WORDS``. Needs torch."""
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    # Comes with the extra, not with what types are checked against.
    transformers = import_module("transformers")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {word: index for index, word in enumerate([*special, *WORDS, "scenario", "to", ":"])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        **{f"{name.strip('[]').lower()}_token": name for name in special},
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        # Large enough that so small a model learns within seconds.
        initializer_range=0.2,
    )
    transformers.BertModel(config).save_pretrained(folder)


class KilledError(Exception):
    """Stands for a process that is killed between two steps."""


class Witness:
    """Remembers the losses; dies at a given batch of the training."""

    def __init__(self, dies_at: int | None = None) -> None:
        self.losses: list[tuple[int, int, float]] = []
        self.members: list[tuple[int, int]] = []
        self._dies_at = dies_at

    def on_batch(self, progress: Progress, batches: int) -> None:
        self.losses.append((progress.epoch, progress.batch, progress.loss_sum))
        if self._dies_at == len(self.losses):
            raise KilledError

    def on_evaluation(self, done: int, scripts: int) -> None: ...

    def on_epoch(self, progress: Progress) -> None: ...

    def on_member(self, member: int, members: int) -> None:
        self.members.append((member, members))
