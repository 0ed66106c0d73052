"""The form to evaluate one pasted script, pair of texts, or text with a rubric."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from dramaturg.api.common.v1.content_pb2 import Document
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.script_pb2 import Candidate, Task
from dramaturg.api.evaluation.v1.pairs_pb2 import ComparedText, EvaluatePairsRequest
from dramaturg.api.evaluation.v1.run_pb2 import SAMPLE_STATE_SUCCEEDED, RunSample
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.api.evaluation.v1.texts_pb2 import EvaluatedText, EvaluateTextsRequest, RubricCriterion
from dramaturg.report.views.sample import view
from dramaturg.service.errors import ServiceError
from gateway.console.visit import Visit
from gateway.evaluations.kind import RunKind
from gateway.evaluations.kinds import RUN_KINDS

_ID = "pasted"


@dataclass(frozen=True)
class Field:
    """A field of a form."""

    name: str
    label: str
    hint: str = ""
    required: bool = True
    long: bool = True


@dataclass(frozen=True)
class FormKind:
    """A kind of evaluation."""

    title: str
    fields: Sequence[Field]
    kind: RunKind
    request: Callable[[Mapping[str, str]], Any]


def _script(form: Mapping[str, str]) -> EvaluateScriptsRequest:
    return EvaluateScriptsRequest(
        task=Task(goal=form["goal"], constraints=_lines(form["constraints"])),
        candidates=[Candidate(id=_ID, text=form["script"])],
        options=_options(form),
    )


def _pair(form: Mapping[str, str]) -> EvaluatePairsRequest:
    return EvaluatePairsRequest(
        source=form["source"],
        instruction=form["instruction"],
        first=ComparedText(text=form["first"]),
        second=ComparedText(text=form["second"]),
        options=_options(form),
    )


def _rubric(form: Mapping[str, str]) -> EvaluateTextsRequest:
    rules = [line.partition(":") for line in _lines(form["criteria"])]
    return EvaluateTextsRequest(
        task=Task(
            goal=form["goal"],
            context=[Document(text=form["context"])] if form["context"].strip() else (),
            instructions=form["instructions"],
        ),
        texts=[EvaluatedText(id=_ID, text=form["text"])],
        criteria=[RubricCriterion(id=name.strip(), passes=passes.strip()) for name, _, passes in rules],
        options=_options(form),
    )


def _options(form: Mapping[str, str]) -> JudgeOptions:
    return JudgeOptions(model=form["model"].strip())


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


_MODEL = Field("model", "Model of the judges", "Empty: the default.", required=False, long=False)

KINDS: Mapping[str, FormKind] = {
    "script": FormKind(
        "Script",
        (
            Field("goal", "Goal", "For example: make tea without a kettle.", long=False),
            Field("constraints", "Constraints", "One a line. Optional.", required=False),
            Field("script", "Script", "The steps, one a line."),
            _MODEL,
        ),
        RUN_KINDS["scripts"],
        _script,
    ),
    "pair": FormKind(
        "Pair of texts",
        (
            Field("source", "Source", "What both texts are written from, for example an article."),
            Field("instruction", "Instruction", "Optional.", required=False, long=False),
            Field("first", "First text"),
            Field("second", "Second text"),
            _MODEL,
        ),
        RUN_KINDS["pairs"],
        _pair,
    ),
    "rubric": FormKind(
        "Text with a rubric",
        (
            Field("goal", "Task", "What the text was asked for.", long=False),
            Field("text", "Text"),
            Field("context", "Context", "The document that the text rests on. Optional.", required=False),
            Field("instructions", "Instructions", "Those of its author. Optional.", required=False),
            Field("criteria", "Criteria", "One a line: an id, a colon, and which texts pass, for example "
                  "polite: It greets the customer."),
            _MODEL,
        ),
        RUN_KINDS["texts"],
        _rubric,
    ),
}  # fmt: skip
"""The kinds of the form."""


async def show_form(visit: Visit) -> web.StreamResponse:
    return _page(visit, {})


async def evaluate(visit: Visit) -> web.StreamResponse:
    kind, posted = KINDS[visit.parameters["kind"]], await visit.form()
    form = {field.name: posted.get(field.name, "") for field in kind.fields}
    sample = RunSample(state=SAMPLE_STATE_SUCCEEDED)
    method = getattr(visit.calls.evaluations, kind.kind.method)
    try:
        async with aclosing(visit.calls.stream(method, kind.request(form))) as events:
            async for event in events:
                if event.WhichOneof("event") == "result":
                    getattr(sample, kind.kind.results.name).CopyFrom(event.result)
    except ServiceError as error:
        problems = [f"{field}: {text}" for field, text in error.violations] or [error.message]
        return _page(visit, form, problems=problems)
    return _page(visit, form, shown=view(sample))


def _page(
    visit: Visit, form: Mapping[str, str], *, problems: Sequence[str] = (), shown: Any = None
) -> web.Response:
    name = visit.parameters.get("kind", "script")
    return visit.page(
        "evaluate.html.j2",
        status=400 if problems else 200,
        kinds=[(one, kind.title) for one, kind in KINDS.items()],
        name=name,
        kind=KINDS[name],
        form=form,
        problems=problems,
        shown=shown,
    )


_KIND = rf"evaluate/(?P<kind>{'|'.join(KINDS)})"

ROUTES = (
    ("GET", "evaluate", show_form),
    ("GET", _KIND, show_form),
    ("POST", _KIND, evaluate),
)
"""Method, path and handler of each page."""
