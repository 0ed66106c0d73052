from __future__ import annotations

from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.kinds.pairs import tables as pairs


def test_the_heads_of_win_rates_tell_the_pairs_of_systems_apart() -> None:
    summary = Summary()
    strengths = summary.pairs.strengths.add(method="llm")
    for system, opponent in (("a", "b"), ("a", "c"), ("b", "c")):
        strengths.preferences.win_rates.add(system=system, opponent=opponent).win_rate.value = 0.5
    tables = (table for section in pairs.sections(summary) for table in section.tables)
    (rates,) = (table for table in tables if table.caption == "Win rates of systems")
    heads = [tuple(cell.text for cell in row.cells[: rates.heads]) for row in rates.rows]
    assert heads == [("a", "b"), ("a", "c"), ("b", "c")]


def test_ratings_by_several_criteria_are_one_table_on_one_scale() -> None:
    ratings: dict[str, dict[str, tuple[float, tuple[float, float] | None]]] = {
        "criterion clear": {"alpha": (60.0, (-214.0, 334.0)), "beta": (-60.0, (-334.0, 214.0))},
        "criterion tone": {"alpha": (-140.0, None), "beta": (140.0, None)},
    }
    summary = Summary()
    for method, systems in ratings.items():
        strengths = summary.pairs.strengths.add(method=method)
        for system, (value, ends) in systems.items():
            one = strengths.preferences.ratings.add(system=system)
            one.elo.value, one.elo.count = value, 3
            if ends:
                one.elo.lower, one.elo.upper = ends
    tables = (table for section in pairs.sections(summary) for table in section.tables)
    (rated,) = (table for table in tables if table.caption == "Ratings of systems")
    assert [[cell.text for cell in row.cells] for row in rated.rows] == [
        ["criterion clear", "alpha", "60", "3"],
        ["criterion clear", "beta", "-60", "3"],
        ["criterion tone", "alpha", "-140", "3"],
        ["criterion tone", "beta", "140", "3"],
    ]
    assert [row.cells[2].bounds for row in rated.rows] == [(-214, 334), (-334, 214), None, None]
    assert {row.cells[2].scale for row in rated.rows} == {(-335, 335)}
