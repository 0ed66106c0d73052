from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperCommand

from dramaturg.api.common.v1.script_pb2 import Script
from dramaturg.api.evaluation.v1 import scripts_pb2 as pb
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.cli.judge_selection import Overrides, model_files


def request(**fields: Any) -> EvaluateScriptsRequest:
    judges = [JudgeSelection(role="critic", judge="theirs"), JudgeSelection(role="execute", judge="strict")]
    return EvaluateScriptsRequest(judges=judges, **fields)


def applied(*, judges: list[str] = [], models: list[str] = []) -> set[tuple[str, str, str]]:  # noqa: B006
    changed = request()
    Overrides.parse(judges, models).apply(changed)
    return {(judge.role, judge.judge, judge.model) for judge in changed.judges}


def test_what_is_not_set_stays() -> None:
    changed = request()
    Overrides.parse([], []).apply(changed)
    assert changed == request()


def test_judges_replace_those_of_their_role_and_several_are_a_panel() -> None:
    assert applied(judges=["critic=a", "critic=b"]) == {
        ("critic", "a", ""),
        ("critic", "b", ""),
        ("execute", "strict", ""),
    }


def test_a_roles_model_is_set_for_all_its_judges_or_for_its_default() -> None:
    assert applied(models=["critic=m", "commonsense=org/n=1"]) == {
        ("critic", "theirs", "m"),
        ("execute", "strict", ""),
        ("commonsense", "", "org/n=1"),
    }


def test_a_model_without_a_role_is_everyones() -> None:
    changed = request()
    Overrides.parse([], ["general"]).apply(changed)
    assert changed.options.model == "general"
    assert list(changed.judges) == list(request().judges)


def test_the_mechanism_and_the_source_of_the_gold_answer_are_set() -> None:
    changed = request(gold_answer_source=pb.GOLD_ANSWER_SOURCE_GIVEN, gold_answer=Script())
    made = Overrides(mechanism=pb.MECHANISM_SINGLE_JUDGE, gold_answer=pb.GOLD_ANSWER_SOURCE_DIRECT)
    made.apply(changed)
    assert changed.mechanism == pb.MECHANISM_SINGLE_JUDGE
    assert changed.gold_answer_source == pb.GOLD_ANSWER_SOURCE_DIRECT
    assert not changed.HasField("gold_answer")


@pytest.mark.parametrize(
    ("judges", "models"),
    [
        (["critic"], []),
        (["critic="], []),
        (["=a"], []),
        ([], ["critic="]),
        ([], ["=m"]),
        ([], ["a", "b"]),
        ([], [""]),
    ],
)
def test_what_is_malformed_is_refused(judges: list[str], models: list[str]) -> None:
    with pytest.raises(ValueError, match=r"^--judge(-model)? "):
        Overrides.parse(judges, models)


def test_a_model_file_is_a_model_of_the_services_that_the_command_starts(tmp_path: Path) -> None:
    path = tmp_path / "Small-1.gguf"
    path.write_bytes(b"GGUF")
    context = typer.Context(TyperCommand("eval"))
    with context:
        assert model_files(context, ["gpt", str(path), f"critic={path}"]) == [
            "gpt",
            "small1/Small-1",
            "critic=small1/Small-1",
        ]
        assert os.environ["DRAMATURG_GENERATION_PROVIDERS__SMALL1__PATH"] == str(path)
    assert "DRAMATURG_GENERATION_PROVIDERS__SMALL1__PATH" not in os.environ
    with pytest.raises(typer.BadParameter, match="there is no file"):
        model_files(context, ["critic=nowhere.gguf"])
    context.params["target"] = "127.0.0.1:1"
    with pytest.raises(typer.BadParameter, match="--target"):
        model_files(context, [str(path)])
