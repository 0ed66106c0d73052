"""The joint encoder: encodes the scenario and all events of a script together and scores every pair at once.

torch and sentence-transformers are imported when an encoder is made, not before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any

from services.edges.card import WEIGHTS_FILE
from services.edges.encoder import EncoderError, require_extra
from services.edges.inference import ParameterGroup, WindowError
from services.edges.order import Edge
from services.edges.plan import Label, Precision, TrainingPlan

MAX_SCENARIO_TOKENS, MAX_EVENT_TOKENS = 60, 40
"""Longer texts are cut, so that one of them cannot take the window from all others."""

# An upper bound of the text of a window; longer texts only cost time.
_CHARACTERS_PER_TOKEN = 20

Span = tuple[int, int]
"""The places of an event's tokens in a sequence: the first, and the one after the last."""


@dataclass(frozen=True)
class ScriptTokens:
    scenario: tuple[int, ...]
    events: tuple[tuple[int, ...], ...]
    truncated: bool
    """Whether a text was longer than its part and cut."""

    @property
    def length(self) -> int:
        """The number of tokens of the whole sequence."""
        return 2 + len(self.scenario) + sum(len(event) + 1 for event in self.events)

    def sequence(self, order: Iterable[int], start: int, separator: int) -> tuple[list[int], list[Span]]:
        """Start, scenario, and the events in an order, each with a separator behind it.

        Args:
            order: The places of the events.
            start: The token that sequences start with.
            separator: The token between texts.

        Returns:
            The sequence, and for each event, in that order, the span of its tokens with its separator.
        """
        sequence = [start, *self.scenario, separator]
        spans = []
        for event in order:
            first = len(sequence)
            sequence += [*self.events[event], separator]
            spans.append((first, len(sequence)))
        return sequence, spans


def tokenize_script(tokenizer: Any, scenario: str, events: Sequence[str], window: int) -> ScriptTokens:
    """Reads a script.

    Args:
        tokenizer: Of transformers.
        scenario: What the script is for.
        events: The events' texts.
        window: The most tokens of the sequence.

    Raises:
        WindowError: They do not fit, even when long texts are cut.
    """
    limits = [MAX_SCENARIO_TOKENS] + [MAX_EVENT_TOKENS] * len(events)
    texts = [
        text[: limit * _CHARACTERS_PER_TOKEN] for text, limit in zip((scenario, *events), limits, strict=True)
    ]
    # Not verbose: a text that is longer than the window would be warned of, though it is cut below.
    read = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
    first, *others = (tuple(ids[:limit]) for ids, limit in zip(read, limits, strict=True))
    tokens = ScriptTokens(
        first,
        tuple(others),
        truncated=any(len(ids) > limit for ids, limit in zip(read, limits, strict=True))
        or any(len(text) > len(cut) for text, cut in zip((scenario, *events), texts, strict=True)),
    )
    if tokens.length > window:
        raise WindowError(tokens.length, window)
    return tokens


def orders_to_read(events: Sequence[str], count: int) -> list[list[int]]:
    """Orders in which a model reads the events of a script, whose answers are then averaged.

    They depend on the texts alone, so that the order in which events are given decides nothing.

    Args:
        events: The events' texts.
        count: How many orders.

    Returns:
        For each order the places of the events.
    """
    by_text = sorted(range(len(events)), key=events.__getitem__)
    return [Random(index).sample(by_text, len(by_text)) for index in range(count)]  # noqa: S311


def stack_sequences(
    read: Sequence[tuple[Sequence[int], Sequence[Span]]], padding: int
) -> tuple[Any, Any, Any]:
    """Stacks sequences and their spans into tensors. It needs torch.

    Args:
        read: As ``ScriptTokens.sequence`` gives them; at least one.
        padding: The token that fills up.

    Returns:
        The tokens and the mask, both (scripts, tokens), whole numbers; and float matrices (scripts, events,
        tokens) that make of the vectors of tokens the means of events.
    """
    import torch

    length = max(len(sequence) for sequence, _ in read)
    ids = torch.full((len(read), length), padding)
    mask = torch.zeros(len(read), length, dtype=torch.long)
    means = torch.zeros(len(read), max(len(spans) for _, spans in read), length)
    for row, (sequence, spans) in enumerate(read):
        ids[row, : len(sequence)] = torch.tensor(sequence)
        mask[row, : len(sequence)] = 1
        for place, (first, end) in enumerate(spans):
            means[row, place, first:end] = 1 / (end - first)
    return ids, mask, means


RELATIONS = (Label.EDGE, Label.PRECEDES)
"""The scored relations. Both are trained regardless of the label served; each improves the other."""
_SHARES: Mapping[Label, Mapping[Label, float]] = {
    Label.EDGE: {Label.EDGE: 1.0, Label.PRECEDES: 0.0},
    Label.PRECEDES: {Label.EDGE: 0.0, Label.PRECEDES: 1.0},
    Label.BOTH: {Label.EDGE: 1 / 3, Label.PRECEDES: 2 / 3},
}
"""The weights of the relations in the served probability, by label."""

# The scorer is untrained; the encoder is pre-trained and needs a smaller rate.
_SCORER_RATE = 5.0
# The names in encoder configurations. Attention dropout takes a tenth of the time without a benefit.
_ATTENTION_DROPOUTS = ("attention_probs_dropout_prob", "attention_dropout")


class JointEncoder:
    """An encoder of whole scripts with a scorer of pairs above it. Its methods block.

    Args:
        encoder: A transformers model.
        tokenizer: Its tokenizer.
        plan: The settings of the training.
        device: The torch device; absent: the fastest available.
    """

    def __init__(self, encoder: Any, tokenizer: Any, plan: TrainingPlan, device: str | None) -> None:
        from sentence_transformers.util import get_device_name
        from torch import nn

        from services.edges.layers import make_scorer, use_byte_dropout

        self._tokenizer = tokenizer
        self._plan = plan
        self._device = device or get_device_name()
        self._shares = [_SHARES[plan.label][relation] for relation in RELATIONS]
        # Half of a small encoder's weights: most words of a script are rare, and would be learnt by heart.
        encoder.get_input_embeddings().weight.requires_grad_(False)
        self.model: Any = nn.ModuleDict(
            {"encoder": encoder, "scorer": make_scorer(encoder.config.hidden_size)}
        )
        use_byte_dropout(self.model)
        self.model.to(self._device).float()

    @classmethod
    def start(cls, plan: TrainingPlan, *, device: str | None = None) -> JointEncoder:
        """Loads the encoder of a plan and puts new, random layers above it.

        Raises:
            ExtraMissingError: sentence-transformers is not installed.
            EncoderError: There is no such encoder, or its window is smaller than the plan's.
        """
        require_extra()
        from transformers import AutoConfig, AutoModel, AutoTokenizer

        # A folder has all that is needed; only a hub id may ask the network.
        local = Path(plan.encoder).is_dir()
        try:
            tokenizer = AutoTokenizer.from_pretrained(plan.encoder, local_files_only=local)
            # Fused attention is no faster at these lengths, and its gradients need not be repeatable.
            config = AutoConfig.from_pretrained(plan.encoder, local_files_only=local)
            for name in _ATTENTION_DROPOUTS:
                if hasattr(config, name):
                    setattr(config, name, 0.0)
            encoder = AutoModel.from_pretrained(
                plan.encoder, config=config, local_files_only=local, attn_implementation="eager"
            )
            _check(plan, tokenizer, encoder.config)
            return cls(encoder, tokenizer, plan, device)
        except EncoderError:
            raise
        except (OSError, ValueError, KeyError, RuntimeError, AttributeError) as error:
            raise EncoderError(f"{plan.encoder!r} cannot be loaded as an encoder: {error}") from error

    @classmethod
    def load(cls, folder: Path, plan: TrainingPlan, *, device: str | None = None) -> JointEncoder:
        """Loads a model written by ``save``.

        Raises:
            ExtraMissingError: sentence-transformers is not installed.
            EncoderError: The folder has no joint encoder.
        """
        require_extra()
        from safetensors.torch import load_model
        from transformers import AutoConfig, AutoModel, AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
            config = AutoConfig.from_pretrained(str(folder), local_files_only=True)
            encoder = AutoModel.from_config(config, attn_implementation="eager")
            loaded = cls(encoder, tokenizer, plan, device)
            load_model(loaded.model, folder / WEIGHTS_FILE, device=str(loaded._device))
        except (OSError, ValueError, KeyError, RuntimeError, AttributeError) as error:
            raise EncoderError(f"{folder} cannot be loaded as a joint encoder: {error}") from error
        return loaded

    @property
    def parameter_groups(self) -> Sequence[ParameterGroup]:
        """The encoder, and the scorer at a higher rate."""
        return ParameterGroup(self.model["encoder"], 1.0), ParameterGroup(self.model["scorer"], _SCORER_RATE)

    def tokenize(self, scenario: str, events: Sequence[str]) -> ScriptTokens:
        """Tokenizes a script.

        Raises:
            WindowError: The script exceeds the window.
        """
        return tokenize_script(self._tokenizer, scenario, events, self._plan.max_length)

    def logits(self, scripts: Sequence[ScriptTokens], orders: Sequence[Sequence[int]]) -> Any:
        """The unnormalised scores of all ordered pairs, with gradients where enabled.

        Args:
            scripts: A batch.
            orders: The order of events of each script.

        Returns:
            A float tensor (batch, ``RELATIONS``, events, events), padded to the largest number of events;
            pairs are in the order of ``orders``.
        """
        import torch

        from services.edges.layers import score_pairs

        inputs, means = self._inputs(scripts, orders)
        half = self._plan.precision is Precision.BFLOAT16
        with torch.autocast(means.device.type, dtype=torch.bfloat16, enabled=half):
            hidden = self.model["encoder"](**inputs).last_hidden_state
            return score_pairs(self.model["scorer"], torch.bmm(means, hidden)).float()

    def probabilities(self, script: ScriptTokens, orders: Sequence[Sequence[int]]) -> list[Any]:
        """The probabilities of a script's pairs for several orders of its events, in evaluation mode.

        Returns:
            A list of lists for each order: [i][j] is the probability of events i and j, by their indices in
                the script.
        """
        import torch

        self.model.eval()
        with torch.inference_mode():
            each = self.logits([script] * len(orders), orders).sigmoid()
            scores = (each * each.new_tensor(self._shares)[:, None, None]).sum(1)
        # The inverse of an order maps events to positions.
        inverses = [torch.tensor(order).argsort() for order in orders]
        return [row[place][:, place].tolist() for row, place in zip(scores.cpu(), inverses, strict=True)]

    def inference(self, scenario: str, events: Sequence[str], batch_size: int) -> JointInference:
        """Starts an inference over a script.

        Raises:
            WindowError: The script exceeds the window.
        """
        return JointInference(self, scenario, events, batch_size)

    def save(self, folder: Path) -> None:
        """Writes weights (safetensors), configuration and tokenizer."""
        from safetensors.torch import save_model

        folder.mkdir(parents=True, exist_ok=True)
        self.model["encoder"].config.save_pretrained(str(folder))
        self._tokenizer.save_pretrained(str(folder))
        save_model(self.model, str(folder / WEIGHTS_FILE))

    def _inputs(self, scripts: Sequence[ScriptTokens], orders: Sequence[Sequence[int]]) -> tuple[Any, Any]:
        """The encoder's inputs, and the matrices that make the means of the events' tokens."""
        start, separator = self._tokenizer.cls_token_id, self._tokenizer.sep_token_id
        read = [
            script.sequence(order, start, separator) for script, order in zip(scripts, orders, strict=True)
        ]
        ids, mask, means = stack_sequences(read, self._tokenizer.pad_token_id)
        inputs = {"input_ids": ids.to(self._device), "attention_mask": mask.to(self._device)}
        return inputs, means.to(self._device)


def _check(plan: TrainingPlan, tokenizer: Any, config: Any) -> None:
    if tokenizer.cls_token_id is None or tokenizer.sep_token_id is None or tokenizer.pad_token_id is None:
        raise EncoderError(f"{plan.encoder!r} has no tokens that start, part and pad sequences")
    window = min(tokenizer.model_max_length, getattr(config, "max_position_embeddings", plan.max_length))
    if plan.max_length > window:
        raise EncoderError(f"{plan.encoder!r} reads at most {window} tokens, not {plan.max_length}")


ORDERS = 4
"""The number of event orders averaged at inference."""


class JointInference:
    """An inference over one script in several orders of its events; the results are averaged."""

    def __init__(self, encoder: JointEncoder, scenario: str, events: Sequence[str], batch_size: int) -> None:
        self._encoder = encoder
        self._tokens = encoder.tokenize(scenario, events)
        self._size = len(events)
        orders = orders_to_read(events, ORDERS)
        at_once = max(1, batch_size // (self._size * (self._size - 1) // 2))
        self._batches = [orders[first : first + at_once] for first in range(0, ORDERS, at_once)]
        self._answers: list[Any] = []

    @property
    def batch_count(self) -> int:
        return len(self._batches)

    @property
    def truncated(self) -> int:
        """All orders have the same tokens, so all are truncated or none."""
        return ORDERS if self._tokens.truncated else 0

    def run_batch(self, batch: int) -> None:
        """Runs the orders of one batch."""
        self._answers += self._encoder.probabilities(self._tokens, self._batches[batch])

    def probabilities(self) -> Mapping[Edge, float]:
        """The means over all orders."""
        return {
            (i, j): sum(answer[i][j] for answer in self._answers) / len(self._answers)
            for i, j in permutations(range(self._size), 2)
        }
