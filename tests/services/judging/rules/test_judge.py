"""The rule judge."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from dramaturg import conformance
from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.content_pb2 import Conversation, ToolCall
from dramaturg.api.common.v1.script_pb2 import Script, Step, Task
from dramaturg.api.common.v1.verdict_pb2 import Verdict
from dramaturg.api.judging.v1.judge_service_pb2 import Criterion, CriterionRule, JudgeCandidate, JudgeRequest
from dramaturg.api.judging.v1.judge_service_pb2_grpc import JudgeServiceStub
from dramaturg.judge.roles import RULE_JUDGE
from dramaturg.judge.rules import MAX_SCHEMA_SIZE, apply_rule, describe_rule, rule_problem
from dramaturg.service.channel import open_channel
from dramaturg.testing import serve
from services.judging.rules.judge import SPEC
from tests.support.growth import faster_than_linear

PASS, FAIL = verdict_pb2.OUTCOME_PASS, verdict_pb2.OUTCOME_FAIL
PERSON = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string", "pattern": "^[A-Z]"}, "age": {"$ref": "#/$defs/age"}},
    "$defs": {"age": {"type": "integer", "minimum": 0}},
}
DECIDED: list[tuple[dict[str, Any], str, bool]] = [
    ({"equals": "Paris"}, "  PARIS. ", True),
    ({"equals": "Paris"}, "Paris, France", False),
    ({"equals": "Paris", "exact": True}, "paris", False),
    ({"equals": "caf\u00e9"}, "cafe\u0301", True),
    ({"equals": "?"}, "!", False),
    ({"contains": "full  refund"}, "You get a FULL\nrefund.", True),
    ({"contains": "refund", "exact": True}, "A Refund", False),
    ({"contains": "sorry", "negate": True}, "Sorry!", False),
    ({"contains": "sorry", "negate": True}, "No.", True),
    ({"matches": r"(?i)\border [A-Z]{2}-\d{4}\b"}, "See order ab-1234.", True),
    ({"matches": r"^\d+$"}, "12a", False),
    ({"json_schema": PERSON}, '{"name": "Ada", "age": 36}', True),
    ({"json_schema": PERSON}, '```json\n{"name": "Ada"}\n```', True),
    ({"json_schema": PERSON}, '{"name": "ada"}', False),
    ({"json_schema": PERSON}, '{"name": "Ada", "age": -1}', False),
    ({"json_schema": PERSON}, 'Here it is: {"name": "Ada"}', False),
    ({"json_schema": {"type": "number"}}, "NaN", False),
    ({"json_schema": {"uniqueItems": True}}, '[1, true, "1", [1], {"a": 1}]', True),
    ({"json_schema": {"uniqueItems": True}}, '[{"a": 1, "b": 2}, {"b": 2.0, "a": 1}]', False),
    ({"json_schema": {"type": "array"}}, "[" * 100_000, False),
    ({"number": {"value": 1234.5}}, "First 3, so it is $1,234.50.", True),
    ({"number": {"value": 0.3, "tolerance": 0.1}}, "0.4", True),
    ({"number": {"value": 0.3, "tolerance": 0.1}}, "0.41", False),
    ({"number": {"value": -200, "relativeTolerance": 0.01}}, "\u2212198km", True),
    ({"number": {"value": 2}}, "two", False),
    ({"number": {"tolerance": 0.5}}, "about 42.4", True),
    ({"length": {"at_most": 3}}, "one two three four", False),
    ({"length": {"at_least": 2, "unit": "LENGTH_UNIT_SENTENCES"}}, "It is 2.5 long. Yes", True),
    ({"length": {"at_most": 2, "unit": "LENGTH_UNIT_PARAGRAPHS"}}, "a\n\nb\n \nc", False),
    ({"length": {"at_least": 5, "at_most": 9, "unit": "LENGTH_UNIT_CHARACTERS"}}, "12345", True),
    ({"length": {"at_most": 2, "unit": "LENGTH_UNIT_LINES"}}, "a\n\nb", True),
    ({"equals_reference": True}, "the answer is 42", True),
    ({"contains_reference": True}, "42", False),
]


async def judged(
    candidates: list[str], rules: list[dict[str, Any]], reference: str = ""
) -> list[list[Verdict]]:
    request = JudgeRequest(
        task=Task(goal="g"),
        candidates=[
            JudgeCandidate(id=str(index), text=text, reading=verdict_pb2.READING_TEXT)
            for index, text in enumerate(candidates)
        ],
        criteria=[
            Criterion(id=f"c{index}", definition="d", rule=ParseDict(rule, CriterionRule()) if rule else None)
            for index, rule in enumerate(rules)
        ],
        reference=Script(steps=[Step(text=reference)]) if reference else None,
    )
    async with (
        SPEC().open() as contracts,
        serve(*contracts) as served,
        open_channel(served.target) as channel,
    ):
        found = {one.candidate_id: one async for one in JudgeServiceStub(channel).Judge(request)}
    return [list(found[str(index)].assessment.verdicts) for index in range(len(candidates))]


async def test_each_rule_decides_and_says_why() -> None:
    rules, texts = [rule for rule, _, _ in DECIDED], [text for _, text, _ in DECIDED]
    # Every text is judged by every rule: one request, and each rule gets hostile texts too.
    table = await judged(texts, rules, reference="The answer is 42.")
    found = [table[index][index].outcome for index in range(len(DECIDED))]
    wrong = [DECIDED[index] for index, outcome in enumerate(found) if (outcome == PASS) != DECIDED[index][2]]
    assert not wrong
    assert {verdict.outcome for row in table for verdict in row} == {PASS, FAIL}
    assert all(verdict.rationale for row in table for verdict in row)


async def test_without_a_rule_or_a_reference_it_abstains() -> None:
    [verdicts] = await judged(
        ["42"], [{}, {"equals_reference": True}, {"number": {}}, {"matches": "("}, {"contains": "4"}]
    )
    supported, applicable = (
        verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED,
        verdict_pb2.ABSTAIN_REASON_NOT_APPLICABLE,
    )
    reasons = [one.abstain_reason for one in verdicts]
    assert reasons == [supported, applicable, applicable, supported, 0]


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({}, "has no condition"),
        ({"matches": "(?<=a)b"}, "look-around"),
        ({"matches": r"(?:\w{0,200}a){5}"}, "is too large"),
        ({"number": {"value": "Infinity"}}, "must be finite"),
        ({"length": {}}, "neither at_least nor at_most"),
        ({"length": {"at_least": 3, "at_most": 2}}, "greater"),
        ({"equals_reference": False}, "must be true"),
        ({"json_schema": {"type": "text"}}, "is no JSON Schema"),
        ({"json_schema": {"pattern": "("}}, "is no regular expression"),
        ({"json_schema": {"$ref": "http://127.0.0.1:1/schema"}}, "is not local"),
        ({"json_schema": {"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}}, "is recursive"),
        ({"json_schema": {"patternProperties": {"(a+)+$": {}}}}, "not supported"),
    ],
)
def test_a_rule_that_cannot_be_applied_has_its_problem(rule: dict[str, Any], problem: str) -> None:
    assert problem in rule_problem(ParseDict(rule, CriterionRule()))


def test_a_schema_that_doubles_with_each_reference_is_refused_at_once() -> None:
    bomb = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)}
    schema = {"$ref": "#/$defs/d0", "$defs": {**bomb, "d60": {"type": "string"}}}
    # To follow each reference would take 2^60 steps: the test would not end.
    assert str(MAX_SCHEMA_SIZE) in rule_problem(ParseDict({"json_schema": schema}, CriterionRule()))


def test_a_text_with_too_many_values_for_its_schema_is_not_checked() -> None:
    schema = {"items": {"anyOf": [{"const": number} for number in range(1, 1500)]}}
    rule = ParseDict({"json_schema": schema}, CriterionRule())
    assert apply_rule(rule, "[1]", "").passes
    decision = apply_rule(rule, f"[{'1499,' * 20_000}1]", "")
    assert decision.passes is None
    assert "too many values" in decision.reason


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (
            {"json_schema": {"uniqueItems": True}},
            lambda size: json.dumps([{"a": number % (7 * size - 1)} for number in range(7 * size)]),
        ),
        ({"matches": r"(?:a+)+$"}, lambda size: "a" * (99 * size) + "b"),
        ({"matches": r"(?:[ab]{0,2000}a)z"}, lambda size: "ab" * (5 * size)),
        ({"number": {"value": 1}}, lambda size: "1,000" + ",000" * (24 * size) + "0"),
        ({"number": {"value": 1}}, lambda size: "9" * (100 * size)),
        ({"contains": "x" * 10_000 + "y"}, lambda size: "x" * (100 * size)),
    ],
)
def test_the_time_of_hostile_texts_grows_with_their_length(
    rule: dict[str, Any], text: Callable[[int], str]
) -> None:
    parsed, short, long = ParseDict(rule, CriterionRule()), text(1000), text(2000)
    assert apply_rule(parsed, long, "").passes is False
    slow = faster_than_linear(lambda: apply_rule(parsed, short, ""), lambda: apply_rule(parsed, long, ""))
    assert slow is None, slow


def test_every_rule_has_words() -> None:
    said = [describe_rule(ParseDict(rule, CriterionRule())) for rule, _, _ in DECIDED]
    assert all(one.startswith(("The text ", "It is not so that the text ")) for one in said)
    assert describe_rule(CriterionRule(contains="refund")) == "The text contains 'refund'."
    expression = CriterionRule(matches=r"\d+\.$")
    assert describe_rule(expression) == r"The text has a match of the regular expression '\d+\.$'."
    assert apply_rule(expression, "none", "").reason == r"The text has no match of '\d+\.$'."


async def test_it_conforms() -> None:
    async with SPEC().open() as contracts, serve(*contracts) as served:
        role = conformance.checked_role(RULE_JUDGE.name, ["polite", "clear"])
        outcomes = await conformance.run(role, served.target)
    assert [one.failure for one in outcomes if one.broken] == []
    assert [one.passed for one in outcomes if one.check.name == "judges-each-unit"] == [True]


@pytest.mark.parametrize(
    ("call", "passes", "reason"),
    [
        ({"name": "book"}, True, "called as wanted"),
        ({"name": "pay"}, False, "is not called"),
        ({"name": "book", "arguments": {"city": "Oslo", "nights": 2}}, True, "called as wanted"),
        ({"name": "book", "arguments": {"nights": True}}, False, "other arguments"),
        ({"name": "book", "arguments": {"rooms": 1}}, False, "other arguments"),
        ({"name": "book", "after": "search"}, True, "called as wanted"),
        ({"name": "search", "after": "book"}, False, "not after 'book'"),
        ({"name": "broken", "arguments": {"a": 1}}, False, "other arguments"),
    ],
)
def test_calls_of_tools_are_matched(call: dict[str, Any], passes: bool, reason: str) -> None:
    conversation = Conversation()
    turn = conversation.turns.add(role="assistant")
    for name, arguments in (
        ("search", ""),
        ("book", '{"city": "Oslo", "nights": 2, "tags": [1]}'),
        ("broken", "{"),
    ):
        turn.parts.add(tool_call=ToolCall(name=name, arguments=arguments))
    rule = ParseDict({"tool_call": call}, CriterionRule())
    decision = apply_rule(rule, "", "", conversation)
    assert decision.passes is passes
    assert reason in decision.reason
    rule.negate = True
    assert apply_rule(rule, "", "", conversation).passes is not passes
    assert apply_rule(rule, "text", "").passes is None
    assert call["name"] in describe_rule(rule)
