"""What a variant sets in a request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dramaturg.api.common.v1.script_pb2 import Script
from dramaturg.api.evaluation.v1 import scripts_pb2 as pb
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.cli.judge_selection import Overrides
from dramaturg_research.ablations.variants import NAMES, Variant, parse_variants

BASE = Overrides.parse(["critic=own", "script-judge=other"], ["execute=m1", "m0"])


def applied(variant: Variant, **fields: Any) -> EvaluateScriptsRequest:
    request = EvaluateScriptsRequest(**fields)
    variant.apply(request)
    return request


def judges(request: EvaluateScriptsRequest) -> set[tuple[str, str, str]]:
    return {(one.role, one.judge, one.model) for one in request.judges}


def test_the_base_stands_first_and_each_variant_once() -> None:
    assert [one.name for one in parse_variants([], BASE)] == list(NAMES)
    named = parse_variants(["single-judge", "base", "single-judge"], BASE)
    assert [one.name for one in named] == ["base", "single-judge"]


def test_variants_of_the_paper_set_mechanism_and_gold_answer() -> None:
    given = {"gold_answer_source": pb.GOLD_ANSWER_SOURCE_GIVEN, "gold_answer": Script()}
    found = {one.name: applied(one, **given) for one in parse_variants([], BASE)}
    chosen = {name: (one.mechanism, one.gold_answer_source) for name, one in found.items()}
    assert chosen == {
        "base": (0, pb.GOLD_ANSWER_SOURCE_GIVEN),
        "no-gold-answer": (0, pb.GOLD_ANSWER_SOURCE_NONE),
        "direct-gold-answer": (0, pb.GOLD_ANSWER_SOURCE_DIRECT),
        "single-judge": (pb.MECHANISM_SINGLE_JUDGE, pb.GOLD_ANSWER_SOURCE_NONE),
        "single-judge-with-gold-answer": (pb.MECHANISM_SINGLE_JUDGE, pb.GOLD_ANSWER_SOURCE_POOLED),
    }
    assert found["base"].HasField("gold_answer")
    assert not found["no-gold-answer"].HasField("gold_answer")
    assert {one.options.model for one in found.values()} == {"m0"}


def test_judges_that_have_nothing_to_do_are_left_out() -> None:
    row = {
        "judges": [
            JudgeSelection(role="synthesize", judge="s"),
            JudgeSelection(role="commonsense", judge="c"),
        ]
    }
    base, single, with_gold = (
        applied(one, **row) for one in parse_variants(["single-judge", "single-judge-with-gold-answer"], BASE)
    )
    agents = {("critic", "own", ""), ("execute", "", "m1"), ("commonsense", "c", "")}
    assert judges(base) == {("synthesize", "s", ""), *agents}
    assert judges(single) == {("script-judge", "other", "")}
    assert judges(with_gold) == {("script-judge", "other", ""), ("synthesize", "s", "")}
    _, bare = parse_variants(["no-gold-answer"], BASE)
    assert judges(applied(bare, **row)) == agents


def test_one_agent_s_model_or_judge_is_changed() -> None:
    variants = parse_variants(["model:execute=m2", "model:m3", "judge:critic=x"], BASE)
    _, model, everybody, judge = (applied(one) for one in variants)
    assert judges(model) == {("critic", "own", ""), ("execute", "", "m2")}
    assert model.options.model == "m0"
    assert judges(everybody) == {("critic", "own", "")}
    assert everybody.options.model == "m3"
    assert judges(judge) == {("critic", "x", ""), ("execute", "", "m1")}


def test_changes_can_be_joined() -> None:
    _, variant = parse_variants(["single-judge-with-gold-answer + model:m3+model:synthesize=m4"], BASE)
    request = applied(variant)
    assert (request.mechanism, request.gold_answer_source, request.options.model) == (
        pb.MECHANISM_SINGLE_JUDGE,
        pb.GOLD_ANSWER_SOURCE_POOLED,
        "m3",
    )
    assert judges(request) == {("script-judge", "other", ""), ("synthesize", "", "m4")}
    with pytest.raises(ValueError, match="'nothing' is none of"):
        parse_variants(["single-judge+nothing"], BASE)


def test_prompts_are_the_environment_s(tmp_path: Path) -> None:
    _, variant = parse_variants([f"prompts:script-judge={tmp_path}"], BASE)
    assert variant.environment == {"DRAMATURG_SCRIPT_JUDGE_PROMPTS_DIR": str(tmp_path)}
    assert judges(applied(variant)) == {("critic", "own", ""), ("execute", "", "m1")}
    assert "/" not in variant.folder


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("no-gold", "is none of base"),
        ("model:", "not of the form ROLE=MODEL"),
        ("model:cook=m", "'cook' is none of the roles"),
        ("judge:critic", "not of the form ROLE=NAME"),
        ("judge:pair-judge=x", "none of the roles"),
        ("prompts:critic=/no/such/folder", "is not a folder"),
        ("prompts:cook=/", "none of the roles"),
    ],
)
def test_a_variant_that_makes_no_sense_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_variants([text], BASE)


def test_two_variants_cannot_share_a_folder() -> None:
    with pytest.raises(ValueError, match="two of them would have the folder"):
        parse_variants(["model:a/b", "model:a:b"], BASE)
