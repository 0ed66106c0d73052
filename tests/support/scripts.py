"""Candidates and pools in plain words."""

from __future__ import annotations

from collections.abc import Sequence

from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.script_pb2 import Candidate, Script, Step, Task
from dramaturg.judge.batches import JudgeBatch, JudgeItem
from dramaturg.judge.steps import parse_candidate

TEA = Task(goal="Make a cup of tea")


def candidate(steps: Sequence[str] | str, name: str = "judged") -> Candidate:
    """A candidate of separate steps, or of one text."""
    if isinstance(steps, str):
        return Candidate(id=name, text=steps)
    return Candidate(id=name, script=Script(steps=[Step(text=step) for step in steps]))


def pool(*scripts: Sequence[str] | str) -> list[Candidate]:
    """Candidates by number."""
    return [candidate(script, f"other-{number}") for number, script in enumerate(scripts)]


def judge_item(
    task: Task, judged: Candidate, others: Sequence[Candidate] = (), criteria: Sequence[str] = ()
) -> JudgeItem:
    """A candidate as a judge gets it."""
    candidates = tuple(map(parse_candidate, (judged, *others)))
    return JudgeItem(
        JudgeBatch(task, Script(), tuple(criteria), {}, {}, JudgeOptions(), candidates), candidates[0]
    )


def tea_scripts(count: int) -> list[list[str]]:
    """Scripts that make tea in the same order, each worded a little differently."""
    fill = ("Fill the kettle with water", "Pour fresh water into the kettle", "Put water in the kettle")
    boil = ("Boil the water", "Bring the water to the boil", "Heat the water until it boils")
    bag = ("Put a tea bag into the cup", "Place a teabag in the mug", "Drop a tea bag in your cup")
    pour = ("Pour the boiling water over the tea bag", "Pour hot water into the cup", "Add the hot water")
    steep = ("Let the tea steep for a few minutes", "Leave the tea to brew", "Wait while the tea infuses")
    remove = ("Take the tea bag out", "Remove the tea bag from the cup", "Lift out the teabag")
    milk = ("Add milk and sugar to taste", "Stir in some milk and sugar", "Sweeten it and add milk")
    parts = (fill, boil, bag, pour, steep, remove, milk)
    return [[part[(number + place) % 3] for place, part in enumerate(parts)] for number in range(count)]
