"""How far the repeats of judges agree."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence

from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.kinds.dialogues import tables as dialogues
from dramaturg.kinds.pairs import tables as pairs
from dramaturg.kinds.scripts import tables as scripts
from dramaturg.kinds.texts import tables as texts
from dramaturg.plots import tables as files
from dramaturg.tables.model import Section, Table


def repeats(sections: Iterable[Section]) -> Sequence[Table]:
    """The tables of repeats; none without repeats."""
    return [table for one in sections if one.title == "Repeats" for table in one.tables]


def rows(table: Table) -> Sequence[Sequence[str]]:
    return [[cell.text for cell in row.cells] for row in table.rows]


def test_repeats_have_their_mean_agreement_and_number_by_criterion_and_model() -> None:
    summary = Summary()
    for model, count, agreement in (("a", 4, 0.9), ("b", 0, 0.0), ("", 4, 0.9)):
        one = summary.scripts.figures.add(model=model, all_models=not model, criterion="clear")
        one.verdict_count, one.repeated_count = 6, count
        if count:
            one.repeat_agreement = agreement
    (table,) = repeats(scripts.sections(summary))
    assert rows(table) == [["clear", "90.0 % (n 4)", "–", "90.0 % (n 4)"]]
    (row,) = csv.DictReader(files.csv(table).removeprefix("\ufeff").splitlines())
    assert (float(row["a"]), row["a (judged)"], row["a (of)"]) == (0.9, "4", "6")


def test_scores_of_repeats_are_in_the_table_and_one_answer_has_none() -> None:
    summary = Summary()
    score = summary.texts.scores.add(model="a", criterion="tone", lowest=1, highest=5, verdict_count=3)
    assert not repeats(texts.sections(summary))
    score.repeated_count, score.repeat_agreement = 3, 0.5
    (table,) = repeats(texts.sections(summary))
    assert rows(table) == [["tone", "50.0 % (n 3)", "–"]]


def test_ratings_have_a_row_a_model_and_comparisons_of_replies_one_a_judge() -> None:
    summary = Summary()
    for model, group, count in (("a", "all", 4), ("a", "hard", 2), ("b", "all", 0)):
        one = summary.dialogues.ratings.add(model=model, group=group, script_count=2)
        if count:
            one.repeated_count, one.repeat_agreement = count, 0.75
    summary.dialogues.ratings.add(model="a", group="all", tags={"k": "v"}, repeated_count=1)
    compared = summary.dialogues.pairs.add(first_model="a", second_model="b", judge="j", group="all")
    (ratings,) = repeats(dialogues.sections(summary))
    assert rows(ratings) == [["a", "75.0 % (n 4)"]]
    compared.win_count, compared.abstained_count = 2, 1
    compared.repeated_count, compared.repeat_agreement = 2, 0.5
    _, comparisons = repeats(dialogues.sections(summary))
    assert rows(comparisons) == [["a", "b", "j", "50.0 % (n 2)"]]
    (row,) = csv.DictReader(files.csv(comparisons).removeprefix("\ufeff").splitlines())
    assert (row["agreement (judged)"], row["agreement (of)"]) == ("2", "3")


def test_pairs_of_texts_have_a_row_a_method_that_was_asked_several_times() -> None:
    summary = Summary()
    summary.pairs.methods.add(method="longer", baseline=True, pair_count=3)
    one = summary.pairs.methods.add(method="roles", pair_count=3)
    assert not repeats(pairs.sections(summary))
    one.repeated_count, one.repeat_agreement = 3, 0.8
    (table,) = repeats(pairs.sections(summary))
    assert rows(table) == [["roles", "80.0 % (n 3)"]]
    assert table.rows[0].cells[0].link == "#measure=win%2Froles"
