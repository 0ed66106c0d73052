from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from dramaturg.api.generation.v1 import generation_service_pb2
from dramaturg.judge.prompts import PromptError, PromptLibrary
from dramaturg.service.settings import SettingsError

PROMPT = """For people.

# system

Judge {{goal}}.

# user

Goal: {{ goal }}, {"json": 1}
{{criteria}}

# criterion executable

It can be done.
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "judge.md").write_text(PROMPT, encoding="utf-8")
    return folder


def load(folder: Path, overrides: Path | None = None, **options: object) -> object:
    placeholders = options.get("placeholders", ["goal", "criteria"])
    assert isinstance(placeholders, list)
    return PromptLibrary(folder, overrides).load("judge", placeholders=placeholders, criteria=["executable"])


def test_renders_messages_system_first(folder: Path) -> None:
    prompt = PromptLibrary(folder).load("judge", placeholders=["goal", "criteria"], criteria=["executable"])
    messages = prompt.render({"goal": "Tea", "criteria": prompt.part(["executable"])})
    assert [(message.role, message.text) for message in messages] == [
        (generation_service_pb2.MESSAGE_ROLE_SYSTEM, "Judge Tea."),
        (
            generation_service_pb2.MESSAGE_ROLE_USER,
            'Goal: Tea, {"json": 1}\nexecutable\nIt can be done.',
        ),
    ]


def test_inserted_text_is_never_substituted_again(folder: Path) -> None:
    prompt = PromptLibrary(folder).load("judge", placeholders=["goal", "criteria"], criteria=["executable"])
    messages = prompt.render({"goal": "{{criteria}} \\1 \\g<0>", "criteria": "{{goal}}"})
    assert messages[0].text == "Judge {{criteria}} \\1 \\g<0>."
    assert messages[1].text.endswith("\n{{goal}}")


def test_is_named_by_the_hash_of_the_file(folder: Path) -> None:
    prompt = PromptLibrary(folder).load("judge", placeholders=["goal", "criteria"], criteria=["executable"])
    assert prompt.reference.name == "judge"
    assert prompt.reference.sha256 == hashlib.sha256(PROMPT.encode()).hexdigest()


def test_a_deployment_replaces_file_by_file(folder: Path, tmp_path: Path) -> None:
    (folder / "other.md").write_text("# user\nOther.", encoding="utf-8")
    mounted = tmp_path / "mounted"
    (mounted / "..data").mkdir(parents=True)
    (mounted / "other.md").write_text("# user\nAnother.", encoding="utf-8")
    library = PromptLibrary(folder, mounted)
    assert library.load("other", placeholders=[]).messages["user"] == "Another."
    assert library.load("judge", placeholders=["goal", "criteria"], criteria=["executable"]).name == "judge"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (PROMPT.replace("{{criteria}}", ""), "placeholder 'criteria' is missing"),
        (PROMPT.replace("{{criteria}}", "{{criteria}} {{colour}}"), "placeholder 'colour' is unknown"),
        (PROMPT.replace("{{goal}}", "{{goal}} {{Goal}}"), "begins no placeholder"),
        (PROMPT.replace("It can", "{{goal}} can"), "begins no placeholder"),
        (PROMPT.replace("criterion executable", "criterion other"), "criterion 'executable' is missing"),
        (PROMPT + "\n# criterion other\nX.", "criterion 'other' is unknown"),
        (PROMPT.replace("# user", "# User"), "there is no '# user' section"),
        (PROMPT + "\n# user\nagain", "'# user' stands twice"),
        (PROMPT.replace("It can be done.", ""), "'# criterion executable' is empty"),
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
        PromptError, match=r"juge\.md: there is no such prompt to replace; there are judge\.md"
    ):
        PromptLibrary(folder, mounted)


def test_a_folder_that_does_not_exist_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="is not a folder"):
        PromptLibrary(folder, tmp_path / "absent")
