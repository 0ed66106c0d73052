"""``--set FIELD=VALUE``: fields of any message by their names."""

from __future__ import annotations

import re

import pytest
from google.protobuf.message import Message

from dramaturg.api.evaluation.v1.decisions_pb2 import OPTION_ORDER_BOTH, EvaluateDecisionsRequest
from dramaturg.api.evaluation.v1.pairs_pb2 import EvaluatePairsRequest
from dramaturg.api.evaluation.v1.run_pb2 import RunSpec
from dramaturg.api.generation.v1.authoring_decisions_pb2 import DECISION_PROMPT_NAIVE, DECISION_PROMPT_STORY
from dramaturg.cli.fields import check_fields, parse_settings, set_fields


def test_fields_of_every_type_take_the_place_of_what_a_message_has() -> None:
    row = EvaluateDecisionsRequest(prompts=[DECISION_PROMPT_STORY], tags={"level": "easy"})
    set_fields(
        row,
        parse_settings(
            [
                "option_order=both",
                "prompts=naive,story",
                "tags.team=a=b",
                "options.sampling.temperature=0.5",
                "options.sampling.seed=7",
                "options.model=m",
                "unusable_outputs_abstain=true",
            ]
        ),
    )
    assert row.option_order == OPTION_ORDER_BOTH
    assert list(row.prompts) == [DECISION_PROMPT_NAIVE, DECISION_PROMPT_STORY]
    assert dict(row.tags) == {"level": "easy", "team": "a=b"}
    assert (row.options.sampling.temperature, row.options.sampling.seed) == (0.5, 7)
    assert (row.options.model, row.unusable_outputs_abstain) == ("m", True)
    pair = EvaluatePairsRequest(text_metrics=["bleu"])
    set_fields(pair, parse_settings(["text_metrics=", "shadow_wait=2.5"]))
    assert (list(pair.text_metrics), pair.shadow_wait.ToMilliseconds()) == ([], 2500)
    spec = RunSpec()
    set_fields(spec, parse_settings(["policy.max_failed_count=0"]))
    assert spec.policy.HasField("max_failed_count")


@pytest.mark.parametrize(
    ("message", "text", "told"),
    [
        (RunSpec(), "policy", "--set 'policy' is not of the form FIELD=VALUE"),
        (RunSpec(), "polici.min_coverage=1", "there is no field polici; did you mean policy?"),
        (RunSpec(), "zzz=1", "the fields are display_name, dataset"),
        (RunSpec(), "policy=1", "policy has fields: policy.max_failed_fraction"),
        (RunSpec(), "seed.x=1", "seed has no fields"),
        (RunSpec(), "judges=llm", "a list of messages, which only rows can have"),
        (RunSpec(), "labels=a", "labels is set as labels.KEY=VALUE"),
        (RunSpec(), "limits.priority=1.5", "'1.5' is no whole number"),
        (RunSpec(), "limits.priority=99999999999", "is out of range"),
        (RunSpec(), "limits.priority=inf", "'inf' is no number"),
        (RunSpec(), "budget.max_cost_usd=nan", "'nan' is no number"),
        (RunSpec(), "policy.sample_timeout=1e300", "'1e300' is out of range"),
        (RunSpec(), "policy.min_coverage=2", "--set policy.min_coverage=2: "),
        (RunSpec(), "unusable_outputs_abstain=yes", "the values are true, false"),
        (EvaluateDecisionsRequest(), "option_order=random", "the values are as-given, swapped, both"),
    ],
)
def test_a_field_that_cannot_be_set_is_told_with_the_remedy(message: Message, text: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        check_fields(message, parse_settings([text]))
