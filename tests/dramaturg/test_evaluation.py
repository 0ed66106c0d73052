from __future__ import annotations

import re
import subprocess
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas
import pytest

import dramaturg
from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Finding
from dramaturg.api.evaluation.v1.scripts_pb2 import GOLD_ANSWER_SOURCE_GIVEN
from dramaturg.api.judging.v1 import pair_judge_service_pb2 as pairs_pb
from dramaturg.api.judging.v1.judge_service_pb2 import JudgeCandidate, JudgeRequest
from dramaturg.api.roles.v1.role_service_pb2 import GenerateRolesResponse
from dramaturg.judge.protocols import ANY_CRITERION, CONVERSATION
from dramaturg.judge.verdicts import abstained, failed, finding, passed
from dramaturg.testing import FakeJudge, RegisteredJudge, in_thread, serve_gateway
from tests.support.pairs import BAD, GOOD, SOURCE, FakeFinder, everyone, serve_fakes

GOAL = "Make tea"
UNREACHABLE = "127.0.0.1:1"
"""Refused inputs are never sent."""


def judged(request: JudgeRequest, candidate: JudgeCandidate) -> Any:
    text = candidate.text or " ".join(step.text for step in candidate.script.steps)
    duplicate = finding(verdict_pb2.FINDING_KIND_DUPLICATE_STEP, "Twice.", steps=[0, 1])
    newer = Finding(kind=99)  # type: ignore[arg-type]  # enums of proto3 are open
    return [
        passed("no_missing_steps", rationale="Whole."),
        abstained("no_redundant_steps", verdict_pb2.ABSTAIN_REASON_REFUSED),
        failed("no_duplicate_steps", [duplicate, newer]) if "again" in text else passed("no_duplicate_steps"),
    ]


CRITERIA = ("no_missing_steps", "no_redundant_steps", "no_duplicate_steps")


@pytest.fixture
def critic() -> FakeJudge:
    return FakeJudge(judged, criteria=CRITERIA)


@pytest.fixture
def target(critic: FakeJudge, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    rubric_judge = FakeJudge(capabilities=[ANY_CRITERION, CONVERSATION], criteria=())
    judges = (
        RegisteredJudge("critic", critic.contract(), "ours"),
        RegisteredJudge("rubric-judge", rubric_judge.contract(), "any"),
    )
    with in_thread(serve_gateway(*judges)) as server:
        monkeypatch.setenv("DRAMATURG_TARGET", server.target)
        yield server.target


@dataclass
class Written:
    """A script of a caller's own type."""

    id: str
    steps: list[str]
    model: str | None = None


def test_scripts_are_judged(target: str, critic: FakeJudge) -> None:
    result = dramaturg.evaluate_scripts(
        GOAL,
        [
            "1. Boil water. 2. Pour it.",
            ["Boil water.", "Boil water again."],
            {"id": "c", "text": "1. Boil.", "model": "m"},
            Written("d", ["Boil."]),
        ],
        constraints=["without a kettle"],
        reference=["Boil water.", "Pour it."],
        roles=["critic"],
        judges={"critic": "ours"},
    )
    assert [one.id for one in result.candidates] == ["1", "2", "c", "d"]
    assert [one["no_duplicate_steps"].passed for one in result.candidates] == [True, False, True, True]
    assert result.candidates[2].model == "m"
    second = result.candidates[1]
    assert second["no_duplicate_steps"].findings == (
        dramaturg.Finding("DUPLICATE_STEP", (0, 1), "Twice.", "", ""),
        dramaturg.Finding("KIND_99", (), "", "", ""),
    )
    abstention = second["no_redundant_steps"]
    assert (abstention.passed, abstention.score, abstention.abstain_reason) == (None, None, "REFUSED")
    assert second["no_missing_steps"].abstain_reason is None
    assert (second["no_missing_steps"].rationale, second["no_missing_steps"].judge) == ("Whole.", "ours")
    with pytest.raises(KeyError, match="fluent"):
        second["fluent"]
    assert result.message.task.constraints == ["without a kettle"]
    assert result.message.gold_answer.source == GOLD_ANSWER_SOURCE_GIVEN
    assert [step.text for step in critic.requests[0].reference.steps] == ["Boil water.", "Pour it."]
    with pytest.raises(AttributeError):
        second.id = "x"  # type: ignore[misc]


def test_a_mapping_has_the_ids_and_a_frame_has_no_value_for_an_abstention(target: str) -> None:
    scripts = {"a": "1. Boil.", "b": {"steps": ["Boil."], "model": "m"}}
    result = dramaturg.evaluate_scripts(GOAL, scripts, roles=["critic"], reference=["Boil."], repeats=2)
    assert result.candidates[0]["no_missing_steps"].measured_confidence == 1
    assert result.candidates[0]["no_redundant_steps"].measured_confidence is None
    frame = result.to_pandas().query("judge == 'ours'")
    assert frame["candidate_id"].tolist() == ["a"] * 3 + ["b"] * 3
    assert frame["value"].isna().tolist() == [False, True, False] * 2
    assert isinstance(frame, pandas.DataFrame)


@pytest.mark.parametrize(
    ("scripts", "error", "message"),
    [
        ([{"id": "a", "txt": "1. Boil."}], ValueError, r"scripts\[0\] has no field 'txt'"),
        ({"a": {"steps": [], "name": "x"}}, ValueError, r"scripts\['a'\] has no field 'name'"),
        ([{"id": "a"}], ValueError, r"scripts\[0\] must have text or steps"),
        ([{"text": "1. Boil.", "steps": ["Boil."]}], ValueError, "must have text or steps"),
        ([{"text": None}], ValueError, "must have text or steps"),
        ([None], TypeError, r"scripts\[0\] is a list of texts, not NoneType"),
        ([["Boil.", 2]], TypeError, r"scripts\[0\]\[1\] is a text, not int"),
        ([{"id": 1, "text": "x"}], TypeError, r"scripts\[0\].id is a text, not int"),
        ({"id": "a", "text": "1. Boil."}, TypeError, "scripts is one of them"),
        ("1. Boil.", TypeError, "scripts is a list or a mapping, not str"),
    ],
)
def test_a_value_that_is_no_script_is_refused(scripts: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        dramaturg.evaluate_scripts(GOAL, scripts, target=UNREACHABLE)


def test_other_arguments_are_checked() -> None:
    given: Any = "without a kettle"
    with pytest.raises(TypeError, match="constraints is a list of texts, not str"):
        dramaturg.evaluate_scripts(GOAL, ["1. Boil."], constraints=given, target=UNREACHABLE)
    with pytest.raises(TypeError, match="judges is a mapping from role to names, not str"):
        dramaturg.evaluate_scripts(GOAL, ["1. Boil."], judges=given, target=UNREACHABLE)
    with pytest.raises(ValueError, match=r"criteria\[0\].*pases"):
        dramaturg.evaluate_texts(GOAL, ["Hi."], [{"id": "polite", "pases": "x"}], target=UNREACHABLE)
    with pytest.raises(ValueError, match=r'criteria\[0\]: is "turn"; it must be one of CRITERION_UNIT_'):
        dramaturg.evaluate_texts(GOAL, ["Hi."], [{"id": "polite", "each": "turn"}], target=UNREACHABLE)
    with pytest.raises(ValueError, match=r"texts\[0\] has no field 'steps'"):
        dramaturg.evaluate_texts(GOAL, [{"steps": ["Hi."]}], {"polite": "x"}, target=UNREACHABLE)


def test_a_refusal_of_the_gateway_is_its_error(target: str) -> None:
    with pytest.raises(dramaturg.ServiceError) as refused:
        dramaturg.evaluate_scripts("", ["1. Boil."])
    assert [one.field for one in refused.value.violations] == ["task.goal"]
    assert "During handling" not in "".join(traceback.format_exception(refused.value))
    with pytest.raises(dramaturg.ServiceError) as unknown:
        dramaturg.evaluate_scripts(
            GOAL, ["1. Boil."], roles=["critic"], judges={"critic": ["ours", "nobody"]}
        )
    assert unknown.value.reason == error_reason_pb2.ERROR_REASON_JUDGE_UNKNOWN


def test_texts_are_judged_by_a_rubric(target: str, tmp_path: Path) -> None:
    result = dramaturg.evaluate_texts("Where is my order?", {"a": "Hello!"}, {"polite": "It greets."})
    assert result.candidates[0]["polite"].passed is True
    file = tmp_path / "rubric.toml"
    file.write_text('[[criteria]]\nid = "clear"\ndescription = "Easy."\nscale = {lowest = 1, highest = 5}\n')
    (verdict,) = dramaturg.evaluate_texts("Where?", ["Here."], file).candidates[0].verdicts
    assert (verdict.criterion, verdict.passed, verdict.score) == ("clear", None, 5.0)
    assert verdict.abstain_reason is None


def test_a_conversation_is_judged_like_a_text(target: str) -> None:
    messages = [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "Here."}]
    result = dramaturg.evaluate_texts("Help", [{"id": "a", "messages": messages}], {"polite": "It greets."})
    assert result.candidates[0]["polite"].passed is True
    assert [turn.role for turn in result.message.texts[0].conversation.turns] == ["user", "assistant"]
    for one, problem in (
        ({"messages": [{}]}, r"texts\[0\].messages\[0\].role: is missing"),
        ({"messages": messages, "text": "A."}, "must have text or messages, not both"),
    ):
        with pytest.raises(ValueError, match=problem):
            dramaturg.evaluate_texts("Help", [one], {"polite": "It greets."}, target=UNREACHABLE)


@pytest.mark.parametrize(
    ("preference", "preferred"),
    [
        (pairs_pb.PREFERENCE_FIRST, "first"),
        (pairs_pb.PREFERENCE_SECOND, "second"),
        (pairs_pb.PREFERENCE_TIE, "tie"),
        (pairs_pb.PREFERENCE_ABSTAIN, None),
    ],
)
async def test_a_pair_is_compared(preference: Any, preferred: str | None) -> None:
    finder = FakeFinder(GenerateRolesResponse(roles=[pairs_pb.Role(type="Driver")]))
    async with serve_fakes(everyone(preference), finder) as target:
        result = await dramaturg.evaluate_pair_async(SOURCE, GOOD, BAD, baselines=["llm"], target=target)
    assert [one.method for one in result.comparisons] == ["roles", "llm"]
    assert {(one.preferred, one.judge) for one in result.comparisons} == {(preferred, "fake")}
    assert {one.abstain_reason is None for one in result.comparisons} == {preferred is not None}
    assert len(result.to_pandas()) == 4


async def test_a_pair_is_compared_by_a_rubric() -> None:
    async with serve_fakes(everyone(pairs_pb.PREFERENCE_SECOND)) as target:
        result = await dramaturg.evaluate_pair_async(
            SOURCE, GOOD, BAD, criteria={"polite": "It greets."}, target=target
        )
    assert [(one.method, one.preferred) for one in result.comparisons] == [
        ("roles", "second"),
        ("criterion polite", "second"),
    ]
    assert len(result.to_pandas()) == 4


async def test_it_may_be_called_or_awaited_where_an_event_loop_runs(target: str) -> None:
    judged_by: dict[str, Any] = {"roles": ["critic"], "reference": ["Boil."], "target": target}
    called = dramaturg.evaluate_scripts(GOAL, ["1. Boil."], **judged_by)
    awaited = await dramaturg.evaluate_scripts_async(GOAL, ["1. Boil."], **judged_by)
    assert called.candidates == awaited.candidates
    assert awaited.candidates[0]["no_missing_steps"].passed is True


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"gol": GOAL, "scripts": ["Boil."]}, TypeError, "no parameter 'gol'; did you mean 'goal'?"),
        ({"goal": GOAL, "xyz": 1}, TypeError, "no parameter 'xyz'; its parameters are goal, scripts,"),
        ({"goal": GOAL, "scripts": {}}, ValueError, "scripts is empty"),
        ({"goal": GOAL, "scripts": []}, ValueError, "scripts is empty"),
    ],
)
def test_a_mistake_of_an_argument_names_it(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)):
        dramaturg.evaluate_scripts(**arguments)


def test_an_empty_rubric_is_named() -> None:
    with pytest.raises(ValueError, match="criteria is empty"):
        dramaturg.evaluate_texts(GOAL, ["Boil."], {})


def test_a_gateway_that_does_not_run_is_told_with_the_command_that_starts_one() -> None:
    with pytest.raises(dramaturg.ServiceError, match=r"no gateway answers at 127\.0\.0\.1:1; start one with"):
        dramaturg.evaluate_scripts(GOAL, ["1. Boil."], target=UNREACHABLE)


PROGRAM = """
import dramaturg

result = dramaturg.evaluate_scripts("Make tea", ["1. Boil.", ["Boil."]], judges={"critic": ["a", "b"]})
passed: bool | None = result.candidates[0].verdicts[0].passed
goal: str = result.message.task.goal
pair: str | None = dramaturg.evaluate_pair("Source.", "One.", "Two.").comparisons[0].preferred


async def main() -> tuple[dramaturg.CandidateVerdicts, ...]:
    return (await dramaturg.evaluate_texts_async("Ask", {"a": "Hi."}, {"polite": "It greets."})).candidates
"""
WRONG = """
import dramaturg

dramaturg.evaluate_scripts("Make tea", [1])
dramaturg.evaluate_scripts("Make tea", ["1. Boil."], constraint=["x"])
result: int = dramaturg.evaluate_scripts("Make tea", ["1. Boil."]).candidates[0].verdicts[0].passed
"""


@pytest.mark.slow
def test_callers_are_type_checked(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    for name, program in (("program", PROGRAM), ("wrong", WRONG)):
        (tmp_path / f"{name}.py").write_text(program)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy"),  # strict, as configured
            *(tmp_path / "program.py", tmp_path / "wrong.py"),
        ],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [line.partition(": error: ")[0].rpartition("/")[2] for line in errors] == [
        "wrong.py:4",
        "wrong.py:5",
        "wrong.py:6",
    ], done.stdout
