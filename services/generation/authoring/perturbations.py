"""Puts one fault into a script (ABSEval, section 4.2, Tables 4 and 10).

The paper's prompts ask for a whole new script, in which a model may make further, unreported changes. Here
the model returns edits, so that every change is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from dramaturg.api.common.v1.script_pb2 import Script, Step
from dramaturg.api.generation.v1 import authoring_datasets_pb2 as pb
from dramaturg.judge.excerpts import ExcerptLimits, constraints_excerpt, goal_excerpt
from dramaturg.judge.fence import fence_items
from dramaturg.judge.llm import ANSWER_PLACEHOLDER
from dramaturg.judge.prompts import PromptLibrary
from dramaturg.judge.steps import is_blank
from dramaturg.meta_evaluation.categories import BY_MODEL, CRITERIA, Category
from dramaturg.meta_evaluation.changes import find_changes
from dramaturg.service.errors import Violation, invalid_fields
from services.generation.author import Author
from services.generation.authoring.edits import Action, EditsForm

_ANY = tuple(Action)
_ACTIONS: Mapping[Category, Sequence[Action]] = MappingProxyType(
    {
        Category.MISSING_STEPS: (Action.REMOVE,),
        Category.REDUNDANT_STEPS: (Action.INSERT,),
        Category.DUPLICATE_STEPS: (Action.INSERT,),
        Category.BROKEN_CONSTRAINT: _ANY,
        Category.GOAL_NOT_REACHED: _ANY,
        Category.WRONG_ORDER: (Action.MOVE,),
    }
)
_CATEGORIES = {category.number: category for category in Category}
_LIMITS = ExcerptLimits()


class ScriptPerturber:
    """Puts faults into scripts with a model.

    Args:
        author: Asks the model.
        library: The prompts.
    """

    def __init__(self, author: Author, library: PromptLibrary) -> None:
        self._author = author
        self._prompt = library.load(
            "perturb_script",
            fixed=(ANSWER_PLACEHOLDER,),
            content=("goal", "constraints", "script", "fault", "actions"),
            parts=tuple(CRITERIA.values()),
        )

    async def perturb(self, request: pb.PerturbScriptRequest) -> pb.PerturbScriptResponse:
        """Puts one fault into a script.

        Raises:
            ServiceError: INVALID_ARGUMENT, or the model gives no answer.
        """
        violations = list(_violations(request))
        if violations:
            raise invalid_fields(violations)
        category = _CATEGORIES[request.category]
        steps = [step.text for step in request.script.steps]
        actions = _ACTIONS[category]
        values = {
            "goal": goal_excerpt(request.task, _LIMITS).text,
            "constraints": constraints_excerpt(request.task, _LIMITS).text,
            "script": fence_items("script", "Step", steps, limit=_LIMITS.candidate).text,
            "fault": self._prompt.parts[category.criterion],
            "actions": "\n".join(f"- {action}: {action.explanation}" for action in actions),
        }
        answer = await self._author.asker.ask(
            self._prompt, values, EditsForm(steps, actions), request.options
        )
        response = pb.PerturbScriptResponse(provenance=answer.provenance)
        if answer.abstention is not None:
            response.failure = answer.abstention.explanation
        elif answer.value is not None:
            placed, idea = answer.value
            response.script.CopyFrom(Script(steps=[Step(text=step.text) for step in placed]))
            response.perturbation.CopyFrom(
                pb.Perturbation(
                    category=request.category,
                    operation=BY_MODEL,
                    changes=[change.message() for change in find_changes(steps, placed)],
                    intent=idea,
                )
            )
        return response


def _violations(request: pb.PerturbScriptRequest) -> Iterator[Violation]:
    category = _CATEGORIES.get(request.category)
    steps = request.script.steps
    if category is None:
        yield Violation("category", "must be one of PerturbationCategory, and not unspecified")
    if request.script.edges:
        yield Violation("script.edges", "must be empty: only the listed order is changed")
    for index, step in enumerate(steps):
        if is_blank(step.text):
            yield Violation(f"script.steps[{index}].text", "must not be blank")
    least = 2 if category in (Category.MISSING_STEPS, Category.WRONG_ORDER) else 1
    if len(steps) < least:
        yield Violation("script.steps", f"must be {least} or more for this category, not {len(steps)}")
    if category == Category.BROKEN_CONSTRAINT and not request.task.constraints:
        yield Violation("task.constraints", "must not be empty for PERTURBATION_CATEGORY_BROKEN_CONSTRAINT")
