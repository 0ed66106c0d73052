"""Training for real, in both readings, with an encoder of two layers: needs sentence-transformers, torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dramaturg.api.generation.v1 import edge_service_pb2 as pb
from dramaturg.api.generation.v1 import edge_service_pb2_grpc as pb_grpc
from dramaturg.api.graph.v1.script_graph_pb2 import Event
from dramaturg.cli.main import app
from dramaturg.graphs.files import read_rows
from dramaturg.service.channel import open_channel
from dramaturg.testing import serve
from dramaturg_research.training.checkpoints import CheckpointMismatchError
from dramaturg_research.training.scripts import read_scripts
from dramaturg_research.training.trainer import TrainingData, train
from services.edges.app import App, EdgesSettings
from services.edges.card import ModelCard, read_card
from services.edges.commands import predict_rows
from services.edges.encoder import EncoderError, PairEncoder, default_precision
from services.edges.inference import WindowError, infer
from services.edges.joint_encoder import JointEncoder
from services.edges.model import load_model
from services.edges.order import Pair
from services.edges.plan import Label, Precision, Reading, TrainingPlan
from tests.support.edges import WORDS, KilledError, Witness, write_scripts, write_tiny_encoder

pytest.importorskip("torch", reason="needs the extra [embeddings]")
pytest.importorskip("sentence_transformers", reason="needs the extra [embeddings]")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module", params=list(Reading), ids=lambda reading: reading.value)
def reading(request: pytest.FixtureRequest) -> Reading:
    found: Reading = request.param
    return found


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("material")
    write_scripts(folder / "scripts.json", count=60)
    write_scripts(folder / "unseen.json", count=20, seed=99)
    write_tiny_encoder(folder / "encoder")
    return folder


_SETTINGS: dict[Reading, dict[str, Any]] = {
    Reading.PAIRS: {"epochs": 15, "patience": 15, "batch_size": 16, "max_length": 16},
    Reading.TOGETHER: {"epochs": 25, "patience": 25, "batch_size": 2, "max_length": 64},
}


def plan_of(material: Path, reading: Reading, **changes: Any) -> TrainingPlan:
    return TrainingPlan.model_validate(
        {
            "encoder": str(material / "encoder"),
            "reading": reading,
            "learning_rate": 3e-3,
            "threads": 1,
            **_SETTINGS[reading],
            **changes,
        }
    )


def run(material: Path, plan: TrainingPlan, folder: Path, witness: Witness | None = None) -> ModelCard:
    data = TrainingData.split(read_scripts(material / "scripts.json"), plan)
    return train(data, plan, folder, witness or Witness(), device="cpu", checkpoint_every=5)


@pytest.fixture(scope="module")
def trained(material: Path, reading: Reading) -> Path:
    run(material, plan_of(material, reading), material / reading.value)
    return material / reading.value


@pytest.fixture(scope="module")
def pair_encoder(material: Path) -> PairEncoder:
    plan = plan_of(material, Reading.PAIRS, epochs=1)
    run(material, plan, material / "one")
    return PairEncoder.load(str(material / "one"), plan.max_length, plan.precision, device="cpu")


def joint_encoder(material: Path, **changes: Any) -> JointEncoder:
    return JointEncoder.start(plan_of(material, Reading.TOGETHER, **changes), device="cpu")


def answer(encoder: PairEncoder, pairs: Sequence[Pair]) -> list[list[float]]:
    return encoder.probabilities(encoder.tokenize(pairs))


def mean_f1(predictions: Sequence[dict[str, Any]], references: Path) -> float:
    wanted = {row.id: set(row.record["gold_edges_for_prediction"]) for row in read_rows(references)}
    scores = []
    for prediction in predictions:
        edges = set(prediction["edges"])
        scores.append(
            2 * len(edges & wanted[prediction["id"]]) / (len(edges) + len(wanted[prediction["id"]]))
        )
    return sum(scores) / len(scores)


def test_a_planted_order_is_learnt(material: Path, trained: Path) -> None:
    unseen = material / "unseen.json"
    model = load_model(trained, device="cpu")
    predictions, failures = predict_rows(model, read_rows(unseen), model.card.threshold, lambda: None)
    assert not failures
    # A random order of five events finds a fifth of the edges.
    assert mean_f1(predictions, unseen) > 0.7
    assert model.card.held_out.f1 > 0.7
    assert model.card.epochs[0].loss > model.card.epochs[-1].loss
    assert {"torch", "sentence-transformers", "python"} <= set(model.card.versions)
    assert not (trained / "checkpoint").exists()


async def test_a_trained_model_is_served(trained: Path) -> None:
    words = [WORDS[4], WORDS[0], WORDS[8]]
    request = pb.PredictEdgesRequest(
        scenario="scenario", events=[Event(id=word, text=word) for word in words]
    )
    settings = EdgesSettings(model_dir=trained, preload=True, threads=1, device="cpu")
    async with (
        App(settings).open() as contracts,
        serve(*contracts) as server,
        open_channel(server.target) as channel,
    ):
        response = await pb_grpc.EdgeServiceStub(channel).PredictEdges(request)
    found = {(pair.source_id, pair.target_id): pair.probability for pair in response.probabilities}
    assert len(found) == 6
    for first, second in [(WORDS[0], WORDS[4]), (WORDS[4], WORDS[8]), (WORDS[0], WORDS[8])]:
        assert found[first, second] > found[second, first]
    assert response.provenance.parameters["weights_sha256"] == read_card(trained).weights_sha256


@pytest.mark.parametrize("dies_at", [1, 7, 40])
def test_an_interrupted_training_ends_as_one_that_was_not(
    material: Path, reading: Reading, tmp_path: Path, dies_at: int
) -> None:
    # Before any checkpoint, within the first epoch and within the second.
    plan = plan_of(material, reading, epochs=2)
    straight, first, second = Witness(), Witness(dies_at), Witness()
    expected = run(material, plan, tmp_path / "straight", straight)
    with pytest.raises(KilledError):
        run(material, plan, tmp_path / "resumed", first)
    resumed = run(material, plan, tmp_path / "resumed", second)
    assert resumed == expected
    assert second.losses == straight.losses[-len(second.losses) :]
    assert len(second.losses) < len(straight.losses) or dies_at < 3


def test_another_training_does_not_go_on_with_it(material: Path, reading: Reading, tmp_path: Path) -> None:
    with pytest.raises(KilledError):
        run(material, plan_of(material, reading), tmp_path, Witness(6))
    with pytest.raises(CheckpointMismatchError, match="seed"):
        run(material, plan_of(material, reading, seed=1), tmp_path)


def test_a_finished_model_is_neither_trained_again_nor_overwritten(
    material: Path, reading: Reading, trained: Path
) -> None:
    witness = Witness()
    assert run(material, plan_of(material, reading), trained, witness) == read_card(trained)
    assert not witness.losses
    with pytest.raises(CheckpointMismatchError, match="another model"):
        run(material, plan_of(material, reading, seed=1), trained)


def test_the_seed_decides(material: Path, reading: Reading, tmp_path: Path) -> None:
    cards = [
        run(material, plan_of(material, reading, epochs=1, seed=seed), tmp_path / name)
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    ]
    assert cards[0] == cards[1]
    assert cards[0].weights_sha256 != cards[2].weights_sha256


def test_training_stops_when_patience_ends(material: Path, reading: Reading, tmp_path: Path) -> None:
    # A rate so small that nothing is learnt: no later epoch is better than the first.
    card = run(material, plan_of(material, reading, learning_rate=1e-12, patience=2), tmp_path)
    assert len(card.epochs) == 3
    assert card.chosen_epoch == 0


def test_long_texts_are_cut_and_counted_but_events_stay(pair_encoder: PairEncoder) -> None:
    short, long = Pair("scenario", "mix", "heat"), Pair("scenario " * 1000, "mix", "heat")
    texts = [short, long, Pair("scenario", "mix " * 40, "heat")]
    tokens = pair_encoder.tokenize(texts)
    assert [one.truncated for one in tokens] == [False, True, True]
    assert all(one.length <= 16 for one in tokens)
    assert pair_encoder.tokenize([]) == []
    assert pair_encoder.inference("scenario", ["mix", "heat " * 40], 64).truncated == 2


def test_answers_do_not_depend_on_the_batch(pair_encoder: PairEncoder) -> None:
    pairs = [Pair("scenario", first, second) for first in WORDS for second in WORDS]
    together = answer(pair_encoder, pairs)
    for index in (0, 37, 99):
        assert answer(pair_encoder, [pairs[index]])[0] == pytest.approx(together[index], abs=1e-5)
        assert sum(together[index]) == pytest.approx(1)


def test_answers_do_not_depend_on_the_order_of_events(trained: Path) -> None:
    encoder = load_model(trained, device="cpu").encoder
    events, shuffled = WORDS[:5], (WORDS[3], WORDS[0], WORDS[4], WORDS[2], WORDS[1])
    told, other = infer(encoder, "scenario", events), infer(encoder, "scenario", shuffled)
    assert set(told) == {(i, j) for i in range(5) for j in range(5) if i != j}
    for (i, j), probability in told.items():
        place = shuffled.index(events[i]), shuffled.index(events[j])
        assert other[place] == pytest.approx(probability, abs=1e-5)


def test_batches_are_bounded_and_change_nothing(trained: Path) -> None:
    encoder = load_model(trained, device="cpu").encoder
    small, large = (encoder.inference("scenario", WORDS[:4], size) for size in (1, 1000))
    assert small.batch_count > large.batch_count == 1
    for inference in (small, large):
        for batch in range(inference.batch_count):
            inference.run_batch(batch)
    assert small.probabilities() == pytest.approx(large.probabilities(), abs=1e-5)


def test_a_script_is_scored_alike_alone_and_beside_a_longer_one(material: Path) -> None:
    encoder = joint_encoder(material)
    encoder.model.eval()
    script, longer = encoder.tokenize("scenario", WORDS[:3]), encoder.tokenize("scenario to", WORDS)
    alone = encoder.logits([script], [[2, 0, 1]])
    beside = encoder.logits([longer, script], [list(range(10)), [2, 0, 1]])
    assert beside.shape == (2, 2, 10, 10)
    assert beside[1, :, :3, :3].flatten().tolist() == pytest.approx(alone.flatten().tolist(), abs=1e-4)


def test_events_too_many_for_the_window_are_refused_before_training(material: Path, tmp_path: Path) -> None:
    with pytest.raises(WindowError, match=r"scenario 0: events make \d+ tokens .* at most 8 together"):
        run(material, plan_of(material, Reading.TOGETHER, max_length=8), tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_label_decides_which_score_is_served(material: Path) -> None:
    import torch

    served = {}
    for label in Label:
        torch.manual_seed(0)
        served[label] = infer(joint_encoder(material, label=label), "scenario", WORDS[:3])
    edge, precedes, both = (served[label] for label in (Label.EDGE, Label.PRECEDES, Label.BOTH))
    assert edge != precedes
    assert both == pytest.approx({pair: (edge[pair] + 2 * precedes[pair]) / 3 for pair in edge})


def test_the_words_vectors_stay_as_they_were(material: Path, tmp_path: Path) -> None:
    plan = plan_of(material, Reading.TOGETHER, epochs=1)
    run(material, plan, tmp_path)
    before = joint_encoder(material).model["encoder"]
    after = JointEncoder.load(tmp_path, plan, device="cpu").model["encoder"]
    same = [
        bool((old == new).all()) for old, new in zip(before.parameters(), after.parameters(), strict=True)
    ]
    words = [one is before.get_input_embeddings().weight for one in before.parameters()]
    assert words.index(True) in [place for place, unchanged in enumerate(same) if unchanged]
    assert not all(same)


def test_the_commands_train_and_predict(material: Path, reading: Reading, tmp_path: Path) -> None:
    model, predictions = tmp_path / "model", tmp_path / "predictions.json"
    arguments = [
        "research",
        "graphs",
        "train",
        str(material / "scripts.json"),
        "-o",
        str(model),
        "--device",
        "cpu",
    ]
    arguments += ["--encoder", str(material / "encoder"), "--epochs", "1", "--reading", reading.value]
    arguments += ["--max-length", "64"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "held-out" in result.output
    arguments = ["research", "graphs", "predict", str(material / "unseen.json"), "-m", str(model)]
    arguments += ["-o", str(predictions)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "20 of 20 scripts predicted" in result.output
    assert [row.id for row in read_rows(predictions)] == [str(index) for index in range(1, 21)]


def test_what_is_no_encoder_is_named(material: Path, reading: Reading, tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match="cannot be loaded"):
        run(material, plan_of(material, reading, encoder=str(tmp_path)), tmp_path / "model")
    with pytest.raises(EncoderError, match="at most 64 tokens, not 65"):
        run(material, plan_of(material, reading, max_length=65), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_half_precision_is_served_as_it_was_trained(material: Path, reading: Reading, tmp_path: Path) -> None:
    card = run(material, plan_of(material, reading, precision="bfloat16", epochs=3), tmp_path)
    assert card.plan.precision is Precision.BFLOAT16
    halved = infer(load_model(tmp_path, device="cpu").encoder, "scenario", WORDS[:4])
    plan = card.plan.model_copy(update={"precision": Precision.FLOAT32})
    card.model_copy(update={"plan": plan}).write(tmp_path)
    whole = infer(load_model(tmp_path, device="cpu").encoder, "scenario", WORDS[:4])
    assert halved != whole
    assert halved == pytest.approx(whole, abs=0.05)


def test_half_precision_is_the_default_where_the_device_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_precision("cpu") is Precision.FLOAT32
    for supported, precision in ((True, Precision.BFLOAT16), (False, Precision.FLOAT32)):
        monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda supported=supported, **_: supported)
        assert default_precision("cuda:0") is precision
