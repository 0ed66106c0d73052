"""Pages of labelling: label sets, the queue of an annotator, agreement, exports."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from dramaturg.api.alignment.v1.agreement_pb2 import AgreementGroup
from dramaturg.api.alignment.v1.estimate_pb2 import Estimate
from dramaturg.api.evaluation.v1 import label_service_pb2 as pb
from dramaturg.api.evaluation.v1.run_service_pb2 import (
    GetRunRequest,
    ListResultsRequest,
    ListRunsRequest,
    ResultFilter,
)
from dramaturg.judge.conversations import image_url, unit_name
from dramaturg.results.run_text import kind_name
from dramaturg.service.errors import invalid
from gateway.console.visit import Visit
from gateway.runs.labels.drawn import CONVERSATION, unit_of
from gateway.runs.labels.kinds import labelled_kind
from gateway.runs.labels.sheets import sheets_of

_VERDICT_KEYS = {"PASS": "p", "FAIL": "f"}
_KEYS = "1234567890" + string.ascii_lowercase
_TASKS = {
    pb.LABEL_TASK_VERDICT: "verdicts",
    pb.LABEL_TASK_PREFERENCE: "preferences",
    pb.LABEL_TASK_RATING: "ratings",
    pb.LABEL_TASK_CHOICE: "choices of an option",
    pb.LABEL_TASK_REVIEW: "reviews of scenarios",
}
_DRAWS = {
    pb.LABEL_DRAW_UNIFORM: "uniform",
    pb.LABEL_DRAW_STRATIFIED: "stratified by the judge's value",
    pb.LABEL_DRAW_ACTIVE: "by the judge's uncertainty",
}
_SHEETS = {
    "labels": (pb.LABEL_SHEET_LABELS, "a row for each label", "dramaturg labels align labels labels.csv"),
    "scores": (
        pb.LABEL_SHEET_SCORES,
        "the mean labels beside the judge's values",
        "dramaturg labels align scores scores.csv",
    ),
    "estimates": (
        pb.LABEL_SHEET_ESTIMATES,
        "all judgements of the run with the labels",
        "dramaturg labels align estimate estimates.csv --cluster task",
    ),
    "review": (
        pb.LABEL_SHEET_REVIEW,
        "the scenarios with their review",
        "dramaturg research scenarios review review.csv --out decisions.jsonl",
    ),
}
"""The sheets by the name of their files: the sheet, its contents, and the command that reads it."""
_FIRST_RESULTS = 2000
"""The first judgements of a run, whose measures and models are offered."""
_FORMATS = {"csv": pb.LABEL_FORMAT_CSV, "jsonl": pb.LABEL_FORMAT_JSONL}


def can_be_labelled(kind: str) -> bool:
    """Whether runs of a kind have items to label."""
    return labelled_kind(kind) is not None


def choice_keys(choices: Sequence[str]) -> Sequence[tuple[str, str]]:
    """The key of each choice: p and f for verdicts, else digits from 1, then letters."""
    if set(choices) == set(_VERDICT_KEYS):
        return [(_VERDICT_KEYS[choice], choice) for choice in choices]
    return list(zip(_KEYS, choices, strict=False))


async def list_sets(visit: Visit) -> web.StreamResponse:
    request = pb.ListLabelSetsRequest(page_token=visit.request.query.get("page", ""))
    response = await visit.calls(visit.calls.labels.ListLabelSets, request)
    token = response.next_page_token
    return visit.page(
        "label_sets.html.j2",
        sets=response.label_sets,
        names=await _run_names(visit, sorted({one.run_id for one in response.label_sets})),
        tasks=_TASKS,
        next=urlencode({"page": token}) if token else "",
    )


async def _run_names(visit: Visit, ids: Sequence[str]) -> Mapping[str, str]:
    """The names of runs by their ids; of a run without a name, or one that is deleted, its id."""
    names = {run_id: run_id for run_id in ids}
    if ids:
        request = ListRunsRequest(run_ids=ids, page_size=len(ids))
        listed = await visit.calls(visit.calls.runs.ListRuns, request)
        names |= {run.id: run.spec.display_name or run.id for run in listed.runs}
    return names


async def ask_for_set(visit: Visit) -> web.StreamResponse:
    request = GetRunRequest(run_id=visit.request.query.get("run", ""))
    run = (await visit.calls(visit.calls.runs.GetRun, request)).run
    labelled = labelled_kind(kind_name(run))
    tasks = [(pb.LabelTask.Name(one), _TASKS[one]) for one in (labelled.readers if labelled else ())]
    listed = ListResultsRequest(run_id=run.id, page_size=_FIRST_RESULTS, numbers_only=True)
    results = (await visit.calls(visit.calls.runs.ListResults, listed)).results
    draws = [(pb.LabelDraw.Name(one), name) for one, name in _DRAWS.items()]
    return visit.page(
        "label_new.html.j2",
        run=run,
        tasks=tasks,
        draws=draws,
        measures=sorted({one.measure for one in results}),
        models=sorted({one.model for one in results if one.model}),
    )


async def create_set(visit: Visit) -> web.StreamResponse:
    form = await visit.form()
    request = pb.CreateLabelSetRequest(
        run_id=form.get("run", ""),
        task=_task(form.get("task", "")),
        sample_size=_number(form, "sample_size"),
        draw=_draw(form.get("draw", "")),
        seed=_number(form, "seed"),
        display_name=form.get("display_name", ""),
        filter=ResultFilter(measures=form.all("measures"), models=form.all("models")),
    )
    response = await visit.calls(visit.calls.labels.CreateLabelSet, request)
    return visit.redirect(f"/console/labels/{response.label_set.id}")


async def show_set(visit: Visit) -> web.StreamResponse:
    values = await _set(visit)
    task = values["set"].task
    # Choices are of scenarios, or of decisions, which have no review.
    has = {one for one in sheets_of(task) if one != pb.LABEL_SHEET_REVIEW or task == pb.LABEL_TASK_REVIEW}
    listed = [(name, about, command) for name, (sheet, about, command) in _SHEETS.items() if sheet in has]
    run_id = values["set"].run_id
    run_name = (await _run_names(visit, [run_id]))[run_id]
    return visit.page("label_set.html.j2", sheets=listed, formats=list(_FORMATS), run_name=run_name, **values)


async def show_set_part(visit: Visit) -> web.StreamResponse:
    return visit.page("label_set_part.html.j2", **await _set(visit))


async def _set(visit: Visit) -> dict[str, Any]:
    request = pb.GetLabelSetRequest(label_set_id=visit.parameters["set"])
    found = (await visit.calls(visit.calls.labels.GetLabelSet, request)).label_set
    return {
        "set": found,
        "task": _TASKS.get(found.task, ""),
        "draw": _DRAWS[found.draw or pb.LABEL_DRAW_UNIFORM],
        "annotator": visit.caller.principal,
        "agreement": [_agreement(group) for group in found.agreement],
    }


def _agreement(group: AgreementGroup) -> dict[str, Any]:
    return {
        "name": group.group or "all items",
        "items": group.item_count,
        "observed": _figure(group.observed_agreement),
        "alpha": _figure(group.krippendorff_alpha),
        "pairs": [
            (f"{one.first_annotator} and {one.second_annotator}", _figure(one.cohen_kappa))
            for one in group.pairs
        ],
    }


def _figure(estimate: Estimate) -> str:
    return f"{estimate.value:.2f}" if estimate.HasField("value") else "–"


async def show_item(visit: Visit) -> web.StreamResponse:
    """The item at a position, or the next one that the annotator has not labelled."""
    query, set_id = visit.request.query, visit.parameters["set"]
    annotator = query.get("annotator", "").strip()
    if not annotator:
        raise invalid("annotator", "is required")
    if "at" in query:
        items = await _items(visit, annotator, first=_number(query, "at"), unlabelled=False)
    else:
        after = _number(query, "after")
        items = await _items(visit, annotator, first=after, unlabelled=True)
        items = items or await _items(visit, annotator, first=0, unlabelled=True)
    item = items[0] if items else None
    address = f"/console/labels/{set_id}/queue?{urlencode({'annotator': annotator})}"
    return visit.page(
        "label_item.html.j2",
        annotator=annotator,
        item=item,
        choices=choice_keys(item.choices) if item is not None else (),
        texts=[_text(one, item) for one in item.texts] if item is not None else (),
        address=address,
        **await _set_of_queue(visit),
    )


def _text(text: pb.LabelText, item: pb.LabelItem) -> dict[str, Any]:
    """A text with its steps or turns, their images, and which of them is judged."""
    images = [(one.step_index, image_url(one.data)) for one in text.images]
    unit = unit_of(item) if text.title == CONVERSATION else None
    steps = [
        {
            "text": step,
            "images": [address for at, address in images if at == index],
            "unit": unit_name(unit) if unit is not None and unit.turn_index == index else "",
        }
        for index, step in enumerate(text.steps)
    ]
    return {"title": text.title, "text": text.text, "steps": steps}


async def _set_of_queue(visit: Visit) -> dict[str, Any]:
    values = await _set(visit)
    del values["annotator"]
    return values


async def write_label(visit: Visit) -> web.StreamResponse:
    form, set_id = await visit.form(), visit.parameters["set"]
    annotator, position = form.get("annotator", ""), _number(form, "position")
    request = pb.WriteLabelRequest(
        label_set_id=set_id,
        annotator=annotator,
        position=position,
        label=form.get("label", ""),
        note=form.get("note", ""),
    )
    await visit.calls(visit.calls.labels.WriteLabel, request)
    query = urlencode({"annotator": annotator, "after": position + 1})
    return visit.redirect(f"/console/labels/{set_id}/queue?{query}")


async def _items(visit: Visit, annotator: str, *, first: int, unlabelled: bool) -> Sequence[pb.LabelItem]:
    request = pb.ListLabelItemsRequest(
        label_set_id=visit.parameters["set"],
        annotator=annotator,
        unlabelled_only=unlabelled,
        first_position=first,
        page_size=1,
    )
    return (await visit.calls(visit.calls.labels.ListLabelItems, request)).items


async def export(visit: Visit) -> web.StreamResponse:
    name = visit.parameters["name"]
    sheet, _, form = name.partition(".")
    request = pb.ExportLabelsRequest(
        label_set_id=visit.parameters["set"], sheet=_SHEETS[sheet][0], format=_FORMATS[form]
    )
    async with aclosing(visit.calls.stream(visit.calls.labels.ExportLabels, request)) as chunks:
        pieces = [piece.chunk async for piece in chunks]
    return web.Response(
        body=b"".join(pieces),
        content_type="text/csv" if name.endswith(".csv") else "application/jsonl",
        charset="utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


async def delete_set(visit: Visit) -> web.StreamResponse:
    request = pb.DeleteLabelSetRequest(label_set_id=visit.parameters["set"])
    await visit.calls(visit.calls.labels.DeleteLabelSet, request)
    return visit.redirect("/console/labels")


def _number(values: Mapping[str, str], name: str) -> int:
    text = values.get(name, "").strip() or "0"
    if not text.isdecimal() or len(text) > 10 or int(text) > 1_000_000_000:
        raise invalid(name, f"is {text[:20]!r}; it must be a whole number up to 1,000,000,000")
    return int(text)


def _task(name: str) -> pb.LabelTask.ValueType:
    known = pb.LabelTask.DESCRIPTOR.values_by_name.get(name)
    return pb.LABEL_TASK_UNSPECIFIED if known is None else pb.LabelTask.ValueType(known.number)


def _draw(name: str) -> pb.LabelDraw.ValueType:
    known = pb.LabelDraw.DESCRIPTOR.values_by_name.get(name)
    return pb.LABEL_DRAW_UNSPECIFIED if known is None else pb.LabelDraw.ValueType(known.number)


_SET = r"labels/(?P<set>[0-9a-f-]{36})"

ROUTES = (
    ("GET", "labels", list_sets),
    ("POST", "labels", create_set),
    ("GET", "labels/new", ask_for_set),
    ("GET", _SET, show_set),
    ("GET", f"{_SET}/part", show_set_part),
    ("GET", f"{_SET}/queue", show_item),
    ("POST", f"{_SET}/queue", write_label),
    ("GET", f"{_SET}/(?P<name>({'|'.join(_SHEETS)})\\.({'|'.join(_FORMATS)}))", export),
    ("POST", f"{_SET}/delete", delete_set),
)
"""Method, path and handler of each page."""
