"""The form to evaluate one pasted script, pair of texts, text or conversation."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from dramaturg.api.common.v1.content_pb2 import Conversation, Document
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.script_pb2 import Candidate, Task
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import ListJudgesRequest
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.pairs_pb2 import ComparedText, EvaluatePairsRequest
from dramaturg.api.evaluation.v1.run_pb2 import SAMPLE_STATE_SUCCEEDED, RunSample
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.api.evaluation.v1.texts_pb2 import EvaluatedText, EvaluateTextsRequest
from dramaturg.formats.messages import MessagesError, read_messages
from dramaturg.report.views import view
from dramaturg.service.errors import ServiceError, invalid
from gateway.console.rubrics import OWN, criteria_fields, rubric_choices, rubric_of
from gateway.console.visit import Form, Visit, problems_of
from gateway.evaluations.kind import RunKind
from gateway.evaluations.kinds import RUN_KINDS

_ID = "pasted"
_TURN = re.compile(r"(user|assistant|system|tool):\s*", re.IGNORECASE)


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
    request: Callable[[Form], Any]
    example: Mapping[str, str]
    """What the fields have at first."""
    criteria: Sequence[Mapping[str, str]] = field(default_factory=tuple)
    """What the criteria have at first. Empty: the kind has no rubric."""


def _script(form: Form) -> EvaluateScriptsRequest:
    return EvaluateScriptsRequest(
        task=Task(goal=form["goal"], constraints=_lines(form["constraints"])),
        candidates=[Candidate(id=_ID, text=form["script"])],
    )


def _pair(form: Form) -> EvaluatePairsRequest:
    return EvaluatePairsRequest(
        source=form["source"],
        instruction=form["instruction"],
        first=ComparedText(text=form["first"]),
        second=ComparedText(text=form["second"]),
    )


def _text(form: Form) -> EvaluateTextsRequest:
    return EvaluateTextsRequest(
        task=Task(
            goal=form["goal"],
            context=[Document(text=form["context"])] if form["context"].strip() else (),
            instructions=form["instructions"],
        ),
        texts=[EvaluatedText(id=_ID, text=form["text"])],
        criteria=rubric_of(form),
    )


def _conversation(form: Form) -> EvaluateTextsRequest:
    return EvaluateTextsRequest(
        task=Task(goal=form["goal"]),
        texts=[EvaluatedText(id=_ID, conversation=_turns(form["conversation"]))],
        criteria=rubric_of(form),
    )


def _turns(text: str) -> Conversation:
    """A conversation whose turns begin with a role and a colon, or a list of messages as JSON.

    Raises:
        ServiceError: INVALID_ARGUMENT: it begins with none, or the list cannot be read.
    """
    if text.lstrip().startswith("["):
        try:
            return read_messages(text, "conversation")
        except MessagesError as error:
            place, _, problem = str(error).partition(": ")
            raise invalid(place, problem) from error
    messages: list[dict[str, str]] = []
    for line in text.strip().splitlines():
        if begin := _TURN.match(line):
            messages.append({"role": begin[1].lower(), "content": line[begin.end() :]})
        elif messages:
            messages[-1]["content"] += f"\n{line}"
        else:
            raise invalid("conversation", "has to begin with a role and a colon, for example user: Hello")
    return read_messages(messages)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


_ANSWER = {
    "id": "answers_the_question",
    "about": "The question has an answer: what is the case, or what will happen and when.",
}
_TONE = {
    "id": "tone",
    "about": "How the answer treats the customer.",
    "lowest": "1",
    "highest": "5",
    "anchors": "5: warm and respectful\n3: correct and cool\n1: rude, or it blames the customer",
}

KINDS: Mapping[str, FormKind] = {
    "rubric": FormKind(
        "Text with a rubric",
        (
            Field("goal", "Task", "What the text was asked for.", long=False),
            Field("text", "Text"),
            Field("context", "Context", "The document that the text rests on. Optional.", required=False),
            Field("instructions", "Instructions", "Those of its author. Optional.", required=False),
        ),
        RUN_KINDS["texts"],
        _text,
        {
            "goal": "My parcel should have come on Monday. Where is it?",
            "text": "I am sorry for the wait. The carrier lost the parcel on Sunday. A new one leaves today "
            "and arrives on Thursday; you need to do nothing.",
        },
        (_ANSWER, _TONE),
    ),
    "conversation": FormKind(
        "Conversation",
        (
            Field("goal", "Task", "What the user came for.", long=False),
            Field(
                "conversation",
                "Conversation",
                "A turn begins with user: or assistant: on a new line. With calls of tools or images: "
                "a list of messages as JSON.",
            ),
        ),
        RUN_KINDS["texts"],
        _conversation,
        {
            "goal": "Exchange a broken lamp",
            "conversation": "user: The lamp arrived with a broken shade. Can I get a new one?\n"
            "assistant: What a pity! Yes, within 30 days. Can you send a picture of the shade?\n"
            "user: Here it is. When does the new one come?\n"
            "assistant: It leaves today and arrives on Thursday.",
        },
        ({"id": "reaches_the_goal", "about": "At the end the request is carried out or answered."},),
    ),
    "pair": FormKind(
        "Pair of texts",
        (
            Field("source", "Source", "What both texts are written from, for example an article."),
            Field("instruction", "Instruction", "Optional.", required=False, long=False),
            Field("first", "First text"),
            Field("second", "Second text"),
        ),
        RUN_KINDS["pairs"],
        _pair,
        {
            "source": "The library stays open until ten from Monday on. The reading room closes at eight as "
            "before. Books can be returned at any hour at the new door in Hill Street.",
            "instruction": "Summarise the notice in one sentence.",
            "first": "From Monday the library is open until ten, the reading room until eight, and books can "
            "be returned at any hour.",
            "second": "The library has a new door.",
        },
    ),
    "script": FormKind(
        "Script",
        (
            Field("goal", "Goal", "For example: make tea without a kettle.", long=False),
            Field("constraints", "Constraints", "One a line. Optional.", required=False),
            Field("script", "Script", "The steps, one a line."),
        ),
        RUN_KINDS["scripts"],
        _script,
        {
            "goal": "Make tea",
            "constraints": "without a kettle",
            "script": "1. Fill a pot with water.\n2. Boil it on the stove.\n3. Pour it over the tea.\n"
            "4. Let it steep for four minutes.\n5. Take the leaves out.",
        },
    ),
}  # fmt: skip
"""The kinds of the form."""


async def show_form(visit: Visit) -> web.StreamResponse:
    return await _page(visit, None)


async def evaluate(visit: Visit) -> web.StreamResponse:
    kind, posted = KINDS[visit.parameters["kind"]], await visit.form()
    for one in kind.fields:
        posted.setdefault(one.name, "")
    sample = RunSample(state=SAMPLE_STATE_SUCCEEDED)
    method = getattr(visit.calls.evaluations, kind.kind.method)
    try:
        request = kind.request(posted)
        request.options.CopyFrom(JudgeOptions(model=posted.get("model", "").strip()))
        for pair in filter(None, posted.all("judge")):
            role, _, judge = pair.partition("=")
            request.judges.append(JudgeSelection(role=role, judge=judge))
        async with aclosing(visit.calls.stream(method, request)) as events:
            async for event in events:
                if event.WhichOneof("event") == "result":
                    getattr(sample, kind.kind.results.name).CopyFrom(event.result)
    except ServiceError as error:
        return await _page(visit, posted, problems=problems_of(error))
    return await _page(visit, posted, shown=view(sample))


async def _page(
    visit: Visit, posted: Form | None, *, problems: Sequence[str] = (), shown: Any = None
) -> web.Response:
    name = visit.parameters.get("kind", "rubric")
    kind = KINDS[name]
    form = Form(kind.example) if posted is None else posted
    listed = await visit.calls(visit.calls.judges.ListJudges, ListJudgesRequest())
    chosen = form.all("judge")
    roles = [
        (role.name, [(one.name, f"{role.name}={one.name}" in chosen) for one in mine])
        for role in kind.kind.roles
        if len(mine := [one for one in listed.judges if one.role == role.name]) > 1
    ]
    return visit.page(
        "evaluate.html.j2",
        status=400 if problems else 200,
        kinds=[(one, kind.title) for one, kind in KINDS.items()],
        name=name,
        kind=kind,
        form=form,
        criteria=criteria_fields(form, kind.criteria if posted is None else ()),
        rubrics=rubric_choices(),
        own=OWN,
        roles=roles,
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
