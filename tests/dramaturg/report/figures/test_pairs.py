from __future__ import annotations

from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.report.figures import pairs


def test_the_heads_of_win_rates_tell_the_pairs_of_systems_apart() -> None:
    summary = Summary()
    strengths = summary.pairs.strengths.add(method="llm")
    for system, opponent in (("a", "b"), ("a", "c"), ("b", "c")):
        strengths.preferences.win_rates.add(system=system, opponent=opponent).win_rate.value = 0.5
    tables = (table for section in pairs.sections(summary) for table in section.tables)
    (rates,) = (table for table in tables if table.caption == "Win rates by llm")
    heads = [tuple(cell.text for cell in row[: rates.heads]) for row in rates.rows]
    assert heads == [("a", "b"), ("a", "c"), ("b", "c")]
