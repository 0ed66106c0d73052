"""What decides a training and what is kept of it, without torch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from services.edges.card import (
    CARD_FILE,
    WEIGHTS_FILE,
    CardError,
    ModelCard,
    member_folders,
    read_card,
    weights_digest,
)
from services.edges.plan import TrainingPlan
from tests.support.edges import write_card

PLAN = TrainingPlan(encoder="e", learning_rate=0.1, warmup=0.1)


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
