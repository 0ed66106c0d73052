"""EvaluateTexts over real gRPC."""

from __future__ import annotations

import math

import grpc
import pytest
from google.protobuf.json_format import ParseDict

from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.content_pb2 import Document
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.verdict_pb2 import Span, UnitVerdict, Verdict
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.texts_pb2 import RubricCriterion
from dramaturg.api.judging.v1.judge_service_pb2 import (
    CRITERION_UNIT_TOOL_CALL,
    CRITERION_UNIT_TURN,
    CriterionRule,
    JudgeCandidate,
    JudgeRequest,
    ToolCallCondition,
)
from dramaturg.client import ServiceError
from dramaturg.formats.messages import read_messages
from dramaturg.judge.protocols import ANY_CRITERION, CONTEXT, CONVERSATION, TOOL_CALLS
from dramaturg.judge.verdicts import abstained, failed, finding, of_units, passed, scored
from dramaturg.report.card import card
from dramaturg.results.rows import flatten
from tests.support.texts import (
    CLEAR,
    POLITE,
    QUESTION,
    judge,
    texts_client,
    texts_events,
    texts_request,
    texts_result,
)

PASS, FAIL, ABSTAIN = verdict_pb2.OUTCOME_PASS, verdict_pb2.OUTCOME_FAIL, verdict_pb2.OUTCOME_ABSTAIN
NOT_APPLICABLE = verdict_pb2.ABSTAIN_REASON_NOT_APPLICABLE
LOW = verdict_pb2.ABSTAIN_REASON_LOW_CONFIDENCE


def panel(*names: str) -> list[JudgeSelection]:
    return [JudgeSelection(role="rubric-judge", judge=name) for name in names]


async def test_a_judge_gets_the_task_the_texts_and_the_rubric_in_one_call() -> None:
    fake = judge()
    request = texts_request(
        reference="It left on Monday.", options=JudgeOptions(model="m/1"), tags={"level": "easy"}
    )
    async with texts_client(fake) as client:
        events = await texts_events(client, request)
    (asked,) = fake.requests
    assert asked.task.goal == QUESTION
    assert asked.options.model == "m/1"
    assert [step.text for step in asked.reference.steps] == ["It left on Monday."]
    assert [(one.id, one.text, len(one.script.steps)) for one in asked.candidates] == [
        ("a0", "Hello! It ships tomorrow.", 0),
        ("a1", "Tomorrow.", 0),
    ]
    assert "model-0" not in str(asked)
    assert [(one.id, one.definition) for one in asked.criteria] == [
        ("polite", "Pass: The answer greets the customer.\nFail: It is rude."),
        ("clear", "How easy the answer is to follow."),
    ]
    assert [one.HasField("scale") for one in asked.criteria] == [False, True]
    assert asked.criteria[1].scale == CLEAR.scale
    named = [event.WhichOneof("event") for event in events]
    assert named == ["accepted", "assessment", "assessment", "result"]
    assert events[0].accepted.assessment_count == 2
    result = events[-1].result
    assert [(text.text_id, text.model, text.text) for text in result.texts] == [
        ("a0", "model-0", "Hello! It ships tomorrow."),
        ("a1", "model-1", "Tomorrow."),
    ]
    assert [(one.criterion, one.outcome) for one in result.texts[0].verdicts] == [
        ("polite", verdict_pb2.OUTCOME_PASS),
        ("clear", verdict_pb2.OUTCOME_SCORED),
    ]
    assert result.texts[0].verdicts[1].score == 5
    assert result.texts[0].assessments[0].judge == "judge-0"
    assert list(result.criteria) == [POLITE, CLEAR]
    assert dict(result.tags) == {"level": "easy"}


async def test_criteria_with_a_rule_go_to_the_rule_judge_and_others_to_the_rubric_judge() -> None:
    fake = judge()
    rules = [
        RubricCriterion(id="ships", rule=CriterionRule(contains="SHIPS")),
        RubricCriterion(id="same", rule=CriterionRule(equals_reference=True)),
    ]
    request = texts_request(criteria=[rules[0], POLITE, rules[1]], reference="tomorrow")
    async with texts_client(fake) as client:
        result = await texts_result(client, request)
    assert [one.id for asked in fake.requests for one in asked.criteria] == ["polite"]
    found = {(text.text_id, one.criterion): one.outcome for text in result.texts for one in text.verdicts}
    assert list(found.values()) == [PASS, PASS, FAIL, FAIL, PASS, PASS]
    assert [[one.role for one in text.assessments] for text in result.texts] == [
        ["rubric-judge", "rule-judge"]
    ] * 2
    assert result.texts[1].verdicts[0].rationale == "The text does not contain 'SHIPS'."


async def test_context_goes_to_judges_that_take_it_and_others_abstain_from_what_has_it() -> None:
    document = Document(id="d1", title="Shipping", text="Orders ship on Monday.", source="handbook")
    taking, other = judge(capabilities=[ANY_CRITERION, CONTEXT]), judge()
    request = texts_request(criteria=[POLITE], judges=panel("judge-0", "judge-1"))
    request.texts[1].context.append(document)
    async with texts_client(taking, other) as client:
        result = await texts_result(client, request)
        asked = [*taking.requests, *other.requests]
        given = [[list(one.context) for one in request.candidates] for request in asked]
        assert given == [[[], [document]], [[]]]
        assert list(result.texts[1].context) == [document]
        verdicts = [one.assessment.verdicts[0] for one in result.texts[1].assessments]
        assert [one.outcome for one in verdicts] == [PASS, verdict_pb2.OUTCOME_ABSTAIN]
        assert verdicts[1].abstain_reason == verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED
        assert "takes no context" in verdicts[1].rationale
        request.task.instructions = "Answer in one sentence."
        result = await texts_result(client, request)
    assert taking.requests[-1].task.instructions == "Answer in one sentence."
    assert len(other.requests) == 1
    verdicts = [text.assessments[1].assessment.verdicts[0] for text in result.texts]
    assert all("instructions" in one.rationale for one in verdicts)


async def test_quotes_are_checked_and_a_verdict_that_rests_on_a_false_one_abstains() -> None:
    def quoting(request: JudgeRequest, candidate: JudgeCandidate) -> list[Verdict]:
        quote = "It  ships\ntomorrow." if candidate.id == "a0" else "It ships never."
        spans = [Span(part="text", quote=quote, found=True), Span(part="task", quote="my order")]
        kind = verdict_pb2.FINDING_KIND_CRITERION_NOT_MET
        return [failed(one.id, [finding(kind, "no date", spans=spans)]) for one in request.criteria]

    async with texts_client(judge(quoting)) as client:
        result = await texts_result(client, texts_request(criteria=[POLITE]))
    true, false = (text.verdicts[0] for text in result.texts)
    assert true.outcome == FAIL
    first, second = true.findings[0].spans
    assert result.texts[0].text[first.start : first.end] == "It ships tomorrow."
    assert (first.found, second.found, second.index) == (True, True, 0)
    assert QUESTION[second.start : second.end] == "my order"
    assert false.abstain_reason == verdict_pb2.ABSTAIN_REASON_CONTRADICTORY
    assert "It ships never." in false.rationale
    assert [one.found for one in false.findings[0].spans] == [False, True]
    shown = card(RunSample(texts=result))
    assert "<mark title='polite: no date'>It ships tomorrow.</mark>" in shown
    assert shown.count("<mark") == 1


async def test_a_conversation_goes_to_judges_that_take_its_parts_and_rules_judge_its_calls() -> None:
    messages = [
        {"role": "user", "content": "Weather in Oslo?"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "1", "function": {"name": "weather", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "1", "content": "rain"},
        {"role": "assistant", "content": "It rains."},
    ]
    plain = read_messages(messages[:1])
    png = "data:image/png;base64,iVBORw0KGgo="
    image = read_messages([{"role": "user", "content": [{"type": "image_url", "image_url": png}]}])

    def quoting(request: JudgeRequest, candidate: JudgeCandidate) -> list[Verdict]:
        spans = [Span(part="text", quote="rain]")]
        kind = verdict_pb2.FINDING_KIND_CRITERION_NOT_MET
        return [failed(one.id, [finding(kind, "wet", spans=spans)]) for one in request.criteria]

    taking, some = (
        judge(quoting, capabilities=[ANY_CRITERION, CONVERSATION, TOOL_CALLS]),
        judge(capabilities=[ANY_CRITERION, CONVERSATION]),
    )
    called = RubricCriterion(id="called", rule=CriterionRule(tool_call=ToolCallCondition(name="weather")))
    dry = RubricCriterion(id="dry", rule=CriterionRule(contains="rains", negate=True))
    request = texts_request(criteria=[POLITE, called, dry], judges=panel("judge-0", "judge-1"))
    del request.texts[:]
    for name, one in (("tools", read_messages(messages)), ("plain", plain), ("image", image)):
        request.texts.add(id=name, conversation=one)
    async with texts_client(taking, some) as client:
        result = await texts_result(client, request)
        request.texts[0].text = "beside"
        with pytest.raises(ServiceError, match="must be empty beside a conversation"):
            await texts_result(client, request)
    shown = [[one.id for one in asked.candidates] for asked in (*taking.requests, *some.requests)]
    assert shown == [["tools", "plain"], ["plain"]]
    tools, _, picture = result.texts
    (span,) = tools.assessments[0].assessment.verdicts[0].findings[0].spans
    assert (span.found, span.index) == (True, 2)
    assert "takes no calls of tools" in tools.assessments[1].assessment.verdicts[0].rationale
    assert "takes no images" in picture.assessments[0].assessment.verdicts[0].rationale
    assert [one.outcome for one in tools.verdicts[1:]] == [PASS, FAIL]
    assert tools.text.endswith("assistant:\nIt rains.")
    assert f"<img src='{png}'" in card(RunSample(texts=result))
    assert tools.conversation == request.texts[0].conversation


AGENT_RUN = [
    {"role": "user", "content": "Weather in Oslo and Rome?"},
    {
        "role": "assistant",
        "content": "Let me see.",
        "tool_calls": [
            {"id": "1", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}},
            {"id": "2", "function": {"name": "weather", "arguments": "{}"}},
        ],
    },
    {"role": "tool", "tool_call_id": "1", "content": "rain"},
    {"role": "assistant", "content": "It rains."},
]


async def test_each_turn_and_each_call_has_a_verdict_and_the_report_shows_those_at_fault() -> None:
    def judged(request: JudgeRequest, candidate: JudgeCandidate) -> list[Verdict]:
        asked = {one.id: one.each for one in request.criteria}
        assert asked == {
            "polite": 0,
            "clear": 0,
            "helps": CRITERION_UNIT_TURN,
            "needed": CRITERION_UNIT_TOOL_CALL,
        }
        turns = [
            UnitVerdict(turn_index=3, outcome=FAIL, rationale="Rome is missing."),
            UnitVerdict(turn_index=9, outcome=FAIL),
            UnitVerdict(turn_index=1, outcome=PASS),
        ]
        calls = [UnitVerdict(turn_index=1, call_index=0, outcome=PASS)]
        stray = passed("polite")
        stray.units.extend(turns)
        found = [finding(verdict_pb2.FINDING_KIND_CRITERION_NOT_MET, "half", steps=[3, 9])]
        return [stray, scored("clear", 3), of_units("helps", turns, found), of_units("needed", calls)]

    criteria = [
        POLITE,
        CLEAR,
        RubricCriterion(id="helps", passes="It helps.", each=CRITERION_UNIT_TURN),
        RubricCriterion(id="needed", passes="It is needed.", each=CRITERION_UNIT_TOOL_CALL),
        RubricCriterion(
            id="names_city",
            each=CRITERION_UNIT_TOOL_CALL,
            rule=ParseDict({"json_schema": {"type": "object", "required": ["city"]}}, CriterionRule()),
        ),
        RubricCriterion(id="rains", each=CRITERION_UNIT_TURN, rule=CriterionRule(contains="rains")),
    ]
    taking = [ANY_CRITERION, CONVERSATION, TOOL_CALLS]
    request = texts_request("A text.", criteria=criteria, judges=panel("judge-0"))
    request.texts.add(id="run", conversation=read_messages(AGENT_RUN))
    as_a_whole = judge(lambda asked, _: [passed(one.id) for one in asked.criteria], capabilities=taking)
    async with texts_client(judge(judged, capabilities=taking), as_a_whole) as client:
        result = await texts_result(client, request)
        del request.judges[:]
        request.judges.extend(panel("judge-1"))
        whole = await texts_result(client, request)
    text, run = result.texts
    applicable = [one.abstain_reason != NOT_APPLICABLE for one in text.verdicts]
    assert applicable == [True, True, False, False, False, False]
    found = {
        one.criterion: (one.outcome, [(u.turn_index, u.call_index, u.outcome) for u in one.units])
        for one in run.verdicts
    }
    assert found == {
        "polite": (PASS, []),
        "clear": (verdict_pb2.OUTCOME_SCORED, []),
        "helps": (FAIL, [(1, 0, PASS), (3, 0, FAIL)]),
        "needed": (ABSTAIN, [(1, 0, PASS), (1, 1, ABSTAIN)]),
        "names_city": (FAIL, [(1, 0, PASS), (1, 1, FAIL)]),
        "rains": (FAIL, [(1, 0, FAIL), (3, 0, PASS)]),
    }
    assert list(run.verdicts[2].findings[0].step_indices) == [3]
    assert run.verdicts[3].abstain_reason == verdict_pb2.ABSTAIN_REASON_UNPARSABLE
    labels = {row.measure: row.label for row in flatten(RunSample(texts=result)) if row.candidate_id == "run"}
    assert (labels["helps"], labels["needed"], labels["polite"]) == ("1 of 2 pass", "1 of 2 pass", "")
    shown = card(RunSample(texts=result))
    assert "helps: Turn 4: fails. Rome is missing." in shown
    assert "names_city: Turn 2, call 2: fails." in shown
    assert "turn 4: half" in shown
    helps = whole.texts[1].verdicts[2]
    assert (helps.outcome, helps.abstain_reason) == (ABSTAIN, verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED)
    assert "not each turn or call" in helps.rationale


async def test_a_scale_judges_the_whole() -> None:
    each = RubricCriterion(id="clear", scale=CLEAR.scale, description="D", each=CRITERION_UNIT_TURN)
    async with texts_client(judge()) as client:
        with pytest.raises(ServiceError) as refused:
            await texts_result(client, texts_request(criteria=[each]))
    assert [one.field for one in refused.value.violations] == ["criteria[0].each"]


async def test_rules_alone_need_no_rubric_judge() -> None:
    rule = RubricCriterion(id="ships", rule=CriterionRule(contains="ships"))
    async with texts_client() as client:
        result = await texts_result(client, texts_request(criteria=[rule]))
        assert [text.verdicts[0].outcome for text in result.texts] == [PASS, FAIL]
        rule.rule.matches = "("
        rule.scale.highest = 5
        with pytest.raises(ServiceError) as refused:
            await texts_result(client, texts_request(criteria=[rule]))
    assert [one.field for one in refused.value.violations] == ["criteria[0].rule", "criteria[0].scale"]


@pytest.mark.parametrize(
    "verdict",
    [
        Verdict(criterion="clear", outcome=verdict_pb2.OUTCOME_SCORED, score=6),
        Verdict(criterion="clear", outcome=verdict_pb2.OUTCOME_SCORED, score=0.9),
        Verdict(criterion="clear", outcome=verdict_pb2.OUTCOME_SCORED, score=math.nan),
        Verdict(criterion="clear", outcome=verdict_pb2.OUTCOME_SCORED),
        Verdict(criterion="clear", outcome=verdict_pb2.OUTCOME_PASS, score=4),
        Verdict(criterion="clear", score=4),
    ],
)
async def test_an_answer_without_a_score_on_the_scale_abstains(verdict: Verdict) -> None:
    async with texts_client(judge(lambda *_: [passed("polite"), verdict])) as client:
        result = await texts_result(client, texts_request("Hello."))
    first, second = result.texts[0].verdicts
    assert first.outcome == verdict_pb2.OUTCOME_PASS
    assert second.outcome == verdict_pb2.OUTCOME_ABSTAIN
    assert second.abstain_reason == verdict_pb2.ABSTAIN_REASON_UNPARSABLE
    assert not second.HasField("score")


async def test_a_score_for_a_criterion_without_a_scale_abstains() -> None:
    async with texts_client(judge(lambda *_: [scored("polite", 1), scored("clear", 2.5)])) as client:
        result = await texts_result(client, texts_request("Hello."))
    first, second = result.texts[0].verdicts
    assert first.abstain_reason == verdict_pb2.ABSTAIN_REASON_UNPARSABLE
    assert second.score == 2.5  # judges may score between whole numbers


async def test_a_panel_votes_and_averages() -> None:
    judges = [
        judge(lambda *_: [passed("polite"), scored("clear", 5)]),
        judge(lambda *_: [failed("polite"), abstained("clear", LOW)]),
        judge(lambda *_: [passed("polite"), scored("clear", 2)]),
    ]
    async with texts_client(*judges) as client:
        result = await texts_result(
            client, texts_request("Hello.", judges=panel("judge-0", "judge-1", "judge-2"))
        )
    polite, clear = result.texts[0].verdicts
    assert polite.outcome == verdict_pb2.OUTCOME_PASS
    assert (clear.outcome, clear.score) == (verdict_pb2.OUTCOME_SCORED, 3.5)
    assert clear.rationale == "Panel: judge-0 5, judge-1 ABSTAIN (LOW_CONFIDENCE), judge-2 2."
    assert [one.judge for one in result.texts[0].assessments] == ["judge-0", "judge-1", "judge-2"]


async def test_a_panel_that_splits_abstains() -> None:
    judges = [judge(lambda *_: [passed("polite")]), judge(lambda *_: [failed("polite")])]
    async with texts_client(*judges) as client:
        result = await texts_result(
            client, texts_request("Hello.", criteria=[POLITE], judges=panel("judge-0", "judge-1"))
        )
    assert result.texts[0].verdicts[0].abstain_reason == verdict_pb2.ABSTAIN_REASON_PANEL_SPLIT


async def test_a_judge_that_fails_abstains_and_others_are_kept() -> None:
    def refuse(request: JudgeRequest, candidate: JudgeCandidate) -> ServiceError:
        return ServiceError(
            grpc.StatusCode.UNAVAILABLE, error_reason_pb2.ERROR_REASON_PROVIDER_UNAVAILABLE, "no provider"
        )

    async with texts_client(judge(refuse), judge()) as client:
        result = await texts_result(client, texts_request("Hello.", judges=panel("judge-0", "judge-1")))
    (text,) = result.texts
    assert [one.outcome for one in text.verdicts] == [verdict_pb2.OUTCOME_PASS, verdict_pb2.OUTCOME_SCORED]
    reasons = {one.abstain_reason for one in text.assessments[0].assessment.verdicts}
    assert reasons == {verdict_pb2.ABSTAIN_REASON_PROVIDER_UNAVAILABLE}


async def test_a_text_without_content_is_a_failure_of_its_model() -> None:
    fake = judge()
    async with texts_client(fake) as client:
        result = await texts_result(client, texts_request(" \n", "Hello."))
    assert [one.id for one in fake.requests[0].candidates] == ["a1"]
    empty = result.texts[0]
    assert empty.failure_reason == verdict_pb2.ABSTAIN_REASON_EMPTY
    assert [one.outcome for one in empty.verdicts] == [verdict_pb2.OUTCOME_FAIL, verdict_pb2.OUTCOME_SCORED]
    assert empty.verdicts[1].score == 1
    assert not empty.assessments
    rows = flatten(RunSample(texts=result))
    assert [(row.failure_reason, row.value) for row in rows[:2]] == [
        (verdict_pb2.ABSTAIN_REASON_EMPTY, 0)
    ] * 2
    assert not rows[2].failure_reason


async def test_a_text_without_content_abstains_where_the_request_says_so() -> None:
    fake = judge()
    async with texts_client(fake) as client:
        result = await texts_result(client, texts_request("", unusable_outputs_abstain=True))
    assert not fake.requests
    assert {one.abstain_reason for one in result.texts[0].verdicts} == {verdict_pb2.ABSTAIN_REASON_EMPTY}
    assert not result.texts[0].failure_reason


async def test_a_judge_with_criteria_of_its_own_judges_those() -> None:
    own = judge(
        lambda request, _: [passed(one.id) for one in request.criteria], capabilities=(), criteria=["polite"]
    )
    async with texts_client(own) as client:
        result = await texts_result(client, texts_request("Hello."))
    assert [one.id for one in own.requests[0].criteria] == ["polite"]
    polite, clear = result.texts[0].verdicts
    assert polite.outcome == verdict_pb2.OUTCOME_PASS
    assert clear.abstain_reason == verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED


async def test_a_judge_of_none_of_the_criteria_is_not_called() -> None:
    stranger = judge(capabilities=(), criteria=["funny"])
    async with texts_client(stranger) as client:
        result = await texts_result(client, texts_request("Hello."))
    assert not stranger.requests
    reasons = {one.abstain_reason for one in result.texts[0].verdicts}
    assert reasons == {verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED}


async def test_without_a_judge_the_role_is_unbound() -> None:
    async with texts_client() as client:
        with pytest.raises(ServiceError) as raised:
            await texts_result(client, texts_request("Hello."))
    assert raised.value.reason == error_reason_pb2.ERROR_REASON_ROLE_UNBOUND
