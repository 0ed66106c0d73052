"""The page of a new run: a file, a rubric, judges and a budget, with the estimate before the start."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from dramaturg.api.evaluation.v1.estimate_pb2 import EstimateRunRequest
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import ListJudgesRequest
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.run_pb2 import DATASET_FORMAT_JSONL, RunSpec
from dramaturg.api.evaluation.v1.run_service_pb2 import CreateRunRequest
from dramaturg.formats.texts import PURPOSES
from dramaturg.results.quantities import duration, money
from dramaturg.service.errors import ServiceError, invalid
from gateway.console.rubrics import OWN, criteria_fields, rubric_choices, rubric_of
from gateway.console.uploads import MAX_BYTES, UploadedRows, read_upload
from gateway.console.visit import Form, Visit, problems_of
from gateway.evaluations.kinds import RUN_KINDS

_FORM_BYTES = MAX_BYTES + (1 << 20)
_SHOWN_PURPOSES = ("text", "task", "model", "reference", "context", "messages")


@dataclass(frozen=True)
class RoleChoice:
    """The judges of a role that a run may name."""

    role: str
    judges: Sequence[tuple[str, bool, bool, bool]]
    """Name, and whether it is the default, is chosen, and is chosen to be compared with."""


async def show(visit: Visit) -> web.StreamResponse:
    # The page of judges links to it with the judges to compare.
    query = visit.request.query
    chosen = [(name, one) for name in ("judge", "shadow") for one in query.getall(name, [])]
    return visit.page("new_run.html.j2", chosen=chosen, **_values(Form({})))


async def check(visit: Visit) -> web.StreamResponse:
    """What the file was taken for, the choices that follow from it, and the estimate."""
    form = await visit.form(_FORM_BYTES, upload=True)
    return visit.page("new_run_checked.html.j2", **{**_values(form), **await _checked(visit, form)})


async def start(visit: Visit) -> web.StreamResponse:
    form = await visit.form(_FORM_BYTES, upload=True)
    is_part = "X-Console-Part" in visit.request.headers
    try:
        rows = await _rows(visit, form)
        if rows.problem:
            raise invalid("file", rows.problem)
        request = CreateRunRequest(spec=_spec(form, rows))
        run = (await visit.calls(visit.calls.runs.CreateRun, request)).run
    except ServiceError as error:
        checked = await _checked(visit, form)
        values = {**_values(form), **checked, "problems": [*checked["problems"], *problems_of(error)]}
        values["problems"] = list(dict.fromkeys(values["problems"]))
        template = "new_run_checked.html.j2" if is_part else "new_run.html.j2"
        return visit.page(template, status=400, chosen=(), **values)
    address = f"/console/runs/{run.id}"
    # A script cannot read where a redirection leads.
    return web.Response(status=201, headers={"Location": address}) if is_part else visit.redirect(address)


def _values(form: Form) -> dict[str, Any]:
    return {
        "form": form,
        "rubrics": rubric_choices(),
        "criteria": criteria_fields(form),
        "rows": None,
        "problems": [],
        "most": MAX_BYTES >> 20,
        "own": OWN,
    }


async def _rows(visit: Visit, form: Form) -> UploadedRows:
    if form.file is None:
        raise invalid("file", "is required")
    given = {purpose: form.get(f"column.{purpose}", "") for purpose in PURPOSES}
    shadows = [
        (role, judge) for role, _, judge in (one.partition("=") for one in form.all("shadow")) if judge
    ]
    return await visit.in_thread(read_upload, *form.file, given, shadows)


async def _checked(visit: Visit, form: Form) -> dict[str, Any]:
    """The rows, the judges and the estimate; what is wrong with them under "problems"."""
    values: dict[str, Any] = {
        "rows": None,
        "problems": [],
        "purposes": [],
        "roles": [],
        "facts": [],
        "writes": False,
    }
    try:
        rows = await _rows(visit, form)
        values |= {"rows": rows, "purposes": _purposes(form, rows)}
        if rows.problem:
            values["problems"] = [] if rows.names else [rows.problem]
            return values
        values["writes"] = not list(RUN_KINDS[rows.kind].check_models(["a"]))
        judges = (await visit.calls(visit.calls.judges.ListJudges, ListJudgesRequest())).judges
        values["roles"] = list(_roles(judges, rows.kind, form))
        request = EstimateRunRequest(spec=_spec(form, rows))
        estimate = await visit.calls(visit.calls.evaluations.EstimateRun, request)
        values |= {"estimate": estimate, "facts": _facts(estimate)}
        values["problems"] = list(estimate.budget_exceeded)
    except ServiceError as error:
        values["problems"] = problems_of(error)
    return values


def _purposes(form: Form, rows: UploadedRows) -> list[tuple[str, str]]:
    """Each purpose of a column, and the column that it has."""
    known = rows.columns or {}
    if not rows.names:
        return []
    return [(one, form.get(f"column.{one}", "") or known.get(one, "")) for one in _SHOWN_PURPOSES]


def _roles(judges: Sequence[Any], kind: str, form: Form) -> Iterator[RoleChoice]:
    chosen, compared = set(form.all("judge")), set(form.all("shadow"))
    for role in RUN_KINDS[kind].roles:
        mine = [one for one in judges if one.role == role.name]
        if len(mine) > 1:
            yield RoleChoice(
                role.name,
                [
                    (one.name, one.default_for_role, pair in chosen, pair in compared)
                    for one in mine
                    for pair in (f"{role.name}={one.name}",)
                ],
            )


def _spec(form: Form, rows: UploadedRows) -> RunSpec:
    name = form.get("name", "").strip() or (form.file[0] if form.file else "")
    spec = RunSpec(display_name=name[:200])
    getattr(spec, rows.kind).SetInParent()
    spec.dataset.content, spec.dataset.format = rows.content, DATASET_FORMAT_JSONL
    roles = {role.name for role in RUN_KINDS[rows.kind].roles}
    for pair in form.all("judge"):
        role, _, judge = pair.partition("=")
        if role in roles:
            spec.judges.append(JudgeSelection(role=role, judge=judge))
    spec.options.model = form.get("model", "").strip()
    if rows.kind == "texts":
        spec.texts.criteria.extend(rubric_of(form))
        if not spec.texts.criteria and not rows.has_criteria:
            raise invalid("rubric", "choose a ready rubric, or write a criterion")
    else:
        spec.models.extend(line.strip() for line in form.get("models", "").splitlines() if line.strip())
    _set_budget(spec, form)
    return spec


def _set_budget(spec: RunSpec, form: Mapping[str, str]) -> None:
    if cost := form.get("max_cost_usd", "").strip():
        try:
            spec.budget.max_cost_usd = float(cost)
        except ValueError:
            raise invalid("most cost", f"{cost[:20]!r} is no amount") from None
    if tokens := form.get("max_tokens", "").strip():
        if not tokens.isdecimal() or len(tokens) > 15:
            raise invalid("most tokens", f"{tokens[:20]!r} is no whole number")
        spec.budget.max_token_count = int(tokens)


def _facts(estimate: Any) -> list[tuple[str, str]]:
    """The expected amounts with their names; those that are not known are left out."""

    def known(field: str, show: Callable[[Any], str] = "{:,}".format) -> str:
        return show(getattr(estimate, field)) if estimate.HasField(field) else ""

    seconds = duration(estimate.duration.ToNanoseconds() / 1e9) if estimate.HasField("duration") else ""
    facts = [
        ("samples", f"{estimate.sample_count:,}"),
        ("model calls", known("model_call_count")),
        ("tokens sent", known("prompt_token_count")),
        ("tokens received", known("completion_token_count")),
        ("cost", known("cost_usd", money) or "not known"),
        ("time", seconds),
    ]
    return [(name, value) for name, value in facts if value]


ROUTES = (
    ("GET", "runs/new", show),
    ("POST", "runs/new", start),
    ("POST", "runs/new/check", check),
)
"""Method, path and handler of each page."""
