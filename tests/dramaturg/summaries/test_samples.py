from __future__ import annotations

from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason
from dramaturg.results.names import reason_name
from dramaturg.summaries.samples import usage_summary


def test_an_unknown_cost_is_no_number() -> None:
    assert usage_summary(Usage())["cost_usd"] is None
    assert usage_summary(Usage(cost_usd=0.0))["cost_usd"] == 0.0


def test_reasons_have_short_names_and_unknown_ones_a_number() -> None:
    assert reason_name(AbstainReason.ABSTAIN_REASON_TIMED_OUT) == "TIMED_OUT"
    assert reason_name(99) == "REASON_99"
