"""The verdicts of the agents that judge with a language model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.script_pb2 import Candidate, Task
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason, Assessment
from dramaturg.api.generation.v1 import generation_service_pb2
from dramaturg.api.generation.v1.generation_service_pb2 import Completion, GenerateRequest
from dramaturg.judge.quotes import Sources
from dramaturg.judge.roles import CRITIC, JudgeRole
from dramaturg.service.errors import ServiceError
from dramaturg.testing import completion
from tests.services.agents.conftest import AGENTS, Agents
from tests.support.judges import STEPS, candidate, items, section

PASS, FAIL, ABSTAIN = verdict_pb2.OUTCOME_PASS, verdict_pb2.OUTCOME_FAIL, verdict_pb2.OUTCOME_ABSTAIN


def outcomes(assessment: Assessment) -> list[int]:
    return [verdict.outcome for verdict in assessment.verdicts]


def reasons(assessment: Assessment) -> set[str]:
    return {
        AbstainReason.Name(verdict.abstain_reason).removeprefix("ABSTAIN_REASON_")
        for verdict in assessment.verdicts
    }


@pytest.mark.parametrize("agent", AGENTS)
async def test_a_good_script_passes_everything_in_one_call(agent: str, agents: Agents) -> None:
    assessment = await agents.ask(agent, candidate(*STEPS))
    role = AGENTS[agent].role
    assert isinstance(role, JudgeRole)
    assert [verdict.criterion for verdict in assessment.verdicts] == list(role.criteria)
    assert set(outcomes(assessment)) == {PASS}
    assert assessment.provenance.name == f"llm-{agent}"
    assert assessment.provenance.contract == role.contract
    assert assessment.provenance.usage.provider_call_count == 1
    assert len(agents.generation.requests) == 1


async def test_the_critic_points_at_steps(agents: Agents) -> None:
    agents.generation.reply = lambda _: completion(
        {
            "actions": "...",
            "no_missing_steps": section(
                "fail", {"missing_step": "Boil it.", "steps": [1], "problem": "Cold."}
            ),
            "no_redundant_steps": section("pass"),
            "no_duplicate_steps": section("fail", {"steps": [2, 3], "problem": "Twice."}),
        }
    )
    assessment = await agents.ask("critic", candidate(*STEPS))
    assert outcomes(assessment) == [FAIL, PASS, FAIL]
    assert assessment.verdicts[0].findings[0].missing_step == "Boil it."
    assert list(assessment.verdicts[2].findings[0].step_indices) == [1, 2]


async def test_findings_have_the_words_of_their_steps_where_they_stand_in_the_text(agents: Agents) -> None:
    faults = [{"steps": [1, 2, 3, 4], "problem": "Idle."}] * 10
    agents.generation.reply = lambda _: completion(
        {
            "actions": "...",
            "no_missing_steps": section("fail", {"missing_step": "Boil it.", "steps": [1]}),
            "no_redundant_steps": section("fail", *faults),
            "no_duplicate_steps": section("fail", *faults),
        }
    )
    long = "Stir the tea " * 30
    text = f"Make tea:\n1. Heat\n   the **water**.\n2. {long}\n3. Put a tea bag in.\n4. Pour."
    assessment = await agents.ask("critic", Candidate(id="a", text=text))
    missing, redundant, _ = assessment.verdicts
    assert outcomes(assessment) == [FAIL, FAIL, FAIL]
    assert not missing.findings[0].spans
    quotes = [span.quote for span in redundant.findings[0].spans]
    assert quotes == ["Heat\nthe **water**.", long[:200], "Put a tea bag in.", "Pour."]
    assert {span.part for span in redundant.findings[0].spans} == {"text"}
    spans = [span for verdict in assessment.verdicts for one in verdict.findings for span in one.spans]
    assert len(spans) == 50
    sources = Sources(Task(goal="Make tea"), [text], (), "")
    for span in spans:
        assert not span.found  # this is for the gateway to say
        sources.locate(span)
        assert span.found


async def test_criteria_that_an_answer_lacks_are_asked_for_once_more_alone(agents: Agents) -> None:
    repeated = section("fail", {"steps": [1, 2], "problem": "Twice."})
    answers = [
        {"actions": "...", "no_missing_steps": section("pass"), "no_redundant_steps": section("perhaps")},
        {"actions": "...", "no_redundant_steps": section("pass"), "no_duplicate_steps": repeated},
    ]
    remaining = iter(answers)
    agents.generation.reply = lambda _: completion(next(remaining))
    assessment = await agents.ask("critic", candidate(*STEPS))
    assert [verdict.criterion for verdict in assessment.verdicts] == list(CRITIC.criteria)
    assert outcomes(assessment) == [PASS, PASS, FAIL]
    first, second = (json.loads(one.json_format.schema)["properties"] for one in agents.generation.requests)
    assert [*first][1:] == list(CRITIC.criteria)
    assert [*second] == ["actions", "no_redundant_steps", "no_duplicate_steps"]
    assert "no_missing_steps: Pass" not in agents.generation.requests[1].messages[0].text
    assert assessment.provenance.usage.provider_call_count == 2


async def test_criteria_that_stay_without_an_answer_abstain_after_two_calls(agents: Agents) -> None:
    agents.generation.reply = lambda _: completion({"actions": "...", "no_missing_steps": section("pass")})
    assessment = await agents.ask("critic", candidate(*STEPS))
    assert outcomes(assessment) == [PASS, ABSTAIN, ABSTAIN]
    assert reasons(assessment) == {"UNSPECIFIED", "UNPARSABLE"}
    assert len(agents.generation.requests) == 2


async def test_a_second_call_that_fails_leaves_the_verdicts_of_the_first(agents: Agents) -> None:
    def reply(request: GenerateRequest) -> Completion:
        if len(agents.generation.requests) > 1:
            raise ServiceError(grpc.StatusCode.INTERNAL, error_reason_pb2.ERROR_REASON_INTERNAL, "No.")
        return completion({"actions": "...", "no_missing_steps": section("pass")})

    agents.generation.reply = reply
    assessment = await agents.ask("critic", candidate(*STEPS))
    assert outcomes(assessment) == [PASS, ABSTAIN, ABSTAIN]
    assert len(assessment.verdicts) == 3


async def test_the_executor_judges_constraint_by_constraint(agents: Agents) -> None:
    agents.generation.reply = lambda _: completion(
        {
            "walk": [{"step": 1, "needs": "a kettle", "after": "hot water", "possible": "yes"}],
            "satisfies_constraints": items("constraint", ["pass", "fail"], "fail", steps=[]),
            "completes_goal": section("unsure"),
            "order_correct": section("pass"),
        }
    )
    assessment = await agents.ask("execute", candidate(*STEPS))
    assert outcomes(assessment) == [FAIL, ABSTAIN, PASS]
    assert assessment.verdicts[0].findings[0].constraint == "in five minutes"
    assert assessment.verdicts[0].score == 0.5
    assert assessment.verdicts[1].abstain_reason == verdict_pb2.ABSTAIN_REASON_LOW_CONFIDENCE
    [note] = assessment.step_notes
    assert (note.step_index, note.needs, note.leaves) == (0, "a kettle", "hot water")
    assert note.outcome == verdict_pb2.OUTCOME_PASS


async def test_without_constraints_the_executor_abstains_from_them_alone(agents: Agents) -> None:
    assessment = await agents.ask("execute", candidate(*STEPS), task=Task(goal="Make tea"))
    assert outcomes(assessment) == [ABSTAIN, PASS, PASS]
    assert assessment.verdicts[0].abstain_reason == verdict_pb2.ABSTAIN_REASON_NOT_APPLICABLE


async def test_the_commonsense_checker_scores_the_share_of_sensible_steps(agents: Agents) -> None:
    agents.generation.reply = lambda _: completion(
        {"walk": "...", "executable": items("step", ["pass", "fail", "pass"], "fail")}
    )
    [verdict] = (await agents.ask("commonsense", candidate(*STEPS))).verdicts
    assert verdict.outcome == FAIL
    assert verdict.score == pytest.approx(2 / 3)
    assert [list(found.step_indices) for found in verdict.findings] == [[1]]


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("empty", [Candidate(id="a"), Candidate(id="a", text="\n"), candidate(" ")])
async def test_an_empty_candidate_needs_no_model(agent: str, empty: Candidate, agents: Agents) -> None:
    assessment = await agents.ask(agent, empty)
    assert not agents.generation.requests
    assert assessment.reading == verdict_pb2.READING_EMPTY
    for verdict in assessment.verdicts:
        fails = verdict.criterion in {"no_missing_steps", "completes_goal"}
        assert verdict.outcome == (FAIL if fails else ABSTAIN)


@pytest.mark.parametrize("agent", AGENTS)
async def test_a_text_without_steps_is_judged_as_text_and_says_so(agent: str, agents: Agents) -> None:
    assessment = await agents.ask(agent, Candidate(id="a", text="Just heat it and drink it."))
    assert assessment.reading == verdict_pb2.READING_TEXT
    assert set(outcomes(assessment)) == {PASS}
    assert "\nJust heat it and drink it.\n" in agents.generation.messages[-1]


@pytest.mark.parametrize("agent", AGENTS)
async def test_chinese_steps_are_read_and_shown(agent: str, agents: Agents) -> None:
    one = Candidate(id="a", text="第一步：在锅里把水烧开。\n第二步：把茶包放进杯子。\n第三步：倒入热水。")
    assessment = await agents.ask(agent, one, task=Task(goal="泡一杯茶", constraints=["不用水壶"]))
    assert set(outcomes(assessment)) == {PASS}
    assert assessment.reading == verdict_pb2.READING_STEPS
    assert "Step 2: 把茶包放进杯子。\n" in agents.generation.messages[-1]


@pytest.mark.parametrize("agent", AGENTS)
async def test_steps_of_ten_thousand_characters_are_shown_whole(agent: str, agents: Agents) -> None:
    steps = ["x" * 10_000, "y" * 10_000, *STEPS]
    assessment = await agents.ask(agent, candidate(*steps))
    assert set(outcomes(assessment)) == {PASS}
    assert all(f": {step}\n" in agents.generation.messages[-1] for step in steps)
    assert "candidate.shown" not in assessment.provenance.parameters


@pytest.mark.parametrize("agent", AGENTS)
async def test_what_is_too_long_is_cut_and_every_verdict_says_so(agent: str, agents: Agents) -> None:
    one = candidate("x" * 10_000, *STEPS)
    assessment = await agents.ask(agent, one, excerpts={"candidate": 1000})
    total = 10_000 + sum(map(len, STEPS))
    assert assessment.provenance.parameters["candidate.shown"] == f"1000 of {total} characters"
    notice = f"(Only 1000 of the {total} characters of the candidate were shown to the judge.)"
    assert all(verdict.rationale.endswith(notice) for verdict in assessment.verdicts)
    assert all(step in agents.generation.messages[-1] for step in STEPS), "only the longest step is cut"


@pytest.mark.parametrize("agent", AGENTS)
async def test_hidden_characters_are_counted(agent: str, agents: Agents) -> None:
    assessment = await agents.ask(agent, candidate("Heat\u202e it.", *STEPS))
    assert assessment.provenance.parameters["candidate.escaped_characters"] == "1"


@pytest.mark.parametrize("agent", AGENTS)
async def test_an_answer_of_no_use_makes_every_criterion_abstain(agent: str, agents: Agents) -> None:
    """``tests.dramaturg.judge.test_llm`` has all statuses and failures."""
    status = generation_service_pb2.COMPLETION_STATUS_REFUSED
    agents.generation.reply = lambda _: completion({}, status=status, json=None)
    assessment = await agents.ask(agent, candidate(*STEPS))
    assert set(outcomes(assessment)) == {ABSTAIN}
    assert reasons(assessment) == {"REFUSED"}
    assert assessment.provenance.usage.completion_token_count == 5, "it was paid for"
    assert len(agents.generation.requests) == 1


def failing(code: grpc.StatusCode, reason: Any) -> Any:
    def reply(request: GenerateRequest) -> Completion:
        raise ServiceError(code, reason, "No.")

    return reply


@pytest.mark.parametrize("agent", AGENTS)
async def test_a_failure_of_the_moment_makes_every_criterion_abstain(agent: str, agents: Agents) -> None:
    code, reason = grpc.StatusCode.RESOURCE_EXHAUSTED, error_reason_pb2.ERROR_REASON_BUDGET_EXHAUSTED
    agents.generation.reply = failing(code, reason)
    assessment = await agents.ask(agent, candidate(*STEPS))
    assert set(outcomes(assessment)) == {ABSTAIN}
    assert reasons(assessment) == {"OVER_BUDGET"}
    assert all(verdict.rationale for verdict in assessment.verdicts)


@pytest.mark.parametrize("agent", AGENTS)
async def test_a_failure_of_the_configuration_is_the_candidates_error(agent: str, agents: Agents) -> None:
    code, reason = grpc.StatusCode.INVALID_ARGUMENT, error_reason_pb2.ERROR_REASON_MODEL_UNKNOWN
    agents.generation.reply = failing(code, reason)
    with pytest.raises(ServiceError) as caught:
        await agents.ask(agent, candidate(*STEPS))
    assert (caught.value.code, caught.value.reason) == (code, reason)


@pytest.mark.parametrize("agent", AGENTS)
async def test_forty_candidates_in_the_pool_change_nothing_for_those_who_do_not_use_it(
    agent: str, agents: Agents
) -> None:
    pool: Sequence[Candidate] = [candidate(f"Do it {n}.", id=f"c{n}") for n in range(40)]
    alone = await agents.ask(agent, candidate(*STEPS))
    crowded = await agents.ask(agent, candidate(*STEPS), pool=tuple(pool))
    assert alone.verdicts == crowded.verdicts
    assert agents.generation.requests[0] == agents.generation.requests[1]


async def test_repeats_are_different_questions(agents: Agents) -> None:
    for repeat in range(2):
        await agents.ask("critic", candidate(*STEPS), options=JudgeOptions(repeat_index=repeat))
    assert [request.repeat_index for request in agents.generation.requests] == [0, 1]
