"""The rubric judge with a cross-encoder in its process; skipped without sentence-transformers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.content_pb2 import Document
from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.judging.v1.judge_service_pb2 import Criterion, JudgeCandidate, JudgeRequest
from dramaturg.api.judging.v1.judge_service_pb2_grpc import JudgeServiceStub
from dramaturg.service.settings import SettingsError
from services.judging.rubrics.judge import SPEC
from tests.support.judges import serve_app

GOAL, TEXT, DOCUMENT = "Where is my order?", "It ships on Monday.", "It ships Monday."
LABELS = ("contradiction", "entailment", "neutral")
MOST_TOKENS = 128


@pytest.fixture
def _library() -> None:
    pytest.importorskip(
        "sentence_transformers", reason="sentence-transformers is not installed: the extra [embeddings]"
    )


def write_model(folder: Path, labels: Sequence[str]) -> Any:
    """Writes a model of random weights with a tokenizer of bytes; returns it as the library loads it."""
    import torch
    from sentence_transformers import CrossEncoder
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    special = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    vocabulary = [*special.values(), *sorted(pre_tokenizers.ByteLevel.alphabet())]
    bytewise = Tokenizer(models.BPE(vocab={one: at for at, one in enumerate(vocabulary)}, merges=[]))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bytewise, model_max_length=MOST_TOKENS, **special)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=MOST_TOKENS,
        id2label=dict(enumerate(labels)),
        label2id={label: at for at, label in enumerate(labels)},
        pad_token_id=0,
        # Outputs differ between texts by more than rounding.
        initializer_range=1.0,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    return CrossEncoder(str(folder), local_files_only=True)


async def judged(folder: Path, api: str, criteria: Any, text: str = TEXT) -> Assessment:
    request = JudgeRequest(
        task=Task(goal=GOAL),
        candidates=[
            JudgeCandidate(
                id="a", text=text, reading=verdict_pb2.READING_TEXT, context=[Document(text=DOCUMENT)]
            )
        ],
        criteria=[Criterion(id=name) for name in criteria],
    )
    settings = {"model_dir": folder, "api": api, "criteria": criteria}
    async with serve_app(SPEC(classifier=settings)) as channel:
        (response,) = [one async for one in JudgeServiceStub(channel).Judge(request)]
    assert response.HasField("assessment"), response.error
    return response.assessment


@pytest.mark.usefixtures("_library")
async def test_a_score_beside_each_text_is_that_of_the_library(tmp_path: Path) -> None:
    model = write_model(tmp_path, ["score"])
    beside = {"task": GOAL, "context": DOCUMENT}
    scores = {name: float(model.predict([(other, TEXT)])[0]) for name, other in beside.items()}
    middle = sum(scores.values()) / 2
    criteria = {
        **{name: {"beside": name, "threshold": middle} for name in beside},
        "right": {"beside": "reference"},
    }
    assessment = await judged(tmp_path, "score", criteria)
    task, context, right = assessment.verdicts
    assert abs(scores["task"] - scores["context"]) > 1e-3
    for verdict in (task, context):
        assert verdict.score == pytest.approx(scores[verdict.criterion], abs=1e-5)
        passes = scores[verdict.criterion] >= middle
        assert verdict.outcome == (verdict_pb2.OUTCOME_PASS if passes else verdict_pb2.OUTCOME_FAIL)
    assert right.abstain_reason == verdict_pb2.ABSTAIN_REASON_NOT_APPLICABLE
    assert len(assessment.provenance.parameters["weights_sha256"]) == 64
    assert assessment.provenance.parameters["model"] == tmp_path.name


@pytest.mark.usefixtures("_library")
async def test_the_likeliest_label_is_that_of_the_library(tmp_path: Path) -> None:
    model = write_model(tmp_path, LABELS)
    probabilities = model.predict([(DOCUMENT, TEXT)], apply_softmax=True)[0].tolist()
    best = LABELS[probabilities.index(max(probabilities))]
    other = next(label for label in LABELS if label != best)
    criteria = {
        "met": {"labels": [best], "beside": "context", "threshold": 0.0},
        "not_met": {"labels": [other], "beside": "context", "threshold": 0.0},
        "unclear": {"labels": [best], "beside": "context", "threshold": 1.0},
    }
    met, not_met, unclear = (await judged(tmp_path, "classify", criteria)).verdicts
    assert met.outcome == verdict_pb2.OUTCOME_PASS
    assert met.confidence == pytest.approx(max(probabilities), abs=1e-5)
    assert not_met.outcome == verdict_pb2.OUTCOME_FAIL
    assert unclear.abstain_reason == verdict_pb2.ABSTAIN_REASON_LOW_CONFIDENCE


@pytest.mark.usefixtures("_library")
async def test_a_text_that_is_longer_than_the_model_reads_is_not_cut(tmp_path: Path) -> None:
    write_model(tmp_path, ["score"])
    fits = MOST_TOKENS - len(GOAL) - 3
    for length, reason in (
        (fits, verdict_pb2.ABSTAIN_REASON_UNSPECIFIED),
        (fits + 1, verdict_pb2.ABSTAIN_REASON_CONTEXT_LENGTH_EXCEEDED),
    ):
        (verdict,) = (await judged(tmp_path, "score", {"good": {}}, "x" * length)).verdicts
        assert verdict.abstain_reason == reason, verdict.rationale


@pytest.mark.usefixtures("_library")
@pytest.mark.parametrize(
    ("labels", "settings", "problem"),
    [
        (["score"], {"api": "classify", "criteria": {"good": {"labels": ["yes"]}}}, "has one output"),
        (LABELS, {"api": "score", "criteria": {"good": {}}}, "has the labels contradiction, entailment"),
        (LABELS, {"criteria": {"good": {"labels": ["yes"]}}}, "has no yes; it has contradiction"),
        ([], {"criteria": {"good": {"labels": ["yes"]}}}, "cannot be loaded"),
    ],
)
async def test_a_model_with_other_outputs_is_refused(
    labels: Sequence[str], settings: Any, problem: str, tmp_path: Path
) -> None:
    if labels:
        write_model(tmp_path, labels)
    with pytest.raises(SettingsError, match=problem):
        async with SPEC(classifier={"model_dir": tmp_path, **settings}).open():
            pass


@pytest.mark.parametrize("installed", [False, True])
async def test_what_is_missing_is_named(
    installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = type(sys)("sentence_transformers")
    fake.CrossEncoder = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", fake if installed else None)
    settings = {"model_dir": tmp_path / "away", "api": "score", "criteria": {"good": {}}}
    problem = "away is no folder" if installed else r"pip install 'dramaturg\[embeddings\]'"
    with pytest.raises(SettingsError, match=problem):
        async with SPEC(classifier=settings).open():
            pass
