"""What decides a training and what is kept of it, without torch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from services.edges.card import (
    CARD_FILE,
    WEIGHTS_FILE,
    CardError,
    ModelCard,
    member_folders,
    read_card,
    weights_digest,
)
from services.edges.plan import Label, Reading, TrainingPlan
from services.edges.training.checkpoints import differences
from services.edges.training.evaluation import EdgeScores
from services.edges.training.progress import Progress
from services.edges.training.scripts import ScriptFile, make_script
from services.edges.training.trainer import TooFewScriptsError, TrainingData
from tests.support.edges import write_card

PLAN = TrainingPlan(encoder="e", learning_rate=0.1, warmup=0.1)


def _epoch(progress: Progress, f1: float) -> Progress:
    return progress.after_batch(1.0).after_epoch(0.5, EdgeScores(1, f1, f1, f1, 0))


def test_the_learning_rate_rises_and_falls() -> None:
    rates = [PLAN.learning_rate_at(step, 100) for step in range(100)]
    assert rates.index(max(rates)) == 10
    assert max(rates) == pytest.approx(0.1)
    assert rates[:11] == sorted(rates[:11])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[0] > 0
    assert 0 < rates[-1] < 0.002


def test_without_warm_up_the_first_step_is_the_largest() -> None:
    plan = PLAN.model_copy(update={"warmup": 0.0})
    assert plan.learning_rate_at(0, 4) == pytest.approx(0.1)
    assert plan.learning_rate_at(3, 4) == pytest.approx(0.025)


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"holdout": 0.9}, {"learning_rate": -1}, {"pace": 3}])
def test_a_plan_has_limits(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        TrainingPlan.model_validate({"encoder": "e", **wrong})


def test_each_reading_has_its_defaults() -> None:
    pairs = TrainingPlan(encoder="e", reading=Reading.PAIRS)
    together = TrainingPlan(encoder="e", reading=Reading.TOGETHER)
    assert pairs.max_length < together.max_length
    assert pairs.learning_rate < together.learning_rate
    assert TrainingPlan(encoder="e", reading=Reading.TOGETHER, epochs=2).epochs == 2
    assert TrainingPlan.model_validate(together.model_dump(mode="json")) == together
    # As a card says it that was written before there was a choice.
    assert TrainingPlan(encoder="e") == pairs


def test_members_have_seeds_that_follow_each_other() -> None:
    plan = TrainingPlan(encoder="e", reading=Reading.TOGETHER, label=Label.BOTH, seed=7, members=3)
    members = [plan.of_member(member) for member in range(3)]
    assert [member.seed for member in members] == [7, 8, 9]
    assert {(member.members, member.label) for member in members} == {(1, Label.PRECEDES)}
    assert plan.model_copy(update={"label": Label.EDGE}).of_member(0).label is Label.EDGE


def test_pairs_have_one_label() -> None:
    with pytest.raises(ValidationError, match="both needs the reading together"):
        TrainingPlan(encoder="e", label=Label.BOTH)


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


def test_another_training_is_told_by_what_differs() -> None:
    saved = {"plan": PLAN.model_dump(mode="json"), "data_sha256": "a"}
    other = PLAN.model_copy(update={"label": Label.EDGE, "seed": 5})
    present = {"plan": other.model_dump(mode="json"), "data_sha256": "b"}
    assert differences(saved, saved) == []
    assert differences(saved, present) == ["data", "label", "seed"]


def test_the_data_is_parted_and_counted() -> None:
    scripts = tuple(make_script(f"s {index}", ["a", "b"], [(0, 1)]) for index in range(20))
    data = TrainingData.part(ScriptFile(scripts, {"7": "has a cycle"}, "0" * 64), PLAN)
    assert (data.facts.trained_scripts, data.facts.held_out_scripts) == (18, 2)
    assert data.facts.skipped == {"7": "has a cycle"}
    with pytest.raises(TooFewScriptsError):
        TrainingData.part(ScriptFile(scripts[:1], {}, "0" * 64), PLAN)


def test_a_card_tells_of_its_weights(tmp_path: Path) -> None:
    (tmp_path / WEIGHTS_FILE).write_bytes(b"weights")
    written = write_card(tmp_path, weights_sha256=weights_digest(tmp_path, PLAN))
    card = read_card(tmp_path)
    assert card == written
    assert card.threshold == card.epochs[card.chosen_epoch].threshold == 0.35
    assert card.facts["label"] == "precedes"
    (tmp_path / WEIGHTS_FILE).write_bytes(b"others")
    with pytest.raises(CardError, match="other weights"):
        read_card(tmp_path)
    (tmp_path / WEIGHTS_FILE).unlink()
    with pytest.raises(CardError, match=WEIGHTS_FILE):
        read_card(tmp_path)


def test_the_card_of_an_ensemble_tells_of_all_weights(tmp_path: Path) -> None:
    plan = TrainingPlan(encoder="e", members=2)
    folders = member_folders(tmp_path, plan)
    assert [folder.name for folder in folders] == ["member-1", "member-2"]
    for folder in folders:
        folder.mkdir()
        (folder / WEIGHTS_FILE).write_bytes(folder.name.encode())
    written = write_card(tmp_path, plan=plan, weights_sha256=weights_digest(tmp_path, plan))
    assert read_card(tmp_path) == written
    assert written.facts["members"] == "2"
    (folders[1] / WEIGHTS_FILE).write_bytes(b"others")
    with pytest.raises(CardError, match="other weights"):
        read_card(tmp_path)
    (folders[1] / WEIGHTS_FILE).unlink()
    with pytest.raises(CardError, match="member-2 has no"):
        read_card(tmp_path)


def test_a_card_from_before_there_were_members_is_of_one(tmp_path: Path) -> None:
    (tmp_path / WEIGHTS_FILE).write_bytes(b"weights")
    card = write_card(tmp_path, weights_sha256=weights_digest(tmp_path, PLAN))
    text = json.loads((tmp_path / CARD_FILE).read_text())
    del text["plan"]["members"]
    (tmp_path / CARD_FILE).write_text(json.dumps(text))
    assert read_card(tmp_path) == card
    assert member_folders(tmp_path, card.plan) == [tmp_path]


def test_a_card_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(CardError, match="holds no edge model"):
        read_card(tmp_path)
    write_card(tmp_path)
    text = (tmp_path / CARD_FILE).read_text()
    (tmp_path / CARD_FILE).write_text(text.replace('"chosen_epoch": 1', '"chosen_epoch": 2'))
    with pytest.raises(CardError, match="cannot be read"):
        read_card(tmp_path)
    (tmp_path / CARD_FILE).write_text(text.replace('"label": "precedes"', '"label": "follows"'))
    with pytest.raises(CardError, match=r"plan\.label"):
        read_card(tmp_path)


def test_cards_are_plain_json(tmp_path: Path) -> None:
    card = write_card(tmp_path)
    assert ModelCard.model_validate_json((tmp_path / CARD_FILE).read_text()) == card
