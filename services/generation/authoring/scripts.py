"""Scripts: what a model is asked for, and what is read out of its answer."""

from __future__ import annotations

from collections.abc import Sequence

from dramaturg.api.common.v1.script_pb2 import Script, Step, Task
from dramaturg.api.generation.v1.generation_service_pb2 import Message
from dramaturg.judge.prompts import Prompt, PromptLibrary
from dramaturg.judge.steps import split_steps


class ScriptPrompt:
    """How a model is asked to write a script: step by step (ABSEval, section 4.1)."""

    def __init__(self, library: PromptLibrary) -> None:
        self.prompt: Prompt = library.load("write_script", placeholders=["task"])

    def messages(self, task: Task) -> Sequence[Message]:
        """The conversation for one task."""
        lines = [task.goal]
        if task.constraints:
            lines += [
                "",
                "Keep to these constraints:",
                *(f"- {constraint}" for constraint in task.constraints),
            ]
        return self.prompt.render({"task": "\n".join(lines)})


def read_script(text: str) -> Script:
    """The steps found in what a model wrote. Without steps where there are none."""
    return Script(steps=[Step(text=step) for step in split_steps(text)])
