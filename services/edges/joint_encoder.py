"""The joint encoder: encodes the scenario and all events of a script together and scores every pair at once.

torch and sentence-transformers are imported when an encoder is made, not before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

from services.edges.card import WEIGHTS_FILE
from services.edges.encoder import EncoderError, require_extra
from services.edges.inference import ParameterGroup
from services.edges.order import Edge
from services.edges.plan import Label, Precision, TrainingPlan
from services.edges.script_tokens import ScriptTokens, orders_to_read, stack_sequences, tokenize_script

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
