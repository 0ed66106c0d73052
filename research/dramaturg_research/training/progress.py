"""The progress of a training, stored in checkpoints."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from dramaturg_research.training.evaluation import EdgeScores
from services.edges.card import EpochFacts


class Progress(BaseModel):
    """The state of a training between two steps; immutable."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    batch: int = Field(default=0, ge=0)
    """The number of completed batches of the current epoch."""
    loss_sum: float = 0.0
    """The sum of their losses."""
    epochs: tuple[EpochFacts, ...] = ()
    """The completed epochs."""

    @property
    def epoch(self) -> int:
        """The current epoch, from 0."""
        return len(self.epochs)

    @property
    def best_epoch(self) -> int | None:
        """The first epoch with the best F1 on the held-out scripts; ``None`` before the first epoch."""
        if not self.epochs:
            return None
        return max(range(len(self.epochs)), key=lambda epoch: (self.epochs[epoch].f1, -epoch))

    def after_batch(self, loss: float) -> Progress:
        """The progress after one more batch."""
        return self.model_copy(update={"batch": self.batch + 1, "loss_sum": self.loss_sum + loss})

    def after_epoch(self, threshold: float, scores: EdgeScores) -> Progress:
        """The progress after the evaluation of an epoch."""
        facts = epoch_facts(self.loss_sum / max(1, self.batch), threshold, scores)
        return Progress(epochs=(*self.epochs, facts))

    def is_done(self, epochs: int, patience: int) -> bool:
        """Whether all epochs are done, or the last ``patience`` of them did not improve F1."""
        best = self.best_epoch
        if best is None:
            return False
        return self.epoch >= epochs or self.epoch - 1 - best >= patience


def epoch_facts(loss: float, threshold: float, scores: EdgeScores) -> EpochFacts:
    """The card entry of an epoch."""
    return EpochFacts(
        loss=loss,
        threshold=threshold,
        f1=scores.f1,
        precision=scores.precision,
        recall=scores.recall,
        exact_matches=scores.exact_matches,
    )
