"""Writes scripts: the question and the parsing of its answer (ABSEval, section 4.1)."""

from __future__ import annotations

from dramaturg.api.common.v1.script_pb2 import Script, Step, Task
from dramaturg.api.generation.v1 import authoring_service_pb2 as pb
from dramaturg.api.generation.v1 import generation_service_pb2
from dramaturg.judge import text_pool
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.judge.refusals import is_refusal
from dramaturg.judge.steps import split_steps
from services.generation.author import Author

_FAILURES = {
    generation_service_pb2.COMPLETION_STATUS_REFUSED: "refused",
    generation_service_pb2.COMPLETION_STATUS_TRUNCATED: "truncated",
    generation_service_pb2.COMPLETION_STATUS_EMPTY: "empty",
}


class ScriptWriter:
    """Writes scripts with a model, step by step.

    Args:
        author: Asks the model.
        library: The prompts.
    """

    def __init__(self, author: Author, library: PromptLibrary) -> None:
        self._author = author
        self._prompt = library.load("write_script", content=("task",))

    async def write(self, request: pb.WriteScriptRequest) -> pb.WriteScriptResponse:
        """Writes one script. It has no steps if the text has none.

        Raises:
            ServiceError: The model gives no answer.
        """
        written = await self._author.write(
            self._prompt.render({"task": _told(request.task)}),
            request.options,
            prompts=[self._prompt.reference],
        )
        failure = _FAILURES.get(written.completion.status, "")
        if not failure and is_refusal(written.text):
            failure = _FAILURES[generation_service_pb2.COMPLETION_STATUS_REFUSED]
        steps = () if failure else await text_pool.parse(len(written.text), split_steps, written.text)
        return pb.WriteScriptResponse(
            text=written.text,
            script=None if failure else Script(steps=[Step(text=step) for step in steps]),
            provenance=written.provenance,
            failure=failure,
        )


def _told(task: Task) -> str:
    lines = [task.goal]
    if task.constraints:
        lines += ["", "Keep to these constraints:", *(f"- {constraint}" for constraint in task.constraints)]
    return "\n".join(lines)
