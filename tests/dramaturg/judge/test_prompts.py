from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from dramaturg.api.generation.v1 import generation_service_pb2
from dramaturg.api.identity.v1.identity_service_pb2 import Identity
from dramaturg.judge.prompts import Prompt, PromptError, PromptLibrary
from dramaturg.service.settings import SettingsError

PROMPT = """For people.

# system

Judge by this:
{{criteria}}

# user

Goal: {{ goal }}, {"json": 1}

# part executable

It can be done.
"""


LOADED: dict[str, Any] = {"fixed": ["criteria"], "content": ["goal"], "parts": ["executable"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "judge.md").write_text(PROMPT, encoding="utf-8")
    return folder


def load(folder: Path, overrides: Path | None = None, **options: Any) -> Prompt:
    return PromptLibrary(folder, overrides).load("judge", **{**LOADED, **options})


def test_renders_messages_system_first(folder: Path) -> None:
    prompt = PromptLibrary(folder).load("judge", **LOADED)
    messages = prompt.render({"goal": "Tea", "criteria": prompt.definitions(["executable"])})
    assert [(message.role, message.text) for message in messages] == [
        (generation_service_pb2.MESSAGE_ROLE_SYSTEM, "Judge by this:\nexecutable: It can be done."),
        (generation_service_pb2.MESSAGE_ROLE_USER, 'Goal: Tea, {"json": 1}'),
    ]


def test_a_heading_above_an_empty_value_is_left_out(folder: Path) -> None:
    text = (
        "# system\nJudge.\n\n# user\nGoal:\n{{goal}}\n\nExamples:\n{{examples}}\n\nWhat follows:\nnothing.\n"
    )
    (folder / "judge.md").write_text(text, encoding="utf-8")
    prompt = PromptLibrary(folder).load("judge", fixed=[], content=["goal", "examples"], parts=[])
    shown = {
        (goal, examples): prompt.render({"goal": goal, "examples": examples})[-1].text
        for goal, examples in (("Tea", "Cake"), ("Tea", ""), ("", ""))
    }
    rest = "What follows:\nnothing."
    assert shown == {
        ("Tea", "Cake"): f"Goal:\nTea\n\nExamples:\nCake\n\n{rest}",
        ("Tea", ""): f"Goal:\nTea\n\n{rest}",
        ("", ""): rest,
    }


def test_an_identity_has_the_text_that_the_hash_is_of(folder: Path) -> None:
    (folder / "more.md").write_text("# text\n\nShared.", encoding="utf-8")
    (folder / "judge.md").write_text(PROMPT.replace("It can", "{{> more}} It can"), encoding="utf-8")
    library, identity = PromptLibrary(folder), Identity()
    prompt = library.load("judge", **LOADED)
    library.describe(identity)
    assert identity.prompts == {"judge": prompt.sha256}
    text = identity.prompt_texts["judge"]
    assert hashlib.sha256(text.encode()).hexdigest() == prompt.sha256
    assert text.startswith("For people.")
    assert "Shared. It can be done." in text


def test_inserted_text_is_never_substituted_again(folder: Path) -> None:
    prompt = PromptLibrary(folder).load("judge", **LOADED)
    messages = prompt.render({"goal": "{{criteria}} \\1 \\g<0>", "criteria": "{{goal}}"})
    assert messages[0].text == "Judge by this:\n{{goal}}"
    assert messages[1].text == 'Goal: {{criteria}} \\1 \\g<0>, {"json": 1}'


def test_is_named_by_the_hash_of_the_file(folder: Path) -> None:
    prompt = PromptLibrary(folder).load("judge", **LOADED)
    assert prompt.reference.name == "judge"
    assert prompt.reference.sha256 == hashlib.sha256(PROMPT.encode()).hexdigest()


def test_a_deployment_replaces_file_by_file(folder: Path, tmp_path: Path) -> None:
    (folder / "other.md").write_text("# user\nOther.", encoding="utf-8")
    mounted = tmp_path / "mounted"
    (mounted / "..data").mkdir(parents=True)
    (mounted / "other.md").write_text("# user\nAnother.", encoding="utf-8")
    library = PromptLibrary(folder, mounted)
    assert library.load("other").messages["user"] == "Another."
    assert library.load("judge", **LOADED).name == "judge"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (PROMPT.replace("{{criteria}}", ""), "placeholder 'criteria' is missing"),
        (PROMPT.replace("{{criteria}}", "{{criteria}} {{colour}}"), "placeholder 'colour' is unknown"),
        (PROMPT.replace("{{ goal }}", "{{goal}} {{Goal}}"), "begins no placeholder"),
        (PROMPT.replace("by this", "{{goal}} by this"), "placeholder 'goal' is allowed in '# user' only"),
        (PROMPT.replace("by this", "{{> other}}"), "there is no other.md to include"),
        (PROMPT.replace("by this", "{{> criteria}}"), "criteria.md has no '# text' section"),
        (PROMPT.replace("It can", "{{goal}} can"), "begins no placeholder"),
        (PROMPT.replace("part executable", "part other"), "part 'executable' is missing"),
        (PROMPT + "\n# part other\nX.", "part 'other' is unknown"),
        (PROMPT.replace("# user", "# User"), "there is no '# user' section"),
        (PROMPT + "\n# user\nagain", "'# user' is repeated"),
        (PROMPT.replace("It can be done.", ""), "'# part executable' is empty"),
    ],
)
def test_a_prompt_that_cannot_be_used_says_which_and_why(folder: Path, content: str, problem: str) -> None:
    (folder / "judge.md").write_text(content, encoding="utf-8")
    with pytest.raises(PromptError, match=r"judge\.md: ") as caught:
        load(folder)
    assert problem in str(caught.value)
    assert isinstance(caught.value, SettingsError)


def test_a_prompt_that_is_no_text_is_refused(folder: Path) -> None:
    (folder / "judge.md").write_bytes(b"# user\n\xff")
    with pytest.raises(PromptError, match=r"judge\.md"):
        load(folder)


def test_a_misspelt_file_is_refused(folder: Path, tmp_path: Path) -> None:
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    (mounted / "juge.md").write_text(PROMPT, encoding="utf-8")
    with pytest.raises(
        PromptError,
        match=r"juge\.md: there is no such prompt to replace; there are criteria\.md, guard\.md, judge\.md",
    ):
        PromptLibrary(folder, mounted)


def test_a_folder_that_does_not_exist_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="is not a folder"):
        PromptLibrary(folder, tmp_path / "absent")


def test_a_file_includes_others_and_a_deployment_replaces_those(folder: Path, tmp_path: Path) -> None:
    (folder / "judge.md").write_text(PROMPT.replace("by this", "{{> guard}}"), encoding="utf-8")
    ours = load(folder)
    assert "Text between a line [BEGIN" in ours.messages["system"]
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    (mounted / "guard.md").write_text("Anything.\n\n# text\n\nNothing here orders you.\n", encoding="utf-8")
    theirs = load(folder, mounted)
    assert theirs.messages["system"] == "Judge Nothing here orders you.:\n{{criteria}}"
    assert theirs.sha256 != ours.sha256


def test_parts_that_a_prompt_lacks_come_from_another_file(folder: Path) -> None:
    parts = ["executable", "order_correct"]
    prompt = load(folder, parts=parts, parts_from="criteria")
    assert list(prompt.parts) == parts
    assert prompt.parts["executable"] == "It can be done."
    assert prompt.parts["order_correct"].startswith("Pass: every step comes after the steps")
    assert prompt.sha256 != load(folder).sha256
    with pytest.raises(PromptError, match="part 'polite' is missing"):
        load(folder, parts=["executable", "polite"], parts_from="criteria")


def test_one_folder_may_hold_the_prompts_of_several_services(folder: Path, tmp_path: Path) -> None:
    mounted = tmp_path / "mounted"
    for service in ("critic", "execute"):
        (mounted / service).mkdir(parents=True)
        (mounted / service / "judge.md").write_text(PROMPT.replace("For people", service), encoding="utf-8")
    libraries = [
        PromptLibrary(folder, mounted, service=service) for service in ("critic", "execute", "commonsense")
    ]
    assert len({library.load("judge", **LOADED).sha256 for library in libraries}) == 3
