"""The choices of items, and texts that items of several kinds have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dramaturg.api.common.v1.content_pb2 import Conversation, Document
from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.evaluation.v1.label_service_pb2 import LabelText
from dramaturg.judge.conversations import shown_images, turn_texts
from dramaturg.results.dialogues import HIGHEST, LOWEST

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
