"""Drawn judgements, what a kind of evaluation states of its items, and the choices of items."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.content_pb2 import Conversation, Document
from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.evaluation.v1.label_service_pb2 import LabelItem, LabelTask, LabelText
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.judge.conversations import Unit, shown_images, turn_texts
from dramaturg.kinds.dialogues import HIGHEST, LOWEST
from dramaturg.kinds.pairs import BY_CRITERION


@dataclass(frozen=True)
class Drawn:
    """A drawn judgement."""

    sample: int
    """The index of the sample."""
    candidate_id: str
    criterion: str
    """The criterion of a verdict or of a rating by a criterion. Empty: none."""
    model: str
    opponent: str
    """The model of the second text of a preference. Empty: none."""
    judged: float | None
    """The value that the judge gave, of a preference for the first text. None: it abstained."""
    confidence: float | None = None
    """The judge's confidence. None: it stated none."""
    unit: Unit | None = None
    """The turn or call of a conversation. None: the whole."""
    expands: bool = False
    """Whether its items are those that ``LabelledKind.expand`` makes of it and its sample."""


Reader = Callable[[RunResult], Drawn | None]
"""Makes an item of a judgement; None: it has none."""


@dataclass(frozen=True)
class Context:
    """What an item is built from, besides the judgement and its sample."""

    task: LabelTask.ValueType
    questions: Mapping[str, str]
    """The questions by criterion."""
    request: bytes
    """The request of the sample, where the kind reads it."""


@dataclass(frozen=True)
class LabelledKind:
    """The items of a kind of evaluation."""

    readers: Mapping[LabelTask.ValueType, Reader]
    """How judgements become items, by task. The first task is the default."""
    build: Callable[[Drawn, RunSample, Context], LabelItem | None]
    """The item of a judgement. None: the sample has no text for it. Names are those that the store keeps."""
    expand: Callable[[Drawn, RunSample], Iterator[Drawn]] | None = None
    """The items of a read one that expands, and its sample."""
    unjudged: bool = False
    """Whether items are no judgements: they are drawn also where models or measures abstained."""
    reads_request: bool = False
    """Whether items are built from the request."""


def drawn(row: RunResult, criterion: str = "") -> Drawn:
    """The item of a judgement of one candidate."""
    value = row.value if row.HasField("value") else None
    return Drawn(row.sample_index, row.candidate_id, criterion, row.model, "", value, _confidence(row))


def _confidence(row: RunResult) -> float | None:
    return row.confidence if row.HasField("confidence") else None


def verdict(row: RunResult) -> Drawn | None:
    """The item of a verdict."""
    is_verdict = row.outcome != verdict_pb2.OUTCOME_UNSPECIFIED
    return drawn(row, criterion=row.measure) if is_verdict else None


_SECOND = "second"


def preference(row: RunResult) -> Drawn | None:
    """The item of a comparison, from the row of either text. Votes by a criterion answer another question."""
    if not row.measure.startswith("win") or row.measure.startswith(f"win/{BY_CRITERION}"):
        return None
    value, confidence = row.value if row.HasField("value") else None, _confidence(row)
    if row.candidate_id == _SECOND:
        value = None if value is None else 1 - value
        return Drawn(row.sample_index, "", "", row.label, row.model, value, confidence)
    return Drawn(row.sample_index, "", "", row.model, row.label, value, confidence)


def unit_of(item: LabelItem) -> Unit | None:
    """The turn or call that an item is about. None: the whole."""
    if not item.HasField("turn_index"):
        return None
    return Unit(item.turn_index, item.call_index if item.HasField("call_index") else None)


CONVERSATION = "Conversation"
"""The title of the text with the turns."""
VERDICTS = ("PASS", "FAIL")
PREFERENCES = ("first", "tie", "second")
RATINGS = tuple(str(value) for value in range(int(LOWEST), int(HIGHEST) + 1))
EITHER = "either"
CHOICES = ("option 1", "option 2", EITHER)
LEVELS = ("easy", "medium", "hard")
REJECT = "reject"
REVIEWS = (*LEVELS, EITHER, REJECT)
MAX_CHOICES = 36
"""The most choices of an item: the number of digits and letters."""
_MAX_IMAGE_BYTES = 2_000_000


def item_id(task: Task, candidate_id: str) -> str:
    """The id of a candidate's item."""
    return f"{task.id or task.goal}/{candidate_id}"


def task_texts(task: Task) -> Iterator[LabelText]:
    """A task with its constraints."""
    yield LabelText(title="Task", text=task.goal)
    if task.constraints:
        yield LabelText(title="Constraints", steps=task.constraints)
    if task.instructions:
        yield LabelText(title="Instructions", text=task.instructions)
    if task.context:
        yield context_text(task.context)


def context_text(context: Iterable[Document]) -> LabelText:
    """Documents with their titles and sources."""
    documents = ["\n".join(filter(None, (one.title, one.source, one.text))) for one in context]
    return LabelText(title="Context", steps=documents)


def conversation_text(conversation: Conversation) -> LabelText:
    """The turns with their images, as many as an item may have."""
    text = LabelText(title=CONVERSATION, steps=turn_texts(conversation))
    left = _MAX_IMAGE_BYTES
    for index, turn in enumerate(conversation.turns):
        for data in shown_images(turn):
            if len(data) <= left:
                left -= len(data)
                text.images.add(step_index=index, data=data)
    return text


def decision_texts(scenario: str, goal: str, first: str, second: str) -> list[LabelText]:
    """A scenario, and the options of its goal."""
    named = (("Scenario", scenario), ("Goal", goal), ("Option 1", first), ("Option 2", second))
    return [LabelText(title=title, text=text) for title, text in named if text]
