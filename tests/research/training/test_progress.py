"""What decides a training and what is kept of it, without torch."""

from __future__ import annotations

from dramaturg_research.training.evaluation import EdgeScores
from dramaturg_research.training.progress import Progress


def _epoch(progress: Progress, f1: float) -> Progress:
    return progress.after_batch(1.0).after_epoch(0.5, EdgeScores(1, f1, f1, f1, 0))


def test_progress_counts_batches_and_epochs() -> None:
    progress = Progress().after_batch(2.0).after_batch(4.0)
    assert (progress.epoch, progress.batch) == (0, 2)
    progress = progress.after_epoch(0.4, EdgeScores(10, 0.3, 0.2, 0.5, 1))
    assert (progress.epoch, progress.batch, progress.loss_sum) == (1, 0, 0.0)
    assert progress.epochs[0].loss == 3.0
    assert Progress.model_validate(progress.model_dump(mode="json")) == progress


def test_training_ends_when_patience_does() -> None:
    progress = Progress()
    assert not progress.is_done(epochs=9, patience=2)
    for f1 in (0.2, 0.4, 0.4):
        progress = _epoch(progress, f1)
        assert not progress.is_done(epochs=9, patience=2)
    assert progress.best_epoch == 1
    assert _epoch(progress, 0.3).is_done(epochs=9, patience=2)
    assert not _epoch(progress, 0.5).is_done(epochs=9, patience=2)
    assert _epoch(progress, 0.5).is_done(epochs=4, patience=2)
