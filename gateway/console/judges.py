"""Pages of judges: by role, with their health; registered, checked, compared and removed from there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from aiohttp import web

from dramaturg.api.evaluation.v1 import judge_directory_service_pb2 as pb
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import Judge, JudgePanel, PanelRule
from dramaturg.api.evaluation.v1.run_service_pb2 import GetSummaryRequest, ListRunsRequest
from dramaturg.judge.roles import ROLES
from dramaturg.report.certificate import PropertyRow, certificate_outcome, property_rows
from dramaturg.results.drift import monitor_text
from dramaturg.service.auth.settings import JUDGES_WRITE, RUNS_READ
from dramaturg.service.errors import ServiceError, invalid
from dramaturg.tables.model import figure, percent
from gateway.console.visit import Form, Visit, problems_of
from gateway.evaluations.kinds import RUN_KINDS

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
_COMPARED_RUNS = 3
"""The newest runs with a judge of the role, in which the agreement of a shadow is looked for."""
_LISTED_RUNS = 100
_CHECK_SECONDS = 300.0
_CHECK_BURST = 20
"""The calls at once of the check of overload: the judge may serve others."""


@dataclass(frozen=True)
class JudgeView:
    """A judge as the pages show it."""

    judge: Judge
    address: str
    """The address of its page."""
    serving: bool
    health: str
    identity: str
    version: str
    latency: str
    model: str
    panel: str
    """The rule and the quorum of a panel."""
    panel_members: Sequence[str]
    shadow_of: str
    """The judge that it shadows. Empty: none."""
    certificate: str
    """The outcome of its certificate with the date. Empty: none."""
    properties: Sequence[PropertyRow]
    """The properties of its certificate."""
    drift: str
    """The state of its monitor. Empty: none."""

    @property
    def built_in(self) -> bool:
        """Whether it is configured, serves, and has nothing of its own to see."""
        one = self.judge
        return self.serving and not (
            one.HasField("registration")
            or one.owner
            or self.panel
            or self.shadow_of
            or one.certificate_changes
            or self.drift
        )


def judge_view(judge: Judge) -> JudgeView:
    identity, check = judge.identity, judge.model_check
    expected = f" (expected {judge.expected_version})" if judge.expected_version else ""
    latency = judge.latency.ToNanoseconds() / 1e6
    panel = judge.panel if judge.HasField("panel") else None
    return JudgeView(
        judge=judge,
        address=f"/console/judges/{quote(judge.role, safe='')}/{quote(judge.name, safe='')}",
        serving=judge.health == pb.JUDGE_HEALTH_SERVING,
        health=_health(judge),
        identity=identity.name,
        version=f"{identity.version}{expected}".strip(),
        latency=f"{latency:.0f} ms" if latency else "",
        model=f"{check.provider}/{check.model}" if judge.HasField("model_check") else judge.model_error,
        panel="" if panel is None else _rule(panel),
        shadow_of=_shadow(judge),
        certificate=_certificate(judge),
        properties=property_rows(judge.certificate),
        drift=monitor_text(judge.monitor) if judge.HasField("monitor") else "",
        panel_members=[] if panel is None else [_member(one) for one in panel.members],
    )


def _health(judge: Judge) -> str:
    if judge.health == pb.JUDGE_HEALTH_QUARANTINED and judge.monitor.HasField("drift"):
        return "in quarantine: not called"  # the error says until when
    return _HEALTH.get(judge.health, f"health {judge.health}")


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
    quorum = panel.quorum or len(panel.members) // 2 + 1
    return f"{'majority' if rule == 'unspecified' else rule}, quorum {quorum} of {len(panel.members)}"


def _member(member: pb.PanelMember) -> str:
    model = f" with {member.model}" if member.model else ""
    weight = f", weight {member.weight:g}" if member.weight not in {0, 1} else ""
    threshold = f", from a confidence of {member.threshold:g}" if member.threshold else ""
    return f"{member.judge}{model}{weight}{threshold}"


async def _listed(visit: Visit, *, model_checked: bool = False, role: str = "") -> Sequence[Judge]:
    request = pb.ListJudgesRequest(model_checked=model_checked, role=role)
    return (await visit.calls(visit.calls.judges.ListJudges, request)).judges


async def list_judges(visit: Visit) -> web.StreamResponse:
    checked = visit.request.query.get("models") == "1"
    views = [judge_view(judge) for judge in await _listed(visit, model_checked=checked)]
    by_role: dict[str, list[JudgeView]] = {}
    for one in views:
        by_role.setdefault(one.judge.role, []).append(one)
    # A role whose judges have nothing of their own to see is folded.
    shown = {role: mine for role, mine in by_role.items() if not all(one.built_in for one in mine)}
    return visit.page(
        "judges.html.j2",
        roles=list(shown.items()),
        built_in=[one for one in views if one.judge.role not in shown],
        checked=checked,
        may_register=visit.may(JUDGES_WRITE),
    )


async def show_judge(visit: Visit) -> web.StreamResponse:
    return await _page(visit)


async def _page(visit: Visit, *, status: int = 200, **values: Any) -> web.Response:
    """The page of a judge.

    Raises:
        ServiceError: INVALID_ARGUMENT: there is no such judge.
    """
    role, name = visit.parameters["role"], visit.parameters["judge"]
    request = pb.CheckJudgeRequest(role=role, judge=name)
    judge = (await visit.calls(visit.calls.judges.CheckJudge, request)).judge
    others = [one.name for one in await _listed(visit, role=role) if one.name != name]
    return visit.page(
        "judge.html.j2",
        status=status,
        one=judge_view(judge),
        others=others if _is_compared(role) else [],
        agreement=await _agreement(visit, judge) if judge.HasField("shadow") else None,
        may_register=visit.may(JUDGES_WRITE),
        **{"outcomes": None, "problems": [], **values},
    )


def _is_compared(role: str) -> bool:
    """Whether judges of a role are compared by a run with a shadow."""
    return any(
        "shadows" in kind.request_type.DESCRIPTOR.fields_by_name and role in {one.name for one in kind.roles}
        for kind in RUN_KINDS.values()
    )


async def _agreement(visit: Visit, judge: Judge) -> tuple[str, str, str] | None:
    """Agreement of a shadow with its judge in the newest run that has both; the run's id and its name."""
    if not (visit.serves("RunService") and visit.may(RUNS_READ)):
        return None
    listed = await visit.calls(visit.calls.runs.ListRuns, ListRunsRequest(page_size=_LISTED_RUNS))
    # A run does not name its shadows: their calls are no part of it.
    mine = [run for run in listed.runs if any(one.role == judge.role for one in run.judges)]
    for run in mine[:_COMPARED_RUNS]:
        try:
            found = await visit.calls(visit.calls.runs.GetSummary, GetSummaryRequest(run_id=run.id))
        except ServiceError:  # it has no samples yet
            continue
        for one in found.summary.judge_comparisons:
            if (one.role, one.second_judge) == (judge.role, judge.name) and one.figures:
                all_criteria = next((of for of in one.figures if not of.criterion), one.figures[0])
                kappa = all_criteria.cohen_kappa
                shown = (
                    f"{percent(all_criteria.agreement.value)} of {all_criteria.judged_count:,} verdicts agree"
                )
                if kappa.HasField("value"):
                    shown += f", kappa {figure(kappa.value)}"
                return shown, run.id, run.spec.display_name or run.id
    return None


async def check_judge(visit: Visit) -> web.StreamResponse:
    """Checks the server of a judge against its contract."""
    from dramaturg import conformance as kit

    role, name = visit.parameters["role"], visit.parameters["judge"]
    if not visit.may(JUDGES_WRITE):
        return await _page(visit, status=403, problems=["Your role may not check judges."])
    request = pb.CheckJudgeRequest(role=role, judge=name)
    judge = (await visit.calls(visit.calls.judges.CheckJudge, request)).judge
    if not judge.target:
        return await _page(visit, status=400, problems=["A panel has no server: check its members."])
    command = f"dramaturg judges check {role} {judge.target}"
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            outcomes = await kit.run(kit.checked_role(role), judge.target, burst=_CHECK_BURST)
    except (ValueError, kit.StartError) as error:
        return await _page(visit, status=400, problems=[str(error)], command=command)
    except TimeoutError:
        late = f"The check took more than {_CHECK_SECONDS:.0f} s."
        return await _page(visit, status=504, problems=[late], command=command)
    return await _page(visit, outcomes=outcomes)


async def ask_for_judge(visit: Visit) -> web.StreamResponse:
    return await _registration(visit, Form({}))


async def _registration(visit: Visit, form: Form, problems: Sequence[str] = ()) -> web.Response:
    judges = [one for one in await _listed(visit) if not one.HasField("panel")]
    return visit.page(
        "judge_new.html.j2",
        status=400 if problems else 200,
        form=form,
        roles=list(ROLES),
        judges=_by_role(judges),
        rules=[name.removeprefix("PANEL_RULE_").lower() for name in PanelRule.keys()[1:]],
        panel=visit.parameters.get("what", "server") == "panel",
        may_register=visit.may(JUDGES_WRITE),
        problems=problems,
    )


def _by_role(judges: Iterable[Judge]) -> Sequence[tuple[str, Sequence[str]]]:
    found: dict[str, list[str]] = {}
    for one in judges:
        found.setdefault(one.role, []).append(one.name)
    return list(found.items())


async def register(visit: Visit) -> web.StreamResponse:
    form = await visit.form()
    make = _panel if visit.parameters["what"] == "panel" else _server
    try:
        request = pb.RegisterJudgeRequest(judge=make(form))
        judge = (await visit.calls(visit.calls.judges.RegisterJudge, request)).judge
    except ServiceError as error:
        return await _registration(visit, form, problems_of(error))
    return visit.redirect(judge_view(judge).address)


def _server(form: Form) -> pb.JudgeRegistration:
    text = {name: value.strip() for name, value in form.items()}
    judge = pb.JudgeRegistration(
        role=text.get("role", ""),
        name=text.get("name", ""),
        target=text.get("target", ""),
        expected_version=text.get("expected_version", ""),
        owner=text.get("owner", ""),
    )
    if of := text.get("shadow_of", ""):
        judge.shadow.of = of
    for name in ("ca_file", "token_file"):
        if value := text.get(name, ""):
            setattr(judge.connection, name, value)
    if "tls" in form:
        judge.connection.tls = True
    return judge


def _panel(form: Form) -> pb.JudgeRegistration:
    members = [one.partition("=") for one in form.all("member")]
    roles = {role for role, _, _ in members}
    if len(roles) != 1:
        raise invalid("members", "are judges of one role, two at least")
    quorum = form.get("quorum", "").strip() or "0"
    if not quorum.isdecimal() or len(quorum) > 3:
        raise invalid("quorum", f"{quorum[:20]!r} is no whole number")
    name = f"PANEL_RULE_{form.get('rule', '').upper()}"
    rule = PanelRule.Value(name) if name in PanelRule.keys() else pb.PANEL_RULE_MAJORITY  # noqa: SIM118
    panel = JudgePanel(
        rule=rule, quorum=int(quorum), members=[pb.PanelMember(judge=one) for _, _, one in members]
    )
    return pb.JudgeRegistration(role=roles.pop(), name=form.get("name", "").strip(), panel=panel)


async def remove(visit: Visit) -> web.StreamResponse:
    request = pb.RemoveJudgeRequest(role=visit.parameters["role"], judge=visit.parameters["judge"])
    try:
        await visit.calls(visit.calls.judges.RemoveJudge, request)
    except ServiceError as error:
        return await _page(visit, status=409, problems=problems_of(error))
    return visit.redirect("/console/judges")


_JUDGE = r"judges/(?P<role>[A-Za-z0-9._-]{1,100})/(?P<judge>[A-Za-z0-9._-]{1,100})"

ROUTES = (
    ("GET", "judges", list_judges),
    ("GET", r"judges/new/(?P<what>server|panel)", ask_for_judge),
    ("POST", r"judges/new/(?P<what>server|panel)", register),
    ("GET", _JUDGE, show_judge),
    ("POST", f"{_JUDGE}/check", check_judge),
    ("POST", f"{_JUDGE}/remove", remove),
)
"""Method, path and handler of each page."""
