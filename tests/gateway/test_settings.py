from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gateway.settings import GatewaySettings


def entry(role: str = "critic", name: str = "a", **fields: Any) -> dict[str, Any]:
    return {"role": role, "name": name, "target": "localhost:1", **fields}


@pytest.mark.parametrize(
    ("judges", "message"),
    [
        ([entry("poet")], "unknown roles: poet; there are synthesize, critic"),
        ([entry(), entry()], "more than once: critic=a"),
        ([entry(default=True), entry(name="b", default=True)], "more than one default for a role: critic"),
        ([entry(colour="red")], "colour"),
        ([entry(target="")], "target"),
    ],
)
def test_judges_that_are_ambiguous_or_misspelt_are_refused(
    judges: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        GatewaySettings(judges=judges)  # type: ignore[arg-type]  # as a file has them


def test_judges_are_read_from_the_configuration_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "dramaturg.toml"
    file.write_text(
        '[[gateway.judges]]\nrole = "critic"\nname = "ours"\ntarget = "localhost:7001"\ndefault = true\n'
        '[[gateway.judges]]\nrole = "critic"\nname = "theirs"\ntarget = "localhost:7002"\n'
    )
    monkeypatch.setenv("DRAMATURG_CONFIG", str(file))
    shown = [(judge.name, judge.target, judge.default) for judge in GatewaySettings().judges]
    assert shown == [("ours", "localhost:7001", True), ("theirs", "localhost:7002", False)]
