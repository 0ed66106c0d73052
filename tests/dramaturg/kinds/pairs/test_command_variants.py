from __future__ import annotations

from typing import Any

from dramaturg.api.evaluation.v1.pairs_pb2 import ComparedText, EvaluatePairsRequest, RolePlan
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pb
from dramaturg.datasets import Row
from dramaturg.kinds.pairs import SEED_TAG
from dramaturg.kinds.pairs.command import SWAPPED_TAG, Variants, shuffle
from tests.support.texts import POLITE

READER = pb.Role(type="Driver", description="Crosses the bridge.")


def request(**fields: Any) -> EvaluatePairsRequest:
    texts = {"first": ComparedText(text="A", model="a"), "second": ComparedText(text="B", model="b")}
    return EvaluatePairsRequest(**{"source": "S", **texts, **fields})


def test_a_shuffle_swaps_texts_and_label_together_and_says_so() -> None:
    swapped = 0
    for line in range(200):
        one = request(human_preference=pb.PREFERENCE_FIRST)
        shuffle(one, 3, line)
        turned = one.tags[SWAPPED_TAG] == "true"
        swapped += turned
        assert one.tags[SEED_TAG] == "3"
        assert (one.first.model, one.second.model) == (("b", "a") if turned else ("a", "b"))
        assert (one.first.text, one.second.text) == (("B", "A") if turned else ("A", "B"))
        assert one.human_preference == (pb.PREFERENCE_SECOND if turned else pb.PREFERENCE_FIRST)
    assert 70 < swapped < 130


def test_a_shuffle_keeps_ties_and_unknown_preferences() -> None:
    for preference in (pb.PREFERENCE_TIE, pb.PREFERENCE_UNSPECIFIED):
        for line in range(20):
            one = request(human_preference=preference)
            shuffle(one, 0, line)
            assert one.human_preference == preference


def test_a_sweep_is_a_request_a_number_with_the_baselines_once() -> None:
    variants = Variants(counts=(0, 3), metrics=("rouge-l",))
    plan = RolePlan(subjective_roles=[READER])
    none, three = variants.spread(Row(4, request(roles=plan, baselines=["llm"])))
    assert (none.roles.coarse_count, none.roles.fine_count) == (0, 0)
    assert none.roles.HasField("coarse_count")
    assert (three.roles.coarse_count, three.roles.fine_count) == (2, 1)
    assert not three.roles.subjective_roles
    assert (list(none.baselines), list(three.baselines)) == (["llm"], [])
    assert [(one.tags["k"], one.tags["line"]) for one in (none, three)] == [("0", "4"), ("3", "4")]
    assert (list(none.text_metrics), list(three.text_metrics)) == (["rouge-l"], [])


def test_what_the_command_line_leaves_out_stays() -> None:
    row = request(
        order=pb.PRESENTATION_ORDER_SWAPPED, baselines=["llm"], roles=RolePlan(objective_roles=[READER])
    )
    row.rules.forced_choice = True
    (same,) = Variants().spread(Row(1, row))
    assert same.rules == pb.ComparisonRules(forced_choice=True)
    assert same.order == pb.PRESENTATION_ORDER_SWAPPED
    assert list(same.baselines) == ["llm"]
    assert list(same.roles.objective_roles) == [READER]
    (changed,) = Variants(role_set="script", models={"": "m", "pair-judge": "n"}).spread(Row(1, row))
    assert changed.roles.objective_set == "script"
    assert not changed.roles.objective_roles
    assert changed.options.model == "m"
    assert [(one.role, one.model) for one in changed.judges] == [("pair-judge", "n")]


def test_a_rubric_and_a_set_of_roles_take_the_place_of_each_other() -> None:
    row = request(roles=RolePlan(objective_roles=[READER], fine_count=2))
    (by_rubric,) = Variants(criteria=[POLITE]).spread(Row(1, row))
    assert by_rubric.roles == RolePlan(criteria=[POLITE])
    (by_roles,) = Variants(role_set="script").spread(Row(1, by_rubric))
    assert by_roles.roles == RolePlan(objective_set="script")
