from __future__ import annotations

import pytest

from dramaturg.api.alignment.v1.compare_pb2 import (
    GATE_GO,
    GATE_INCONCLUSIVE,
    GATE_NO_GO,
    GATE_UNSPECIFIED,
    CompareRunsResponse,
    Gate,
)
from dramaturg.api.evaluation.v1.summary_pb2 import Summary
from dramaturg.tables.comparison import Comparison, lead, sections


def compared(
    gate: Gate.ValueType, *, corrected: Gate.ValueType = GATE_UNSPECIFIED, version: str = "1"
) -> Comparison:
    response = CompareRunsResponse()
    part = response.comparisons.add(system="new", item_count=10).policies.add(
        policy=response.abstention_policy, gate=gate, corrected_gate=corrected
    )
    part.difference.value = 0.05
    summaries = {"old": Summary(), "new": Summary()}
    for name, summary in summaries.items():
        summary.judges.add(role="critic", judge="j", name="j", version="1" if name == "old" else version)
    return Comparison(["old", "new"], summaries, response, [], "passed", shares=True)


@pytest.mark.parametrize(
    ("comparison", "start", "end"),
    [
        (compared(GATE_GO), "GO: new is shown to be no worse than old: ", "The judges are the same."),
        (compared(GATE_NO_GO), "NO-GO: new is worse than old: ", "The judges are the same."),
        (compared(GATE_INCONCLUSIVE), "INCONCLUSIVE: new is not shown to be worse", "are the same."),
        (compared(GATE_UNSPECIFIED), "INCONCLUSIVE: new is not shown to be worse", "are the same."),
        (compared(GATE_GO, corrected=GATE_INCONCLUSIVE), "INCONCLUSIVE: ", "are the same."),
        (
            compared(GATE_GO, version="2"),
            "INCONCLUSIVE: new is no worse than old, but the judges differ",
            "The setup changed too.",
        ),
        (compared(GATE_NO_GO, version="2"), "NO-GO: new is worse than old: ", "The setup changed too."),
    ],
)
def test_the_decision_opens_the_page(comparison: Comparison, start: str, end: str) -> None:
    assert lead(comparison).startswith(start)
    assert lead(comparison).endswith(end)


def test_the_reasons_of_the_decision_stand_below_the_differences() -> None:
    comparison = compared(GATE_INCONCLUSIVE)
    comparison.response.gate_reasons.append("new against old: INCONCLUSIVE; GO unless whole items are lost")
    (found,) = [one for one in sections(comparison) if one.title == "Differences"]
    assert list(found.lines) == ["new against old: INCONCLUSIVE; GO unless whole items are lost."]
