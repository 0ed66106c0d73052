from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from services.embedding.light import LightEncoder
from services.embedding.weights import (
    DEFAULT_WEIGHTS_SHA256,
    REQUIRED_FILES,
    WeightsMissingError,
    locate,
    verify,
)


@pytest.fixture(scope="module")
def encoder() -> LightEncoder:
    return LightEncoder(locate(None))


def cosine(encoder: LightEncoder, first: str, second: str) -> float:
    vectors = encoder.encode([text.input for text in encoder.prepare([first, second])])
    return float(vectors[0] @ vectors[1])


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # Values of sentence-transformers with the same weights.
        ("turn on the oven", "turn off the oven", 0.898),
        ("open the door", "close the door", 0.892),
        ("mix the dry ingredients", "mix the wet ingredients", 0.883),
        ("get off the car", "get in the car", 0.734),
        ("move into new apartment", "move to a new apartment", 0.980),
        ("take the cake out of the oven", "remove cake from oven", 0.841),
        ("find the cake recipe", "look up a recipe", 0.669),
    ],
)
def test_known_similarities(encoder: LightEncoder, first: str, second: str, expected: float) -> None:
    assert cosine(encoder, first, second) == pytest.approx(expected, abs=0.002)


def test_a_vector_does_not_depend_on_its_batch(encoder: LightEncoder) -> None:
    texts = ["Stir.", "Preheat the oven to 180 degrees and grease the tin with butter.", "", "word " * 400]
    inputs = [text.input for text in encoder.prepare(texts)]
    together = encoder.encode(inputs)
    alone = np.concatenate([encoder.encode([ids]) for ids in inputs])
    np.testing.assert_allclose(together, alone, atol=2e-6)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)


def test_what_is_over_the_window_is_cut_off_and_said(encoder: LightEncoder) -> None:
    fits, cut, longer = encoder.prepare(
        ["word " * 254, "word " * 255, "word " * 255 + "utterly different end"]
    )
    assert (fits.length, fits.truncated) == (256, False)
    assert (cut.length, cut.truncated) == (256, True)
    assert cut.input == longer.input


def test_each_word_piece_has_a_vector_of_its_own(encoder: LightEncoder) -> None:
    inputs = [text.input for text in encoder.prepare(["Stir.", "Grease the teapot's [SEP] lid.", ""])]
    texts = encoder.encode_tokens(inputs)
    assert [text.tokens for text in texts] == [
        ["stir", "."],
        # What the text itself calls an end is no end of it.
        ["grease", "the", "tea", "##pot", "'", "s", "[SEP]", "lid", "."],
        [],
    ]
    for text in texts:
        assert text.values.shape == (len(text.tokens), encoder.token_dimension)
        np.testing.assert_allclose(np.linalg.norm(text.values, axis=1), 1, atol=1e-6)
    # The same word in the same text has the same vector, whatever the padding.
    np.testing.assert_allclose(texts[0].values, encoder.encode_tokens(inputs[:1])[0].values, atol=1e-5)
    # Vectors are of words in their text, not of words.
    (other,) = encoder.encode_tokens([encoder.prepare(["The lid."])[0].input])
    assert float(texts[1].values[1] @ other.values[0]) < 0.9


@pytest.mark.parametrize("text", ["\ud800 broken", "\x00\x01", "做一个蛋糕", "🙂" * 500, " " * 10_000])
def test_any_text_has_a_vector(encoder: LightEncoder, text: str) -> None:
    vectors = encoder.encode([prepared.input for prepared in encoder.prepare([text])])
    assert np.isfinite(vectors).all()


@pytest.mark.skipif(
    importlib.util.find_spec("sentence_transformers") is None, reason="sentence-transformers is not installed"
)
def test_equal_to_sentence_transformers(encoder: LightEncoder) -> None:
    from sentence_transformers import SentenceTransformer

    texts = ["Stir.", "word " * 400, "Grease the tin with butter.", ""]
    theirs = SentenceTransformer(str(locate(None)), local_files_only=True).encode(texts)
    ours = encoder.encode([text.input for text in encoder.prepare(texts)])
    np.testing.assert_allclose(ours, np.asarray(theirs) / np.linalg.norm(theirs, axis=1)[:, None], atol=1e-4)


def test_the_installed_weights_are_the_known_ones() -> None:
    assert verify(locate(None), DEFAULT_WEIGHTS_SHA256) == DEFAULT_WEIGHTS_SHA256


def test_a_folder_without_the_files_names_them(tmp_path: Path) -> None:
    with pytest.raises(WeightsMissingError, match=r"config\.json, tokenizer\.json, model\.safetensors"):
        locate(tmp_path)


def test_other_weights_are_refused_with_both_hashes(tmp_path: Path) -> None:
    for name in REQUIRED_FILES:
        (tmp_path / name).write_text("something else", encoding="utf-8")
    with pytest.raises(WeightsMissingError, match=r"SHA-256 is [0-9a-f]{64}, not 53aa.*make model"):
        verify(tmp_path, DEFAULT_WEIGHTS_SHA256)


def test_another_kind_of_encoder_is_refused(tmp_path: Path) -> None:
    source = locate(None)
    for name in REQUIRED_FILES:
        (tmp_path / name).symlink_to(source / name)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "mpnet"}), encoding="utf-8")
    with pytest.raises(WeightsMissingError, match="no BERT encoder"):
        LightEncoder(tmp_path)
