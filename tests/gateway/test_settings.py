"""Roles that the gateway's configuration adds, used from outside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from dramaturg.api.common.v1.verdict_pb2 import Assessment
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.judge.batches import JudgeItem
from dramaturg.judge.contracts import judge_contract
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.judge.protocols import ANY_CRITERION
from dramaturg.judge.verdicts import failed, passed
from dramaturg.service.errors import ServiceError
from dramaturg.testing import serve
from gateway.settings import GatewaySettings
from tests.support.gateway import GOLD_STEPS, Fake, agents, evaluate, gateway_client, scripts_request


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


STYLE = {"name": "style", "criteria": ["polite", {"id": "plain_words", "definition": "No jargon."}]}


class Stylist:
    name = "stylist"
    version = "1.0.0"
    description = "Finds everything polite and nothing plain."
    criteria: Sequence[str] = ("polite",)
    capabilities: Sequence[str] = (ANY_CRITERION,)

    def __init__(self) -> None:
        self.items: list[JudgeItem] = []

    async def judge(self, item: JudgeItem) -> Assessment:
        self.items.append(item)
        return Assessment(verdicts=[passed("polite"), failed("plain_words")])


@pytest.mark.parametrize("compares", [False, True])
async def test_a_role_of_a_teams_own_stands_beside_the_others(compares: bool) -> None:
    stylist = Stylist()
    async with serve(judge_contract(stylist)) as server:
        fakes = agents(Fake("style", target=server.target, name="ours"))
        async with gateway_client(*fakes, roles=[{**STYLE, "compares": compares}]) as client:
            without = await evaluate(client, scripts_request(2))
            request = scripts_request(2, judges=[JudgeSelection(role="style", judge="ours")])
            events = await evaluate(client, request)
            listed = await client.list_judges("style")
    assert not any(one.role == "style" for one in without[0].accepted.judges)
    assert [one.role for one in events[0].accepted.judges][-1] == "style"
    for candidate in events[-1].result.candidates:
        assert [one.criterion for one in candidate.verdicts] == [*ABSEVAL, "plain_words", "polite"]
        assert [one.role for one in candidate.assessments] == ["critic", "execute", "commonsense", "style"]
        own = candidate.assessments[-1].assessment
        assert [one.criterion for one in own.verdicts] == ["polite", "plain_words"]
        assert own.provenance.registered_name == "ours"
    assert [item.definitions for item in stylist.items] == [{"plain_words": "No jargon."}] * 2
    reference = tuple(step.text for step in stylist.items[0].reference.steps)
    assert reference == (GOLD_STEPS if compares else ())
    assert [(one.role, one.name, one.error) for one in listed] == [("style", "ours", "")]


async def test_a_criterion_of_a_configured_role_is_no_other_judges_own() -> None:
    critic = Fake("critic", criteria=["no_missing_steps", "polite", "brevity"])
    async with gateway_client(*agents(critic), roles=[STYLE]) as client:
        events = await evaluate(client, scripts_request(1))
    assert [one.criterion for one in events[-1].result.candidates[0].verdicts] == [*ABSEVAL, "brevity"]


async def test_a_role_that_is_not_configured_is_refused_by_name() -> None:
    request = scripts_request(1, judges=[JudgeSelection(role="rhythm")])
    async with gateway_client(*agents(), roles=[STYLE]) as client:
        with pytest.raises(ServiceError) as caught:
            await evaluate(client, request)
        with pytest.raises(ServiceError) as unbound:
            await evaluate(client, scripts_request(1, judges=[JudgeSelection(role="style")]))
    (violation,) = caught.value.violations
    assert violation.field == "judges[0].role"
    assert violation.description.endswith("style")
    assert unbound.value.metadata == {"role": "style"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"roles": [STYLE, STYLE]}, "'style' is the name of another role"),
        ({"roles": [{**STYLE, "name": "critic"}]}, "'critic' is the name of another built-in role"),
        ({"roles": [{**STYLE, "name": "My Role"}]}, "String should match pattern"),
        ({"roles": [{"name": "style", "criteria": []}]}, "at least 1 item"),
        ({"roles": [{"name": "style", "criteria": ["polite", "polite"]}]}, "more than once: polite"),
        ({"roles": [{"name": "style", "criteria": ["Not Snake"]}]}, "String should match pattern"),
        ({"judges": [{"role": "style", "name": "a", "target": "x:1"}]}, "unknown roles: style"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        GatewaySettings(**settings)
