"""Tables of texts, one a row, as rows of an evaluation of texts or of pairs.

A column has the texts; others may have the task, the model, a reference, an id (of the task) and a topic. All
other columns are tags.

A conversation is a list of messages (``dramaturg.formats.messages``). What other tools recorded is a table,
too (``dramaturg.formats.recordings``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations, islice
from typing import Any, NamedTuple

from dramaturg.api.common.v1.content_pb2 import Conversation, Document
from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.evaluation.v1.pairs_pb2 import ComparedText, EvaluatePairsRequest, RolePlan
from dramaturg.api.evaluation.v1.texts_pb2 import EvaluatedText, EvaluateTextsRequest, RubricCriterion
from dramaturg.datasets.source import DatasetError, Format
from dramaturg.datasets.tables import table_rows
from dramaturg.formats.messages import MessagesError, read_messages
from dramaturg.formats.recordings import RecordingError, recorded_by, recorded_rows
from dramaturg.judge.rules import criterion_role
from dramaturg.results.quantities import counted
from dramaturg.service.validation import violations

NO_TASK = "No task is given: the text is judged by itself."
"""The task of texts without one."""
_TAG_LENGTH = 500
_GOAL_LENGTH = 10_000
_NAMES: Mapping[str, Sequence[str]] = {
    "text": ("text", "answer", "response", "output"),
    "task": ("task", "prompt", "question", "input"),
    "model": ("model",),
    "reference": ("reference", "expected"),
    "id": ("id",),
    "topic": ("topic",),
    "context": ("context", "contexts", "documents"),
    "instructions": ("instructions", "system_prompt"),
    "messages": ("messages", "conversation"),
}
"""The usual names of columns; the first is taken. The command line and docs/reference/texts.md list them."""
PURPOSES = tuple(_NAMES)
"""What a column of a table may be."""


class TableError(ValueError):
    """A file is no such table; the message says why."""


class Skipped(NamedTuple):
    """An invalid row."""

    row: int
    """The row, from 1, without the header."""
    reason: str
    """The reason."""


@dataclass(frozen=True)
class Columns:
    """The columns of a table; empty where there is none."""

    text: str
    """The texts."""
    task: str = ""
    """What the texts were written for."""
    model: str = ""
    """Their authors."""
    reference: str = ""
    """A good answer to the task."""
    id: str = ""
    """The id of the task."""
    topic: str = ""
    """The topic of the task."""
    context: str = ""
    """The documents that a text rests on: a text, a list of texts, or a list of objects."""
    instructions: str = ""
    """The instructions of the system that wrote the texts of the task."""
    messages: str = ""
    """Conversations, as lists of messages (``read_messages``), in place of texts."""
    tags: Sequence[str] = ()
    """Those of the tags."""
    left_out: Sequence[str] = ()
    """Those that are not used, because a value is too long for a tag."""

    @property
    def named(self) -> Mapping[str, str]:
        """The column of each purpose that has one."""
        return {name: column for name in _NAMES if (column := getattr(self, name))}


@dataclass
class Conversion:
    """The result of a conversion."""

    columns: Columns
    """The columns that were taken."""
    requests: list[EvaluateTextsRequest] = field(default_factory=list)
    """One request a task, in the order of their first rows. They have no criteria."""
    skipped: list[Skipped] = field(default_factory=list)
    """The invalid rows."""
    names: Sequence[str] = ()
    """All columns of the table. Empty for what a tool recorded."""
    recorded: str = ""
    """What recorded the rows, e.g. "a Langfuse export". Empty: they are a table."""

    def describe(self) -> str:
        """What a file was taken for: the number of texts and tasks, and the columns of a table."""
        count = sum(len(request.texts) for request in self.requests)
        columns = self.columns
        what = counted(count, "text" if columns.text else "conversation")
        tasks = counted(len(self.requests), "task")
        if self.recorded:
            return f"{self.recorded} with {what} for {tasks}"
        named = columns.named.items()
        used = ", ".join(name if name == column else f"{name}={column}" for name, column in named)
        told = f"a table with {what} for {tasks}; columns: {used}"
        if not columns.task:
            told = f"a table with {what} without tasks; columns: {used}"
        if columns.tags:
            told += f"; tags: {', '.join(columns.tags)}"
        if columns.left_out:
            told += f"; left out, too long for a tag: {', '.join(columns.left_out)}"
        return told


def first_cells(source: str, form: Format | None = None) -> Mapping[str, Any]:
    """The first row of a table. Empty: the file is none, or the row has other parts than cells.

    Args:
        source: A path or an address; "-" is standard input, which can be read again afterwards.
        form: How it is written. None: as ``table_rows`` tells.

    Raises:
        TableError: The file is no table.
        OSError: The file cannot be read.
    """
    return _cells(_first_row(source, form))


def _cells(first: Mapping[str, Any]) -> Mapping[str, Any]:
    nested = any(
        isinstance(value, dict | list)
        for name, value in first.items()
        if name is not None and name not in (*_NAMES["context"], *_NAMES["messages"])
    )
    return {} if nested else {name: value for name, value in first.items() if name is not None}


def has_texts(source: str, form: Format | None = None) -> bool:
    """Whether a tool recorded the rows of a file, or a column of texts has its usual name.

    Args:
        source: As that of ``first_cells``, as is ``form``.
        form: How it is written.

    Raises:
        TableError: The file is no table.
        OSError: The file cannot be read.
    """
    first = _first_row(source, form)
    if recorded_by(first):
        return True
    row = _cells(first)
    # A row that ends before the column has None.
    return any(isinstance(row.get(name, 0), str | None) for name in _NAMES["text"]) or any(
        _is_conversation(row.get(name)) for name in _NAMES["messages"]
    )


def _is_conversation(cell: Any) -> bool:
    """Whether a cell has a list, or a list of messages as JSON, as tables without nested cells have it."""
    if not isinstance(cell, str):
        return isinstance(cell, list)
    with suppress(MessagesError):
        read_messages(cell)
        return True
    return False


def _first_row(source: str, form: Format | None) -> Mapping[str, Any]:
    try:
        first = next(islice(table_rows(source, form), 1), None)
    except DatasetError as error:
        raise TableError(str(error)) from error
    if first is None:
        raise TableError("there are no rows")
    return first


def read_texts(source: str, form: Format | None = None, given: Mapping[str, str] | None = None) -> Conversion:
    """Reads all rows of a file with a text or a conversation a row, or of what a tool recorded.

    Args:
        source: A path or an address; "-" is standard input.
        form: How it is written. None: as ``table_rows`` tells.
        given: The columns by purpose, as ``find_columns`` takes them. With one the file is a table.

    Raises:
        TableError: The file is no table, has no rows or no column of texts, or a column does not exist.
        OSError: The file cannot be read.
    """
    rows = read_table(source, form)
    named = {purpose: name for purpose, name in (given or {}).items() if name}
    recorded = "" if named else recorded_by(rows[0])
    if recorded:
        try:
            rows = list(recorded_rows(rows))
        except RecordingError as error:
            raise TableError(str(error)) from error
        if not rows:
            raise TableError(f"is {recorded} in which nothing is said: export inputs and outputs, too")
    conversion = convert(rows, find_columns(rows, named))
    conversion.recorded = recorded
    conversion.names = () if recorded else list(dict.fromkeys(name for row in rows for name in row if name))
    return conversion


def read_table(source: str, form: Format | None = None) -> Sequence[Mapping[str, Any]]:
    """The rows of a file that ``table_rows`` reads.

    Raises:
        TableError: The file is no table, or has no rows.
        OSError: The file cannot be read.
    """
    try:
        rows = list(table_rows(source, form))
    except DatasetError as error:
        raise TableError(str(error)) from error
    if not rows:
        raise TableError("there are no rows")
    return rows


def find_columns(rows: Sequence[Mapping[str, Any]], given: Mapping[str, str] | None = None) -> Columns:
    """The columns of a table: those given, else those with a usual name.

    Args:
        rows: All rows.
        given: The columns by purpose ("text", "task", "model", "reference"). Empty or absent: by their names.

    Raises:
        TableError: A column does not exist, or there is none of texts.
    """
    names = list(dict.fromkeys(name for row in rows for name in row if name is not None))
    listed = f"the columns are {', '.join(filter(None, names))}"
    found = {}
    for purpose in _NAMES:
        if wanted := (given or {}).get(purpose, ""):
            if wanted not in names:
                raise TableError(f"has no column {wanted}: {listed}")
            found[purpose] = wanted
    for purpose, usual in _NAMES.items():
        if purpose not in found:
            free = (name for name in usual if name in names and name not in found.values())
            found[purpose] = next(free, "")
    if found["messages"] and not (given or {}).get("text"):
        found["text"] = ""
    elif not found["text"]:
        raise TableError(f"has no column of texts: name it with --text; {listed}")
    others = [name for name in names if name not in found.values()]
    long = {name for name in others if any(len(_text(row.get(name))) > _TAG_LENGTH for row in rows)}
    return Columns(**found, tags=[name for name in others if name not in long], left_out=sorted(long))


def convert(rows: Sequence[Mapping[str, Any]], columns: Columns | None = None) -> Conversion:
    """Makes one request of the rows that share id and task. Without a column of tasks each row is one.

    A text's id is its model, numbered if a task has several texts of one model. Topic, reference and tags are
    those of the task's first row.

    Args:
        rows: The rows.
        columns: Their columns. None: those with a usual name (``find_columns``).
    """
    columns = columns or find_columns(rows)
    conversion = Conversion(columns)
    found: dict[tuple[str, str], EvaluateTextsRequest] = {}
    for number, row in enumerate(rows, start=1):
        try:
            evaluated = _evaluated(row, columns)
        except (TableError, MessagesError) as error:
            conversion.skipped.append(Skipped(number, str(error)))
            continue
        goal = _cell(row, columns.task).strip() or _first_question(evaluated.conversation)
        key = (_cell(row, columns.id) or ("" if columns.task else f"row {number}"), goal)
        request = found.get(key) or _request(row, columns, key)
        name = evaluated.model or "text"
        same = sum(one.model == evaluated.model for one in request.texts)
        evaluated.id = f"{name} ({same + 1})" if same else name
        request.texts.append(evaluated)
        broken = [one for one in violations(request) if one.field != "criteria"]
        if broken:
            del request.texts[-1]
            conversion.skipped.append(Skipped(number, f"{broken[0].field}: {broken[0].description}"))
        elif key not in found:
            found[key] = request
            conversion.requests.append(request)
    for request in conversion.requests:
        _share_context(request)
    return conversion


def pairs(request: EvaluateTextsRequest, rubric: Sequence[RubricCriterion]) -> Iterator[EvaluatePairsRequest]:
    """Makes a row of an evaluation of pairs of every two texts of a task.

    The criteria are the roles; without criteria the judges have roles of their own.

    Raises:
        TableError: A criterion is too long for a role, or another field for a pair.
    """
    for one in rubric:
        if broken := violations(criterion_role(one)):
            raise TableError(f"{one.id}: is no role: its {broken[0].field} {broken[0].description}")
    for first, second in combinations(request.texts, 2):
        tags = {"topic": request.task.topic} if request.task.topic else {}
        pair = EvaluatePairsRequest(
            id=f"{request.task.id or request.task.goal[:80]}: {first.id}, {second.id}"[:200],
            source=request.task.goal,
            first=ComparedText(text=first.text, model=first.model),
            second=ComparedText(text=second.text, model=second.model),
            roles=RolePlan(criteria=rubric) if rubric else None,
            tags={**tags, **request.tags},
        )
        if broken := violations(pair):
            raise TableError(f"{broken[0].field}: {broken[0].description}")
        yield pair


def _share_context(request: EvaluateTextsRequest) -> None:
    """Makes documents those of the task where all its texts have the same."""
    context = list(request.texts[0].context)
    if context and all(list(one.context) == context for one in request.texts):
        request.task.context.extend(context)
        for one in request.texts:
            del one.context[:]


def _request(row: Mapping[str, Any], columns: Columns, key: tuple[str, str]) -> EvaluateTextsRequest:
    tags = {
        name: _text(value)
        for name in columns.tags
        if isinstance(value := row.get(name), str | int | float) and _text(value)
    }
    task = Task(
        id=key[0],
        goal=key[1],
        topic=_cell(row, columns.topic),
        instructions=_cell(row, columns.instructions),
    )
    return EvaluateTextsRequest(task=task, reference=_cell(row, columns.reference), tags=tags)


def _evaluated(row: Mapping[str, Any], columns: Columns) -> EvaluatedText:
    """The text or the conversation of a row, without an id.

    Raises:
        TableError: A cell of the row is missing or of another type.
        MessagesError: Its messages cannot be read.
    """
    if None in row:
        raise TableError("has more cells than the header")
    for purpose, name in columns.named.items():
        value = row.get(name)
        if purpose in ("context", "messages") or value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise TableError(f"{name}: is no text")
    if columns.text and not isinstance(text := row.get(columns.text), str):
        raise TableError(f"{columns.text}: is {'missing' if text is None else 'no text'}")
    if columns.task and not _cell(row, columns.task).strip():
        raise TableError(f"{columns.task}: is missing")
    conversation = None
    if not columns.text:
        conversation = read_messages(row.get(columns.messages), columns.messages)
    return EvaluatedText(
        model=_cell(row, columns.model),
        text=row[columns.text] if columns.text else "",
        context=_documents(row.get(columns.context), columns.context) if columns.context else (),
        conversation=conversation,
    )


def _first_question(conversation: Conversation) -> str:
    """The task of a row without one: what the user of its conversation says first."""
    for turn in conversation.turns:
        if turn.role == "user" and (words := " ".join(part.text for part in turn.parts if part.text).strip()):
            return words[:_GOAL_LENGTH]
    return NO_TASK


def _documents(value: Any, column: str) -> Sequence[Document]:
    """The documents of a cell: a text, a list of texts, or a list of objects, also as JSON.

    Raises:
        TableError: It is something else.
    """
    if isinstance(value, str) and value.lstrip().startswith("["):
        # A text that begins with a bracket and is no JSON is a text.
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    parts = value if isinstance(value, list) else [value]
    documents = []
    for part in parts:
        if part is None or part == "":
            continue
        fields = part if isinstance(part, dict) else {"text": part}
        known = {name: one for name, one in fields.items() if one is not None}
        is_text = isinstance(known.get("text", ""), str)
        if not is_text or not all(isinstance(one, str | int | float) for one in known.values()):
            raise TableError(f"{column}: is no text, list of texts, or list of objects with a text")
        unknown = known.keys() - Document.DESCRIPTOR.fields_by_name.keys()
        if unknown:
            raise TableError(f"{column}: a document has no {min(unknown)}: it has id, title, text and source")
        documents.append(Document(**{name: str(one) for name, one in known.items()}))
    return documents


def _cell(row: Mapping[str, Any], column: str) -> str:
    return _text(row.get(column)) if column else ""


def _text(value: Any) -> str:
    return "" if value is None else str(value)
