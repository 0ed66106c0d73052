"""What other tools recorded of a system, as rows of a table of texts.

Read are logs of Inspect, runs that LangSmith exports, traces and observations that Langfuse exports, and
spans of OpenTelemetry with the attributes of its semantic conventions for generative AI (OTLP as JSON).

A recording of parts of a run has no row of its own: it is within one that has content, or its messages begin
those of a later one of the same run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from dramaturg.formats.messages import MessagesError, is_message, read_messages

_SINGLE = ("input", "question", "query", "prompt", "task", "output", "answer", "response", "result", "text")
"""Members of inputs and outputs that are what was said, where there are no messages."""
_PARTS_OF_RUNS = frozenset(
    {"tool", "retriever", "embedding", "prompt", "parser", "event", "guardrail", "evaluator"}
)
"""Kinds of runs and observations that answer no user."""

_LANGFUSE_TAGS = ("name", "environment", "release", "version")


@dataclass(frozen=True)
class _Recording:
    """What a system was given, and what it answered."""

    id: str
    input: Any
    output: Any
    parent: str = ""
    run: str = ""
    row: Mapping[str, Any] = field(default_factory=dict)
    """Other columns."""

    @cached_property
    def messages(self) -> list[Any]:
        """The whole conversation."""
        answered = _said(self.output, "assistant")
        # An agent's output may be all that was said, from the question on.
        if any(_asks(one) for one in answered):
            return answered
        return [*_said(self.input, "user"), *answered]

    @cached_property
    def digests(self) -> Sequence[bytes]:
        """A digest of its first message, of its first two, and so on. Empty: they cannot be read."""
        try:
            turns = read_messages(self.messages).turns
        except MessagesError:
            return ()
        digest = hashlib.sha256()
        found = []
        for turn in turns:
            digest.update(turn.SerializeToString(deterministic=True))
            found.append(digest.digest())
        return found

    @property
    def is_plain(self) -> bool:
        """Whether it is a text, and what it answers is one."""
        return all(isinstance(_content(one), str | None) for one in (self.input, self.output))


class RecordingError(ValueError):
    """A file is no recording of one tool; the message says where and why."""


class _Tool(NamedTuple):
    name: str
    fits: Callable[[Mapping[str, Any]], bool]
    read: Callable[[Mapping[str, Any]], Iterator[_Recording]]


def recorded_by(row: Mapping[str, Any]) -> str:
    """What wrote a row, e.g. "a Langfuse export". Empty: none of these tools."""
    return next((tool.name for tool in _TOOLS if tool.fits(row)), "")


def recorded_rows(rows: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The rows of a table of texts that recordings are: with a column "messages", or with "task" and "text".

    Args:
        rows: The rows of a file, of which the first one is a recording.

    Raises:
        RecordingError: One of them is none.
    """
    tool = next(tool for tool in _TOOLS if tool.fits(rows[0]))
    found: list[_Recording] = []
    for number, row in enumerate(rows, start=1):
        if not tool.fits(row):
            raise RecordingError(f"row {number}: is not of {tool.name}, as the first one is")
        try:
            found.extend(tool.read(row))
        except (AttributeError, KeyError, TypeError, ValueError) as error:  # a row may have any shape
            raise RecordingError(f"row {number}: is damaged for {tool.name}: {error}") from error
    kept = list(_whole(found))
    is_plain = all(one.is_plain for one in kept)
    for one in kept:
        said: Mapping[str, Any] = {"messages": one.messages}
        if is_plain:
            said = {"task": _content(one.input) or "", "text": _content(one.output) or ""}
        yield {**one.row, "id": one.id, **said}


def _whole(found: Sequence[_Recording]) -> Iterator[_Recording]:
    """Those with content that are no part of another one."""
    named = {one.id: one for one in found if one.id}
    begun = {(one.run, digest) for one in found if one.run for digest in one.digests[:-1]}
    for one in found:
        above, seen = named.get(one.parent), {one.id}
        while above and not above.messages and above.id not in seen:
            seen.add(above.id)
            above = named.get(above.parent)
        is_begun = bool(one.digests) and (one.run, one.digests[-1]) in begun
        if one.messages and not is_begun and not (above and above.messages):
            yield one


def _content(value: Any) -> Any:
    """The messages or the text of an input or an output; what has neither is a text of JSON."""
    if isinstance(value, str):
        if value.lstrip()[:1] in ("[", "{", '"'):
            with suppress(ValueError, RecursionError):
                return _content(json.loads(value))
        return value
    if isinstance(value, list):
        if len(value) == 1 and isinstance(value[0], list):
            return _content(value[0])
        return value if value and all(map(is_message, value)) else _as_text(value)
    if not isinstance(value, dict):
        return None if value is None else _as_text(value)
    if is_message(value):
        return [value]
    for name in ("messages", "generations"):
        if isinstance(value.get(name), list) and value[name]:
            return _content(value[name])
    if isinstance(value.get("choices"), list) and value["choices"]:
        return _content(value["choices"][0])
    if value.get("message"):
        return _content(value["message"])
    single = [value[name] for name in _SINGLE if isinstance(value.get(name), str | list | dict)]
    return _content(single[0]) if len(single) == 1 else _as_text(value)


def _as_text(value: Any) -> str | None:
    return json.dumps(value, ensure_ascii=False) if value not in ([], {}) else None


def _said(value: Any, role: str) -> list[Any]:
    found = _content(value)
    return [{"role": role, "content": found}] if isinstance(found, str) else found or []


def _asks(message: Any) -> bool:
    return isinstance(message, dict) and (
        message.get("role") == "user"
        or message.get("type") == "human"
        or "HumanMessage" in str(message.get("id"))
    )


def _inspect(log: Mapping[str, Any]) -> Iterator[_Recording]:
    for sample in log["samples"]:
        output = sample.get("output") or {}
        targets = sample.get("target")
        targets = [targets] if isinstance(targets, str) else targets
        metadata = sample.get("metadata") or {}
        yield _Recording(
            id=str(sample.get("id", "")),
            input=None,
            output=_attached(sample.get("messages"), sample.get("attachments") or {}),
            row={
                **{f"metadata.{name}": value for name, value in metadata.items()},
                "model": output.get("model") or log["eval"].get("model") or "",
                "reference": "\n".join(targets) if isinstance(targets, list) else "",
                "task_name": log["eval"].get("task") or "",
            },
        )


def _attached(value: Any, attachments: Mapping[str, Any]) -> Any:
    """A value with its references to attachments, which are whole texts, replaced."""
    if isinstance(value, str):
        return attachments.get(value.removeprefix("attachment://"), value)
    if isinstance(value, list):
        return [_attached(one, attachments) for one in value]
    if isinstance(value, dict):
        return {name: _attached(one, attachments) for name, one in value.items()}
    return value


def _langsmith(run: Mapping[str, Any]) -> Iterator[_Recording]:
    if run["run_type"] in _PARTS_OF_RUNS:
        return
    metadata = (run.get("extra") or {}).get("metadata") or {}
    yield _Recording(
        id=str(run.get("id") or ""),
        parent=str(run.get("parent_run_id") or ""),
        run=str(run.get("trace_id") or ""),
        input=run["inputs"],
        output=run["outputs"],
        row={"model": str(metadata.get("ls_model_name") or ""), "name": run.get("name")},
    )


def _langfuse(one: Mapping[str, Any]) -> Iterator[_Recording]:
    nested = one.get("observations")
    if str(one.get("type") or "").casefold() in _PARTS_OF_RUNS:
        return
    trace = _first(one, "traceId", "trace_id")
    yield _Recording(
        id=str(one.get("id") or ""),
        parent=_first(one, "parentObservationId", "parent_observation_id") or trace,
        run=trace,
        input=one.get("input"),
        output=one.get("output"),
        row={
            "model": _first(one, "model", "providedModelName", "provided_model_name"),
            **{name: one[name] for name in _LANGFUSE_TAGS if isinstance(one.get(name), str)},
        },
    )
    for inner in nested if isinstance(nested, list) else ():
        if isinstance(inner, dict):
            yield from _langfuse({"traceId": one.get("id"), **inner})


def _first(row: Mapping[str, Any], *names: str) -> str:
    return next((str(row[name]) for name in names if row.get(name)), "")


def _spans(export: Mapping[str, Any]) -> Iterator[_Recording]:
    spans = (
        span
        for resource in export["resourceSpans"]
        for scope in resource.get("scopeSpans") or ()
        for span in scope.get("spans") or ()
    )
    for span in spans:
        found = {one.get("key"): _attribute(one.get("value")) for one in span.get("attributes") or ()}
        system = found.get("gen_ai.system_instructions")
        if isinstance(system, str):
            with suppress(ValueError, RecursionError):
                system = json.loads(system)
        asked = _said(found.get("gen_ai.input.messages"), "user")
        yield _Recording(
            id=span.get("spanId") or "",
            parent=span.get("parentSpanId") or "",
            run=span.get("traceId") or "",
            input=[{"role": "system", "content": system}, *asked] if system else asked,
            output=found.get("gen_ai.output.messages"),
            row={
                "model": found.get("gen_ai.response.model") or found.get("gen_ai.request.model") or "",
                "name": span.get("name"),
            },
        )


def _attribute(value: Any) -> Any:
    """A value of an attribute (opentelemetry.proto.common.v1.AnyValue as JSON)."""
    one: Any
    ((kind, one),) = value.items() if isinstance(value, dict) and len(value) == 1 else (("", None),)
    if kind == "arrayValue":
        return [_attribute(each) for each in one.get("values") or ()]
    if kind == "kvlistValue":
        return {each.get("key"): _attribute(each.get("value")) for each in one.get("values") or ()}
    return one


_TOOLS: Sequence[_Tool] = (
    _Tool(
        "a log of Inspect",
        lambda row: isinstance(row.get("samples"), list) and isinstance(row.get("eval"), dict),
        _inspect,
    ),
    _Tool("a LangSmith export", lambda row: {"run_type", "inputs", "outputs"} <= row.keys(), _langsmith),
    _Tool(
        "a Langfuse export",
        lambda row: (
            {"input", "output"} <= row.keys()
            and bool({"traceId", "trace_id", "sessionId", "observations"} & row.keys())
        ),
        _langfuse,
    ),
    _Tool("spans of OpenTelemetry", lambda row: isinstance(row.get("resourceSpans"), list), _spans),
)
