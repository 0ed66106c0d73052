"""What published data and papers say, from the third-party data beside the checkout."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dramaturg.api.alignment.v1 import accuracy_pb2, agreement_pb2, text_pb2

if TYPE_CHECKING:
    from dramaturg.api.alignment.v1.alignment_service_pb2_grpc import AlignmentServiceAsyncStub

pytestmark = pytest.mark.data
ANNOTATORS = ("annotator1", "annotator2", "annotator3")


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


async def test_agreement_of_the_pandalm_annotators(
    alignment: AlignmentServiceAsyncStub, data_dir: Path
) -> None:
    request = agreement_pb2.MeasureAgreementRequest()
    for row in read(data_dir / "agreement" / "testset-v1.json"):
        item = request.items.add(id=str(row["idx"]))
        for annotator in ANNOTATORS:
            item.annotations.add(annotator=annotator, labels=[str(row[annotator])])
    (group,) = (await alignment.MeasureAgreement(request)).groups
    assert [round(pair.cohen_kappa.value, 3) for pair in group.pairs] == [0.852, 0.879, 0.862]
    assert round(group.fleiss_kappa.value, 4) == 0.8642
    assert dict(group.majority_labels) == {"0": 105, "1": 422, "2": 472}


@pytest.mark.parametrize(
    ("file", "field", "accuracy", "macro_f1"),
    [
        ("pandalm-7b-testset-v1.json", "pandalm_result", 66.77, 57.43),
        ("gpt-3.5-turbo-testset-v1.json", "gpt_result", 71.07, 57.55),
    ],
)
async def test_accuracy_of_the_pandalm_judges(
    alignment: AlignmentServiceAsyncStub,
    data_dir: Path,
    file: str,
    field: str,
    accuracy: float,
    macro_f1: float,
) -> None:
    """Their scorer takes "Tie" and what it cannot read as a tie; here the test does, in the open."""
    rows = read(data_dir / "agreement" / "testset-v1.json")
    judged = {row["idx"]: str(row[field]) for row in read(data_dir / "agreement" / file)}
    request = accuracy_pb2.MeasureAccuracyRequest()
    for row in rows:
        ((gold, _),) = Counter(str(row[name]) for name in ANNOTATORS).most_common(1)
        verdict = judged[row["idx"]]
        request.items.add(gold=gold, predicted=verdict if verdict in {"1", "2"} else "0")
    (group,) = (await alignment.MeasureAccuracy(request)).groups
    assert round(100 * group.accuracy.value, 2) == accuracy
    cells = {(cell.gold, cell.predicted): cell.count for cell in group.confusion}
    f1 = [
        2
        * cells.get((label, label), 0)
        / sum(count * ((gold == label) + (predicted == label)) for (gold, predicted), count in cells.items())
        for label in "012"
    ]
    assert round(100 * sum(f1) / 3, 2) == macro_f1
    assert group.majority_baseline.value == pytest.approx(472 / 999)


@pytest.mark.parametrize(("choice", "alpha"), [("best_summary", 0.050), ("worst_summary", 0.110)])
async def test_agreement_of_the_cnn_annotators_on_sets(
    alignment: AlignmentServiceAsyncStub, data_dir: Path, choice: str, alpha: float
) -> None:
    request = agreement_pb2.MeasureAgreementRequest(
        distance=agreement_pb2.LABEL_DISTANCE_MASI, resample_count=200
    )
    for key, article in read(data_dir / "drpe" / "cnn_human.json").items():
        item = request.items.add(id=key)
        for index, votes in enumerate(article["annotators"]):
            item.annotations.add(annotator=str(index), labels=votes[choice])
    (group,) = (await alignment.MeasureAgreement(request)).groups
    assert round(group.krippendorff_alpha.value, 3) == alpha
    assert group.krippendorff_alpha.lower < alpha < group.krippendorff_alpha.upper


async def test_the_longer_summary_wins(alignment: AlignmentServiceAsyncStub, data_dir: Path) -> None:
    pairs = read(data_dir / "drpe" / "drpe_pairs_cnn_human.json")
    texts = text_pb2.ScoreTextRequest(metrics=["length", "rouge-1", "rouge-l", "bleu", "chrf", "meteor"])
    for pair in pairs:
        for side in ("best", "worst"):
            texts.pairs.add(candidate=pair[side], reference=pair["article"])
    scores = (await alignment.ScoreText(texts)).scores
    accuracies = {}
    for metric in texts.metrics:
        request = accuracy_pb2.MeasureAccuracyRequest()
        for index in range(len(pairs)):
            best, worst = (scores[2 * index + side].scores[metric] for side in (0, 1))
            request.items.add(gold="best", predicted="best" if best > worst else "worst")
        (group,) = (await alignment.MeasureAccuracy(request)).groups
        accuracies[metric] = group.accuracy
    assert accuracies["length"].count == 81
    assert round(accuracies["length"].value, 3) == 0.864
    assert all(estimate.lower < estimate.value < estimate.upper for estimate in accuracies.values())


async def test_a_judge_that_always_says_either(alignment: AlignmentServiceAsyncStub, data_dir: Path) -> None:
    """It is right on exactly the scenarios of level "either", in each format of the development part."""
    request = accuracy_pb2.MeasureAccuracyRequest()
    for form in ("verb_phrase_manual", "verb_phrase_machine", "user_profile"):
        for path in sorted((data_dir / "choice75" / form / "dev").glob("*.json")):
            for _, gold, level in read(path)["branching_info"]["freeform_ra"]:
                tags = {"format": form, "level": "either" if level == "na" else level}
                request.items.add(gold=str(gold), predicted="0", tags=tags)
    request.groupings.add(tags=["format"])
    request.subsets.add(name="binary", tag="level", values=["easy", "medium", "hard"])
    groups = {
        (group.tags["format"], group.subset): group
        for group in (await alignment.MeasureAccuracy(request)).groups
    }
    counts = {"verb_phrase_manual": (65, 242), "verb_phrase_machine": (47, 128), "user_profile": (65, 195)}
    for form, (either, count) in counts.items():
        whole, binary = groups[form, "all"], groups[form, "binary"]
        mislabelled = form == "user_profile"  # one of its rows has level "na" and label 1
        assert (whole.item_count, whole.correct_count) == (count, either - mislabelled)
        assert (binary.item_count, binary.accuracy.value) == (count - either, 0.0)
