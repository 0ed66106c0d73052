"""The page of judges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import web

from dramaturg.api.evaluation.v1 import judge_directory_service_pb2 as pb
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import Judge, JudgePanel, PanelRule
from dramaturg.report.certificate import certificate_outcome
from gateway.console.visit import Visit

_HEALTH = {
    pb.JUDGE_HEALTH_UNSPECIFIED: "unknown",
    pb.JUDGE_HEALTH_SERVING: "serving",
    pb.JUDGE_HEALTH_NOT_SERVING: "is not serving",
    pb.JUDGE_HEALTH_UNREACHABLE: "does not answer",
    pb.JUDGE_HEALTH_WRONG_CONTRACT: "does not implement the contract of the role",
    pb.JUDGE_HEALTH_REFUSED: "refuses the identity of the gateway",
    pb.JUDGE_HEALTH_WRONG_VERSION: "has another version than expected",
    pb.JUDGE_HEALTH_QUARANTINED: "in quarantine: not called until a check succeeds",
}


@dataclass(frozen=True)
class JudgeView:
    """A judge as the page shows it."""

    judge: Judge
    serving: bool
    health: str
    identity: str
    version: str
    latency: str
    model: str
    panel: str
    panel_members: Sequence[str]
    shadow_of: str
    """The judge that it shadows. Empty: none."""
    certificate: str
    """The outcome of its certificate with the date. Empty: none."""


def judge_view(judge: Judge) -> JudgeView:
    identity, check = judge.identity, judge.model_check
    expected = f" (expected {judge.expected_version})" if judge.expected_version else ""
    latency = judge.latency.ToNanoseconds() / 1e6
    panel = judge.panel if judge.HasField("panel") else None
    return JudgeView(
        judge=judge,
        serving=judge.health == pb.JUDGE_HEALTH_SERVING,
        health=_HEALTH.get(judge.health, f"health {judge.health}"),
        identity=identity.name,
        version=f"{identity.version}{expected}".strip(),
        latency=f"{latency:.0f} ms" if latency else "",
        model=f"{check.provider}/{check.model}" if judge.HasField("model_check") else judge.model_error,
        panel="" if panel is None else _rule(panel),
        shadow_of=_shadow(judge),
        certificate=_certificate(judge),
        panel_members=[] if panel is None else [_member(one) for one in panel.members],
    )


def _certificate(judge: Judge) -> str:
    if not judge.HasField("certificate"):
        return ""
    measured = judge.certificate.measure_time.ToDatetime()
    return f"{certificate_outcome(judge.certificate)} ({measured:%Y-%m-%d})"


def _shadow(judge: Judge) -> str:
    shadow = judge.shadow
    return f"{shadow.of} with {shadow.model}" if shadow.model else shadow.of


def _rule(panel: JudgePanel) -> str:
    rule = PanelRule.Name(panel.rule).removeprefix("PANEL_RULE_").replace("_", " ").lower()
    return "majority" if rule == "unspecified" else rule


def _member(member: pb.PanelMember) -> str:
    model = f" with {member.model}" if member.model else ""
    weight = f", weight {member.weight:g}" if member.weight not in {0, 1} else ""
    return f"{member.judge}{model}{weight}"


async def list_judges(visit: Visit) -> web.StreamResponse:
    checked = visit.request.query.get("models") == "1"
    request = pb.ListJudgesRequest(model_checked=checked)
    response = await visit.calls(visit.calls.judges.ListJudges, request)
    return visit.page(
        "judges.html.j2", judges=[judge_view(judge) for judge in response.judges], checked=checked
    )


ROUTES = (("GET", "judges", list_judges),)
"""Method, path and handler of each page."""
