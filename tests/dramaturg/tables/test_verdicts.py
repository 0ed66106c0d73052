from __future__ import annotations

import csv

from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.plots import tables as files
from dramaturg.tables import scripts, texts


def test_repeats_have_their_mean_agreement_and_number_by_criterion_and_model() -> None:
    summary = Summary()
    for model, count, agreement in (("a", 4, 0.9), ("b", 0, 0.0), ("", 4, 0.9)):
        one = summary.scripts.figures.add(model=model, all_models=not model, criterion="clear")
        one.verdict_count, one.repeated_count = 6, count
        if count:
            one.repeat_agreement = agreement
    (section,) = (one for one in scripts.sections(summary) if one.title == "Repeats")
    (table,) = section.tables
    assert [cell.text for cell in table.rows[0].cells] == ["clear", "90.0 % (n 4)", "–", "90.0 % (n 4)"]
    (row,) = csv.DictReader(files.csv(table).removeprefix("\ufeff").splitlines())
    assert (float(row["a"]), row["a (judged)"], row["a (of)"]) == (0.9, "4", "6")


def test_scores_of_repeats_are_in_the_table_and_one_answer_has_none() -> None:
    summary = Summary()
    score = summary.texts.scores.add(model="a", criterion="tone", lowest=1, highest=5, verdict_count=3)
    assert "Repeats" not in [one.title for one in texts.sections(summary)]
    score.repeated_count, score.repeat_agreement = 3, 0.5
    (section,) = (one for one in texts.sections(summary) if one.title == "Repeats")
    assert [cell.text for cell in section.tables[0].rows[0].cells] == ["tone", "50.0 % (n 3)", "–"]
