"""Ensembles trained for real, with an encoder of two layers: needs sentence-transformers and torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from dramaturg.graphs.files import read_rows
from dramaturg_research.training.checkpoints import CheckpointMismatchError
from dramaturg_research.training.command import train_members
from dramaturg_research.training.evaluation import choose_threshold
from dramaturg_research.training.scripts import read_scripts
from dramaturg_research.training.trainer import TrainingData
from services.edges.card import ModelCard, member_folders, read_card
from services.edges.commands import predict_rows
from services.edges.inference import infer
from services.edges.model import ModelMissingError, load_model
from services.edges.plan import Reading, TrainingPlan
from tests.support.edges import WORDS, KilledError, Witness, write_scripts, write_tiny_encoder

pytest.importorskip("torch", reason="needs the extra [embeddings]")
pytest.importorskip("sentence_transformers", reason="needs the extra [embeddings]")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("material")
    write_scripts(folder / "scripts.json", count=40)
    write_tiny_encoder(folder / "encoder")
    return folder


def plan_of(material: Path, reading: Reading = Reading.TOGETHER, **changes: int) -> TrainingPlan:
    return TrainingPlan.model_validate(
        {
            "encoder": str(material / "encoder"),
            "reading": reading,
            "learning_rate": 3e-3,
            "epochs": 2,
            "batch_size": 4,
            "max_length": 64,
            "threads": 1,
            "members": 2,
            **changes,
        }
    )


def data_of(material: Path, plan: TrainingPlan) -> TrainingData:
    return TrainingData.split(read_scripts(material / "scripts.json"), plan)


def run(material: Path, plan: TrainingPlan, folder: Path, witness: Witness | None = None) -> ModelCard:
    return train_members(data_of(material, plan), plan, folder, witness or Witness(), device="cpu")


@pytest.mark.parametrize("reading", list(Reading), ids=lambda reading: reading.value)
def test_members_answer_as_one(material: Path, reading: Reading, tmp_path: Path) -> None:
    plan = plan_of(material, reading)
    witness = Witness()
    card = run(material, plan, tmp_path, witness)
    assert witness.members == [(1, 2), (2, 2)]
    assert card == read_card(tmp_path)
    members = [load_model(folder, device="cpu") for folder in member_folders(tmp_path, plan)]
    assert [member.card.plan.seed for member in members] == [0, 1]
    assert members[0].card.weights_sha256 != members[1].card.weights_sha256
    together = load_model(tmp_path, device="cpu").encoder
    asked = "scenario", WORDS[:4]
    answers = [infer(member.encoder, *asked) for member in members]
    assert infer(together, *asked) == pytest.approx(
        {edge: (answers[0][edge] + answers[1][edge]) / 2 for edge in answers[0]}
    )
    held_out = data_of(material, plan).held_out
    predicted = [infer(together, script.scenario, script.events) for script in held_out]
    threshold, scores = choose_threshold(held_out, predicted)
    assert (card.threshold, card.held_out.f1) == (threshold, scores.f1)


def test_an_ensemble_predicts_files(material: Path, tmp_path: Path) -> None:
    run(material, plan_of(material, epochs=1), tmp_path)
    rows = read_rows(material / "scripts.json")
    predictions, failures = predict_rows(load_model(tmp_path, device="cpu"), rows, 0.5, lambda: None)
    assert (len(predictions), failures) == (len(rows), {})


def test_a_killed_ensemble_goes_on_with_the_member_that_it_was_at(material: Path, tmp_path: Path) -> None:
    plan = plan_of(material)
    straight = Witness()
    expected = run(material, plan, tmp_path / "straight", straight)
    # Within the second member.
    dies_at = len(straight.losses) * 7 // 8
    with pytest.raises(KilledError):
        run(material, plan, tmp_path / "resumed", Witness(dies_at))
    resumed = Witness()
    assert run(material, plan, tmp_path / "resumed", resumed) == expected
    assert 0 < len(resumed.losses) < len(straight.losses) // 2
    again = Witness()
    assert run(material, plan, tmp_path / "resumed", again) == expected
    assert not again.losses


def test_more_members_keep_those_that_are_finished(material: Path, tmp_path: Path) -> None:
    plan = plan_of(material, epochs=1)
    straight = Witness()
    run(material, plan, tmp_path / "two", straight)
    with pytest.raises(KilledError):
        run(material, plan, tmp_path / "three", Witness(len(straight.losses)))
    more = Witness()
    card = run(material, plan.model_copy(update={"members": 3}), tmp_path / "three", more)
    assert card.plan.members == 3
    assert len(more.losses) < len(straight.losses) * 3 // 2
    with pytest.raises(CheckpointMismatchError, match="another model"):
        run(material, plan, tmp_path / "three")


def test_an_ensemble_without_one_of_its_members_is_not_served(material: Path, tmp_path: Path) -> None:
    plan = plan_of(material, epochs=1)
    run(material, plan, tmp_path)
    (member_folders(tmp_path, plan)[1] / "model.safetensors").unlink()
    with pytest.raises(ModelMissingError, match="member-2"):
        load_model(tmp_path, device="cpu")
