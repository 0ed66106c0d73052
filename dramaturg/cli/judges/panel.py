"""``dramaturg judges panel``: panels that a running gateway keeps."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import (
    PANEL_RULE_CASCADE,
    Judge,
    PanelMember,
    PanelRule,
)
from dramaturg.cli.judges.registration import (
    Description,
    Name,
    describe_registration,
    named,
    show_answer,
)
from dramaturg.cli.option_groups import takes_groups
from dramaturg.cli.options import AsJson
from dramaturg.cli.platform import fail
from dramaturg.cli.runs.connection import DEFAULT_TARGET, RunTarget
from dramaturg.cli.terminal import tell_next
from dramaturg.client import DramaturgClient
from dramaturg.formats.panel_weights import PanelWeightsError, read_weights, weight_of

app = typer.Typer(no_args_is_help=True)


class Rule(StrEnum):
    """How the votes of a panel become one verdict."""

    MAJORITY = "majority"
    UNANIMOUS = "unanimous"
    ANY_FAIL = "any-fail"
    MEAN = "mean"
    WEIGHTED = "weighted"
    CASCADE = "cascade"


@dataclass(frozen=True)
class Panel(Description):
    """The options of a panel."""

    member: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A judge of the role, as NAME[@MODEL][=NUMBER]; repeatable. The number is its weight; in a "
            "cascade the confidence from which on its verdict stands, for all but the last.",
        ),
    ] = None
    rule: Annotated[Rule | None, typer.Option(help="How votes become one verdict. Default: majority.")] = None
    quorum: Annotated[
        int | None, typer.Option(min=1, help="The least number of votes. Default: more than half.")
    ] = None
    weights: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", exists=True, dir_okay=False, help='A file of "judges weights" with all members.'
        ),
    ] = None


@app.command("add")
@takes_groups
def add(judge: Name, panel: Panel, target: RunTarget = DEFAULT_TARGET, as_json: AsJson = False) -> None:
    """Registers a panel of judges for your tenant at a running gateway, and shows its health.

    For example:

        dramaturg judges panel add critic=trio --member llm --member theirs --member offline --quorum 2

        dramaturg judges panel add critic=duo --member llm=2 --member theirs@gpt-4o --rule weighted

        dramaturg judges panel add critic=steps --member small=0.9 --member large --rule cascade
    """
    made = named(judge)
    describe_registration(made, panel)
    if not panel.member:
        fail("name the members with --member")
    made.panel.rule = _rule(panel.rule or (Rule.WEIGHTED if panel.weights else Rule.MAJORITY))
    made.panel.members.extend(_members(panel, made.panel.rule))
    made.panel.quorum = panel.quorum or 0
    show_answer(target, lambda client: client.register_judge(made), as_json=as_json)
    tell_next("eval", "FILE", "--judge", judge, "--target", target)


@app.command("update")
@takes_groups
def update(judge: Name, panel: Panel, target: RunTarget = DEFAULT_TARGET, as_json: AsJson = False) -> None:
    """Changes a panel that was registered. What no option names stays as it is; members change together.

    For example:

        dramaturg judges panel update critic=trio --rule unanimous --quorum 3
    """
    made = named(judge)
    paths = describe_registration(made, panel)
    if panel.weights and not panel.member:
        fail("--weights needs all members: name them with --member")
    if not paths and not panel.member and not panel.rule and not panel.quorum:
        fail("nothing to change: name an option")

    async def work(client: DramaturgClient) -> Judge:
        # The contract has no panel without members: what stays as it is is sent again.
        found = await client.check_judge(made.role, made.name)
        made.panel.CopyFrom(found.registration.panel)
        if panel.rule:
            made.panel.rule = _rule(panel.rule)
        if panel.member:
            del made.panel.members[:]
            made.panel.members.extend(_members(panel, made.panel.rule))
        if panel.quorum:
            made.panel.quorum = panel.quorum
        return await client.update_judge(made, [*paths, "panel"])

    show_answer(target, work, as_json=as_json)
    tell_next("eval", "FILE", "--judge", judge, "--target", target)


def _rule(rule: Rule) -> PanelRule.ValueType:
    return PanelRule.Value(f"PANEL_RULE_{rule.upper().replace('-', '_')}")


def _members(panel: Panel, rule: PanelRule.ValueType) -> list[PanelMember]:
    number = "threshold" if rule == PANEL_RULE_CASCADE else "weight"
    members = [_member(text, number) for text in panel.member or ()]
    if panel.weights is None:
        return members
    if any(one.weight for one in members):
        fail("--weights and weights of members exclude each other")
    try:
        weights = read_weights(panel.weights)
    except PanelWeightsError as error:
        fail(str(error))
    for one in members:
        weight = weight_of(weights, one.judge, one.model)
        if weight is None:
            fail(f"{panel.weights} has no weight of {one.judge}")
        one.weight = weight
    return members


def _member(text: str, number: str) -> PanelMember:
    name, equals, written = text.partition("=")
    judge, _, model = name.partition("@")
    try:
        value = float(written) if equals else 0.0
    except ValueError:
        value = -1.0
    if not judge or (equals and not value > 0):
        fail(f"--member {text!r} is not of the form NAME[@MODEL][={number.upper()}]")
    made = PanelMember(judge=judge, model=model)
    setattr(made, number, value)
    return made
