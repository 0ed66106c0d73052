"""Exports of labels are read by the commands that measure agreement with people."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dramaturg.api.evaluation.v1 import label_service_pb2 as pb
from dramaturg.datasets.spreadsheet import read_table
from tests.dramaturg.report.many import many
from tests.gateway.runs.labels.test_servicer import Labelling, labelling
from tests.support.command_line import dramaturg
from tests.support.labelling import finished_run


async def labelled(service: Labelling, kind: str, labels: dict[str, list[str]]) -> pb.LabelSet:
    finished_run(service.store, many(kind, 20))
    label_set = await service.create(sample_size=len(next(iter(labels.values()))))
    for annotator, given in labels.items():
        for position, label in enumerate(given):
            await service.write(label_set, annotator, position, label)
    return label_set


@pytest.mark.slow
async def test_verdicts_are_read_by_align_labels(tmp_path: Path) -> None:
    async with labelling(tmp_path) as service:
        label_set = await labelled(
            service, "scripts", {"ann": ["PASS", "FAIL"] * 4, "bob": ["PASS", "PASS", "FAIL", "FAIL"] * 2}
        )
        for form, name in ((pb.LABEL_FORMAT_JSONL, "labels.jsonl"), (pb.LABEL_FORMAT_CSV, "labels.csv")):
            sheet = tmp_path / name
            sheet.write_text(await service.export(label_set, format=form), encoding="utf-8")
            assert len(sheet.read_text().splitlines()) == 16 + (form == pb.LABEL_FORMAT_CSV)
            read = [row for _, row in read_table(sheet)]
            assert {row["annotator"] for row in read} == {"ann", "bob"}
            assert {row["label"] for row in read} == {"PASS", "FAIL"}
        measured = await dramaturg("labels", "align", "labels", sheet, "--json", "--resamples", "0")
        assert measured.code == 0, measured.err
        assert measured.json["groups"]


@pytest.mark.slow
async def test_preferences_are_read_by_align_preferences(tmp_path: Path) -> None:
    async with labelling(tmp_path) as service:
        label_set = await labelled(service, "pair", {"ann": ["first", "second", "tie", "first", "first"]})
        sheet = tmp_path / "labels.jsonl"
        sheet.write_text(await service.export(label_set), encoding="utf-8")
        rows = [json.loads(line) for line in sheet.read_text().splitlines()]
        assert all(row["first"] != row["second"] for row in rows)
        measured = await dramaturg("labels", "align", "preferences", sheet, "--json", "--resamples", "0")
        assert measured.code == 0, measured.err


@pytest.mark.slow
async def test_ratings_stand_beside_those_of_the_judge(tmp_path: Path) -> None:
    async with labelling(tmp_path) as service:
        label_set = await labelled(
            service, "dialogue", {"ann": ["3", "5", "9", "10"], "bob": ["4", "5", "8", "10"]}
        )
        sheet = tmp_path / "scores.jsonl"
        sheet.write_text(await service.export(label_set, sheet=pb.LABEL_SHEET_SCORES), encoding="utf-8")
        rows = [json.loads(line) for line in sheet.read_text().splitlines()]
        assert [row["human"] for row in rows] == [3.5, 5.0, 8.5, 10.0]
        assert all(1 <= row["judge"] <= 10 for row in rows)
        measured = await dramaturg("labels", "align", "scores", sheet, "--json", "--resamples", "0")
        assert measured.code == 0, measured.err


@pytest.mark.parametrize("note", ["=HYPERLINK(1)", 'two\nlines, "quoted"'])
async def test_a_cell_of_csv_is_no_formula(tmp_path: Path, note: str) -> None:
    async with labelling(tmp_path) as service:
        label_set = await labelled(service, "scripts", {"ann": ["PASS"]})
        await service.stub.WriteLabel(
            pb.WriteLabelRequest(label_set_id=label_set.id, annotator="=x", label="PASS", note=note)
        )
        text = await service.export(label_set, format=pb.LABEL_FORMAT_CSV)
        assert ",=" not in text
        assert "'=x" in text


@pytest.mark.slow
async def test_judgements_with_labels_are_read_by_align_estimate(tmp_path: Path) -> None:
    samples = list(many("scripts", 20))
    async with labelling(tmp_path) as service:
        finished_run(service.store, samples)
        label_set = await service.create(sample_size=60, seed=5, draw=pb.LABEL_DRAW_STRATIFIED)
        for place in range(60):
            for annotator in ("ann", "bob"):
                label = "PASS" if (place + (annotator == "bob" and place % 7 == 0)) % 3 else "FAIL"
                await service.write(label_set, annotator, place, label)
        sheet = tmp_path / "verdicts.csv"
        content = await service.export(label_set, sheet=pb.LABEL_SHEET_ESTIMATES, format=pb.LABEL_FORMAT_CSV)
        sheet.write_text(content, encoding="utf-8")
    rows = [row for _, row in read_table(sheet)]
    assert len(rows) == label_set.population_count
    assert sum(row["label"] != "" for row in rows) == sum(row["probability"] != "" for row in rows) == 60
    assert {row["stratum"] for row in rows} == {"0", "1"}
    measured = await dramaturg("labels", "align", "estimate", sheet, "--cluster", "task", "--json")
    assert measured.code == 0, measured.err
    means = {one["system"]: one for one in measured.json["means"]}
    assert sum(one["labels"] for one in means.values()) == 60
    assert sum(one["predictions"] for one in means.values()) == len(rows)
    methods = {one["interval_methods"]["labels_alone"] for one in means.values()}
    # The annotators disagree on some items, whose labels lie between 0 and 1.
    assert methods == {"weighted by inclusion probabilities, student's t"}
    for model, one in means.items():
        verdicts = [float(row["predicted"]) for row in rows if row["system"] == model]
        assert one["predictions_alone"] == pytest.approx(sum(verdicts) / len(verdicts))


async def test_reviews_of_scenarios_are_beside_the_verdicts_on_them(tmp_path: Path) -> None:
    async with labelling(tmp_path) as service:
        label_set = await labelled(service, "scenarios", {"ann": ["easy", "reject", "either"]})
        text = await service.export(label_set, sheet=pb.LABEL_SHEET_ESTIMATES)
        rows = [json.loads(line) for line in text.splitlines()]
        assert sorted(row["label"] for row in rows if "label" in row) == [0.0, 1.0, 1.0]


@pytest.mark.slow
async def test_reviews_and_choices_are_read_by_scenarios_review(tmp_path: Path) -> None:
    async with labelling(tmp_path) as service:
        finished_run(service.store, many("scenarios", 4))
        reviewed = await service.create(sample_size=8)
        given = ["easy", "medium", "hard", "either", "reject", "reject", "easy"]
        for place, label in enumerate(given):
            await service.write(reviewed, "ann", place, label)
        await service.write(reviewed, "bob", 6, "hard")
        sheets = {}
        for form, name in ((pb.LABEL_FORMAT_CSV, "review.csv"), (pb.LABEL_FORMAT_JSONL, "review.jsonl")):
            sheets[name] = tmp_path / name
            content = await service.export(reviewed, sheet=pb.LABEL_SHEET_REVIEW, format=form)
            sheets[name].write_text(content, encoding="utf-8")
        chosen = await service.create(sample_size=8, task=pb.LABEL_TASK_CHOICE)
        for annotator in ("ann", "bob"):
            for item in await service.items(chosen):
                await service.write(chosen, annotator, item.position, item.choices[item.position % 3])
        choices = await service.export(chosen, sheet=pb.LABEL_SHEET_REVIEW)
    for sheet in sheets.values():
        found = await dramaturg(
            "research", "scenarios", "review", sheet, "--out", tmp_path / "decisions.jsonl", "--json"
        )
        assert found.code == 0, found.err
        # Two annotators who disagree, and items without a label, leave the status open.
        assert found.json["statuses"] == {"accepted": 4, "not reviewed": 2, "rejected": 2}
        assert found.json["levels"] == {"easy": 1, "medium": 1, "hard": 1, "either": 1}
    rows = [json.loads(line) for line in choices.splitlines()]
    sheet = tmp_path / "choices.jsonl"
    accepted = [{**row, "status": "accepted", "level": "easy"} for row in rows]
    sheet.write_text("".join(f"{json.dumps(row)}\n" for row in accepted), encoding="utf-8")
    found = await dramaturg(
        "research", "scenarios", "review", sheet, "--out", tmp_path / "decisions.jsonl", "--json"
    )
    assert found.code == 0, found.err
    assert {one["observed_agreement"] for one in found.json["agreement"]} == {1.0}
