"""Judges in files, as a caller of the gateway sees them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.client import DramaturgClient
from dramaturg.service.errors import ServiceError
from dramaturg.service.settings import SettingsError
from dramaturg.testing import serve
from gateway.judges.files import REJECTED, JudgeFiles, combine
from gateway.settings import GatewaySettings, JudgeTables
from tests.support.gateway import (
    Fake,
    agents,
    all_pass,
    evaluate_result,
    gateway_client,
    scripts_request,
    until_read,
)
from tests.support.telemetry import Counts, counted

POLL = {"judges_poll_seconds": 0.05}


def entry(role: str, name: str, target: str, *, default: bool = False) -> str:
    """A table of a file."""
    lines = ["[[judges]]", f'role = "{role}"', f'name = "{name}"', f'target = "{target}"']
    return "\n".join([*lines, f"default = {str(default).lower()}", ""])


async def listed(client: DramaturgClient) -> dict[tuple[str, str], bool]:
    """The judges, and whether each is the default of its role."""
    return {(judge.role, judge.name): judge.default_for_role for judge in await client.list_judges()}


async def test_a_file_adds_a_judge_to_a_running_gateway_and_its_removal_takes_it_away(tmp_path: Path) -> None:
    asked = []

    async def note(request: Any) -> Any:
        asked.append(request)
        return all_pass("critic")

    async with (
        serve(Fake("critic", note).contract()) as other,
        gateway_client(*agents(), judges_dir=tmp_path, **POLL) as client,
    ):
        before = await listed(client)
        (tmp_path / "other.toml").write_text(entry("critic", "other", other.target))
        await until_read(lambda: listed(client), {**before, ("critic", "other"): False})
        selection = JudgeSelection(role="critic", judge="other")
        request = scripts_request(1, judges=[selection])
        result = await evaluate_result(client, request)
        assert len(asked) == 1
        assert result
        (tmp_path / "other.toml").unlink()
        await until_read(lambda: listed(client), before)
        with pytest.raises(ServiceError):
            await evaluate_result(client, request)


async def test_a_default_in_a_file_takes_the_requests_that_name_no_judge(tmp_path: Path) -> None:
    asked = []

    async def note(request: Any) -> Any:
        asked.append(request)
        return all_pass("critic")

    async with (
        serve(Fake("critic", note).contract()) as other,
        gateway_client(*agents(), judges_dir=tmp_path, **POLL) as client,
    ):
        (tmp_path / "other.toml").write_text(entry("critic", "other", other.target, default=True))
        await until_read(lambda: defaults(client), "other")
        await evaluate_result(client, scripts_request(1))
    assert len(asked) == 1


async def defaults(client: DramaturgClient) -> str:
    """The name of the default critic."""
    return next(
        name for (role, name), default in (await listed(client)).items() if role == "critic" and default
    )


async def test_an_unusable_file_changes_nothing_and_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "other.toml"
    file.write_text(entry("critic", "other", "127.0.0.1:1"))
    with counted() as counts:
        async with gateway_client(*agents(), judges_dir=tmp_path, **POLL) as client:
            usable = await listed(client)
            assert ("critic", "other") in usable
            file.write_text("[[judges]\n")
            await until_read(lambda: rejected(counts), 1)
            assert await listed(client) == usable
            # Other files still count.
            (tmp_path / "third.toml").write_text(entry("critic", "third", "127.0.0.1:1"))
            await until_read(lambda: listed(client), {**usable, ("critic", "third"): False})
            assert f"{file} is not used" in caplog.text
            file.write_text(entry("critic", "renamed", "127.0.0.1:1"))
            await until_read(lambda: rejected(counts), 0)
            assert ("critic", "renamed") in await listed(client)
            assert ("critic", "other") not in await listed(client)


async def rejected(counts: Counts) -> float:
    """The number of rejected files."""
    return counts.now().sum(REJECTED.name)


async def test_a_gateway_starts_beside_an_unusable_file(tmp_path: Path) -> None:
    (tmp_path / "poet.toml").write_text(entry("poet", "other", "127.0.0.1:1"))
    async with gateway_client(*agents(), judges_dir=tmp_path, **POLL) as client:
        assert ("critic", "fake") in await listed(client)


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        JudgeFiles(GatewaySettings(), tmp_path / "missing")


def tables(*judges: tuple[str, str, bool], role: str = "critic") -> JudgeTables:
    """Tables of judges, each with its name, address and whether it is the default."""
    return JudgeTables.model_validate(
        {
            "judges": [
                {"role": role, "name": name, "target": target, "default": default}
                for name, target, default in judges
            ]
        }
    )


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (tables(("other", "b:1", False)), [("llm", "a:1", True), ("other", "b:1", False)]),
        (tables(("other", "b:1", True)), [("llm", "a:1", False), ("other", "b:1", True)]),
        (tables(("llm", "b:1", False)), [("llm", "b:1", True)]),
    ],
    ids=["added", "new default", "replaced"],
)
def test_the_judges_of_a_file_are_combined_with_the_earlier_ones(
    file: JudgeTables, expected: list[tuple[str, str, bool]]
) -> None:
    combined = combine(tables(("llm", "a:1", False)), file)
    assert [(judge.name, judge.target, judge.default) for judge in combined.judges] == expected


def test_a_file_may_bring_the_role_of_its_judges() -> None:
    role = {"name": "style", "criteria": ["polite"]}
    judge = {"role": "style", "name": "own", "target": "style:50051"}
    file = JudgeTables.model_validate({"roles": [role], "judges": [judge]})
    assert [one.name for one in combine(JudgeTables(), file).roles] == ["style"]
    with pytest.raises(ValueError, match="unknown roles: style"):
        combine(JudgeTables(), file.model_copy(update={"roles": ()}))
