from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason, Outcome, Verdict
from dramaturg.judge import answers, criteria
from dramaturg.judge.answers import StepsForm, UnclearAnswerError, VerdictsForm
from dramaturg.judge.shapes import Number, Record, Text
from tests.support.judges import items, section

CONSTRAINTS = ("without a kettle", "in five minutes")
WALK = {"walk": Text("from start to end")}


def parse(criterion: str, value: Any, steps: int = 3) -> Verdict:
    form = VerdictsForm.of([criterion], step_count=steps, constraints=CONSTRAINTS)
    [verdict] = form.parse({"walk": "...", criterion: value})
    return verdict


def outcome(verdict: Verdict) -> str:
    if verdict.outcome == verdict_pb2.OUTCOME_ABSTAIN:
        return AbstainReason.Name(verdict.abstain_reason).removeprefix("ABSTAIN_REASON_")
    return Outcome.Name(verdict.outcome).removeprefix("OUTCOME_")


def members(schema: dict[str, Any]) -> list[str]:
    return list(schema["properties"])


@pytest.mark.parametrize("steps", [0, 3])
def test_reason_comes_first_and_verdict_last(steps: int) -> None:
    form = VerdictsForm.of(criteria.ABSEVAL, step_count=steps, constraints=CONSTRAINTS, reasoning=WALK)
    schema = json.loads(answers.schema(form))
    jsonschema.Draft202012Validator.check_schema(schema)
    assert members(schema) == ["walk", *criteria.ABSEVAL]
    for criterion in criteria.ABSEVAL:
        part = schema["properties"][criterion]
        assert members(part)[-1] == "verdict"
        assert members(part)[0] in {"reason", "constraints", "steps"}
        for listed in (one["items"] for one in part["properties"].values() if "items" in one):
            names = members(listed)
            assert "verdict" not in names or names.index("reason") < names.index("verdict")


@pytest.mark.parametrize(
    "form", [VerdictsForm.of(criteria.ABSEVAL, step_count=2, constraints=["x"]), StepsForm()]
)
def test_every_object_is_closed_and_complete_as_strict_providers_want(form: Any) -> None:
    def check(schema: dict[str, Any]) -> None:
        if schema["type"] == "object":
            assert schema["additionalProperties"] is False
            assert schema["required"] == members(schema)
            for part in schema["properties"].values():
                check(part)
        elif schema["type"] == "array":
            check(schema["items"])

    check(json.loads(answers.schema(form)))


def test_the_instruction_names_every_member_of_the_schema_in_order() -> None:
    form = VerdictsForm.of(criteria.ABSEVAL, step_count=2, constraints=CONSTRAINTS, reasoning=WALK)
    told = answers.instruction(form)
    places = [told.index(f'"{name}": ') for name in ("walk", *criteria.ABSEVAL)]
    assert places == sorted(places)
    # Entries of constraints and steps have verdicts of their own.
    assert told.count('"verdict": "pass" | "fail" | "unsure"') == len(criteria.ABSEVAL) + 2


MISSING = {"missing_step": "Boil it.", "steps": [1], "problem": "Cold tea."}
REPEAT = {"steps": [3, 1], "problem": "The same."}


def test_the_texts_of_equal_forms_are_made_once() -> None:
    assert answers.schema(StepsForm()) is answers.schema(StepsForm())
    assert answers.instruction(StepsForm()) is answers.instruction(StepsForm())
    reason, score = Text("why"), Number("how good")
    assert Record({"reason": reason, "score": score}) == Record({"reason": Text("why"), "score": score})
    assert Record({"reason": reason, "score": score}) != Record({"score": score, "reason": reason})


def test_pass_and_fail_are_read_with_their_reasons() -> None:
    verdict = parse(criteria.NO_DUPLICATE_STEPS, section("pass", reason="All differ."))
    assert (outcome(verdict), verdict.rationale, len(verdict.findings)) == ("PASS", "All differ.", 0)
    verdict = parse(criteria.NO_DUPLICATE_STEPS, section("fail", REPEAT))
    assert outcome(verdict) == "FAIL"
    [found] = verdict.findings
    assert found.kind == verdict_pb2.FINDING_KIND_DUPLICATE_STEP
    assert (list(found.step_indices), found.description) == ([0, 2], "The same.")


def test_a_missing_step_names_what_is_missing_and_after_which_step() -> None:
    [found] = parse(criteria.NO_MISSING_STEPS, section("fail", MISSING)).findings
    assert found.kind == verdict_pb2.FINDING_KIND_MISSING_STEP
    assert (found.missing_step, list(found.step_indices), found.description) == ("Boil it.", [0], "Cold tea.")


def test_a_missing_first_step_stands_after_none() -> None:
    [found] = parse(criteria.NO_MISSING_STEPS, section("fail", MISSING | {"steps": [0]})).findings
    assert (list(found.step_indices), found.description) == ([], "Cold tea.")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (section("pass", REPEAT), "CONTRADICTORY"),
        (section("unsure"), "LOW_CONFIDENCE"),
        (section("unsure", REPEAT), "LOW_CONFIDENCE"),
        (section("fail"), "FAIL"),
        (section("fail", {"steps": [7, 9], "problem": "The same."}), "CONTRADICTORY"),
        (section(" Pass "), "PASS"),
        (section(True), "UNPARSABLE"),
        (section(False), "UNPARSABLE"),
        (section("true"), "UNPARSABLE"),
        (section("yes"), "UNPARSABLE"),
        (section("pass or fail"), "UNPARSABLE"),
        (section("not pass"), "UNPARSABLE"),
        (section(None), "UNPARSABLE"),
        (section(["pass"]), "UNPARSABLE"),
        ("pass", "UNPARSABLE"),
        (True, "UNPARSABLE"),
        (section("PASS."), "PASS"),
        (section("**Fail**"), "FAIL"),
        ({"verdict": "pass"}, "PASS"),
        ({"verdict": "fail", "reason": "x", "findings": None}, "FAIL"),
        (
            section("pass", {"missing_step": "None", "steps": [], "problem": "There are no such steps."}),
            "CONTRADICTORY",
        ),
        (section("pass", {"missing_step": "None", "steps": [], "problem": "n/a"}), "PASS"),
        (section("pass", {"problem": "None. There are no such steps."}), "PASS"),
        (section("pass", {"problem": "None, except that step 2 repeats step 1."}), "CONTRADICTORY"),
        (section("pass", {"steps": [1, 2, 3], "problem": "none"}), "PASS"),
        (
            section("pass", {"steps": [1, 2], "problem": "None."}, {"steps": [3], "problem": "Idle."}),
            "CONTRADICTORY",
        ),
        (section("pass", {"steps": [1, 2, 3], "problem": ""}), "CONTRADICTORY"),
        (section("fail", {"steps": [2], "problem": "none"}), "FAIL"),
        ({"reason": "x", "findings": "none", "verdict": "pass"}, "UNPARSABLE"),
        ({"reason": "x", "findings": ["step 2"], "verdict": "fail"}, "UNPARSABLE"),
    ],
)
def test_only_a_clear_and_consistent_answer_is_a_verdict(value: Any, expected: str) -> None:
    assert outcome(parse(criteria.NO_DUPLICATE_STEPS, value)) == expected


@pytest.mark.parametrize(
    ("finding", "expected"),
    [
        ({"missing_step": "none", "steps": [2], "problem": "none"}, "PASS"),
        ({"missing_step": "Boil it.", "steps": [2], "problem": "none"}, "CONTRADICTORY"),
        ({"missing_step": "Boil it.", "problem": "none"}, "CONTRADICTORY"),
    ],
)
def test_a_step_that_is_named_as_missing_is_a_problem(finding: Any, expected: str) -> None:
    assert outcome(parse(criteria.NO_MISSING_STEPS, section("pass", finding))) == expected


def test_a_contradiction_keeps_what_was_found() -> None:
    verdict = parse(criteria.NO_MISSING_STEPS, section("pass", MISSING))
    assert outcome(verdict) == "CONTRADICTORY"
    assert verdict.findings[0].missing_step == "Boil it."
    assert "passes, though something is wrong" in verdict.rationale


def test_steps_that_do_not_exist_are_dropped_and_reported() -> None:
    [found] = parse(
        criteria.NO_REDUNDANT_STEPS, section("fail", {"steps": [2, 8], "problem": "Idle."})
    ).findings
    assert list(found.step_indices) == [1]
    assert found.description == "Idle. (The judge also named step 8, which does not exist.)"


def test_a_text_has_no_steps_to_point_at() -> None:
    form = VerdictsForm.of(criteria.ABSEVAL, step_count=0, constraints=CONSTRAINTS)
    properties = json.loads(answers.schema(form))["properties"]
    assert members(properties["executable"]) == ["reason", "findings", "verdict"]
    assert all('"steps"' not in json.dumps(properties[name]["properties"]) for name in criteria.ABSEVAL)


@pytest.mark.parametrize(
    ("verdicts", "overall", "expected", "score"),
    [
        (["pass", "pass"], "pass", "PASS", 1.0),
        (["pass", "fail"], "fail", "FAIL", 0.5),
        (["fail", "fail"], "fail", "FAIL", 0.0),
        (["fail"], "fail", "FAIL", None),
        (["unsure", "fail"], "fail", "FAIL", None),
        (["pass", "fail"], "pass", "CONTRADICTORY", None),
        (["pass", "pass"], "fail", "CONTRADICTORY", None),
        ([], "fail", "CONTRADICTORY", None),
        (["pass", "unsure"], "pass", "LOW_CONFIDENCE", None),
        (["pass", "pass"], "unsure", "LOW_CONFIDENCE", None),
        (["pass"], "pass", "UNPARSABLE", None),
        ([], "pass", "UNPARSABLE", None),
        (["pass", True], "pass", "UNPARSABLE", None),
        (["pass", "pass"], "yes", "UNPARSABLE", None),
    ],
)
def test_constraints_are_judged_one_by_one(
    verdicts: list[Any], overall: str, expected: str, score: float | None
) -> None:
    verdict = parse(criteria.SATISFIES_CONSTRAINTS, items("constraint", verdicts, overall, steps=[]))
    assert outcome(verdict) == expected
    assert (verdict.score if verdict.HasField("score") else None) == score


def test_a_broken_constraint_is_quoted_from_the_task() -> None:
    value = items("constraint", ["pass", "fail"], "fail", steps=[2, 9])
    verdict = parse(criteria.SATISFIES_CONSTRAINTS, value)
    [found] = verdict.findings
    assert (found.constraint, list(found.step_indices)) == ("in five minutes", [1])
    assert found.description == "About 2. (The judge also named step 9, which does not exist.)"
    assert verdict.rationale == "Constraint 1 (pass): About 1.\nConstraint 2 (fail): About 2."


def test_steps_that_pass_need_no_reason() -> None:
    value = items("step", ["pass", "fail", "pass"], "fail")
    for item in value["steps"][::2]:
        item["reason"] = ""
    verdict = parse(criteria.EXECUTABLE, value)
    assert outcome(verdict) == "FAIL"
    assert verdict.rationale == "Step 2 (fail): About 2.\nStep 1, 3 (pass)"


@pytest.mark.parametrize(
    ("entries", "overall", "expected", "score"),
    [
        ([], "pass", "PASS", 1.0),
        (None, "pass", "PASS", 1.0),
        ([(2, "fail")], "fail", "FAIL", 2 / 3),
        ([(2, "fail"), (3, "unsure")], "fail", "FAIL", None),
        ([(1, "pass"), (2, "fail")], "fail", "FAIL", 2 / 3),
        ([(1, "pass")], "pass", "PASS", 1.0),
        ([(2, "fail"), (None, "fail")], "fail", "FAIL", None),
        ([(2, "fail"), (3, "maybe")], "fail", "FAIL", None),
        ([(2, "unsure")], "pass", "LOW_CONFIDENCE", None),
        ([(2, "fail")], "pass", "CONTRADICTORY", None),
        ([], "fail", "FAIL", None),
        ([(1, "pass")], "fail", "CONTRADICTORY", None),
        ([(None, "fail")], "pass", "UNPARSABLE", None),
    ],
)
def test_only_steps_that_do_not_pass_need_an_entry(
    entries: list[Any] | None, overall: str, expected: str, score: float | None
) -> None:
    listed = entries and [{"step": number, "reason": "x", "verdict": said} for number, said in entries]
    verdict = parse(criteria.EXECUTABLE, {"steps": listed, "verdict": overall})
    assert outcome(verdict) == expected
    assert (verdict.score if verdict.HasField("score") else None) == (score and pytest.approx(score))


def test_lists_and_texts_are_capped_for_the_model_and_accepted_at_any_length() -> None:
    form = VerdictsForm.of(criteria.ABSEVAL, step_count=300, constraints=CONSTRAINTS)
    asked, accepted = (json.loads(text) for text in (answers.schema(form), answers.accepted_schema(form)))
    listed = asked["properties"]["satisfies_constraints"]["properties"]["constraints"]
    assert (listed["minItems"], listed["maxItems"]) == (2, 2)
    assert asked["properties"]["executable"]["properties"]["steps"]["maxItems"] == 20
    assert asked["properties"]["no_missing_steps"]["properties"]["findings"]["maxItems"] == 5
    finding = asked["properties"]["no_missing_steps"]["properties"]["findings"]["items"]["properties"]
    assert finding["problem"]["maxLength"] == finding["missing_step"]["maxLength"] == 300
    assert not any(word in json.dumps(accepted) for word in ("Items", "maxLength"))


def test_a_missing_first_step_is_told_to_stand_after_step_0() -> None:
    told = answers.instruction(VerdictsForm.of([criteria.NO_MISSING_STEPS], step_count=3, constraints=()))
    assert "0: it comes first" in told


def test_common_sense_is_judged_step_by_step() -> None:
    verdict = parse(criteria.EXECUTABLE, items("step", ["pass", "fail", "pass"], "fail"))
    assert outcome(verdict) == "FAIL"
    assert verdict.score == pytest.approx(2 / 3)
    assert [list(found.step_indices) for found in verdict.findings] == [[1]]


def test_items_that_do_not_exist_are_reported_and_do_not_decide() -> None:
    verdict = parse(criteria.EXECUTABLE, items("step", ["pass", "pass", "pass", "fail"], "pass"))
    assert outcome(verdict) == "PASS"
    assert "(The answer also judges step 4, which does not exist.)" in verdict.rationale
    assert (
        outcome(parse(criteria.EXECUTABLE, items("step", ["pass"] * 3 + ["fail"], "fail"))) == "CONTRADICTORY"
    )


def test_an_item_judged_in_two_ways_contradicts_itself() -> None:
    value = items("step", ["pass", "pass", "pass"], "pass")
    value["steps"].append({"step": 2, "reason": "No.", "verdict": "fail"})
    assert outcome(parse(criteria.EXECUTABLE, value)) == "CONTRADICTORY"


def test_criteria_that_cannot_be_read_abstain_each_for_itself() -> None:
    form = VerdictsForm.of(criteria.ABSEVAL[:3], step_count=3, constraints=())
    verdicts = form.parse({"no_missing_steps": section("pass"), "no_redundant_steps": "pass"})
    assert [outcome(verdict) for verdict in verdicts] == ["PASS", "UNPARSABLE", "UNPARSABLE"]
    with pytest.raises(UnclearAnswerError):
        form.parse(["pass", "pass", "pass"])


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 9)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["pass", "fail", "unsure", "true", "PASS"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["reason", "findings", "verdict", "steps", "step", "constraints", "constraint", "problem"]
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=20,
)


@given(st.sampled_from(criteria.ABSEVAL), JSON, st.integers(0, 3))
def test_an_unclear_answer_is_never_pass_or_fail(criterion: str, value: Any, steps: int) -> None:
    verdict = parse(criterion, value, steps)
    said = value.get("verdict") if isinstance(value, dict) else None
    stated = said.strip().lower() if isinstance(said, str) else None
    assert verdict.criterion == criterion
    if verdict.outcome == verdict_pb2.OUTCOME_PASS:
        assert stated == "pass"
        assert not verdict.findings
    elif verdict.outcome == verdict_pb2.OUTCOME_FAIL:
        assert stated == "fail"
    else:
        assert verdict.outcome == verdict_pb2.OUTCOME_ABSTAIN
        assert verdict.abstain_reason != verdict_pb2.ABSTAIN_REASON_UNSPECIFIED
    for found in verdict.findings:
        assert list(found.step_indices) == sorted(set(found.step_indices))
        assert all(index < steps for index in found.step_indices)


@given(st.sampled_from(criteria.ABSEVAL), st.sampled_from(["pass", "fail"]), st.integers(0, 3))
def test_findings_and_outcome_always_agree(criterion: str, said: str, steps: int) -> None:
    found = {"problem": "x", "missing_step": "y", "steps": []}
    verdict = parse(criterion, {"reason": "r", "findings": [found], "verdict": said}, steps)
    assert not (verdict.outcome == verdict_pb2.OUTCOME_PASS and verdict.findings)


def test_a_script_is_read_without_its_numbers() -> None:
    form = StepsForm()
    assert form.parse({"steps": ["1. Heat it.", "2. Eat it."]}) == ("Heat it.", "Eat it.")
    assert form.parse({"steps": ["Heat it.", " ", "2.5 cups go in."]}) == ("Heat it.", "2.5 cups go in.")


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "1. Heat it.",
        {},
        {"steps": []},
        {"steps": [" "]},
        {"steps": "Heat it."},
        {"steps": [1]},
        {"steps": ["x"] * 1001},
        {"steps": ["x" * 20_001]},
    ],
)
def test_what_is_no_script_is_refused(value: Any) -> None:
    with pytest.raises(UnclearAnswerError):
        StepsForm().parse(value)
