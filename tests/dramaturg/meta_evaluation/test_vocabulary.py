"""Constraints in title case are written in sentence case; names keep their capitals."""

from __future__ import annotations

import pytest

from dramaturg.api.common.v1.script_pb2 import Candidate, Script, Step, Task
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.datasets import Row
from dramaturg.meta_evaluation.vocabulary import Vocabulary
from dramaturg_research.perturbations.originals import Originals
from dramaturg_research.perturbations.variants import Skipped, by_rule

STEPS = [
    "Open the file in Microsoft Word.",
    "Pick a word. Click on it.",
    "Use the slow cooker to use less gas.",
    "Use a word, not Word.",
    "Use it to use up what is left at Christmas. Trees may stay.",
    "Level the floor. The level helps to level it, to level all, to level more.",
    "Level the walls by a level, the level or a level.",
    "Level it.",
]


@pytest.mark.parametrize(
    ("title", "sentence"),
    [
        ("Without a Slow Cooker", "without a slow cooker"),
        ("with Microsoft Word", "with Microsoft Word"),
        ("with Word Lists", "with word lists"),
        ("at Christmas", "at Christmas"),
        ("on an iPhone with GIMP", "on an iPhone with GIMP"),
        ("With Soap & Water", "with soap & water"),
        ("in Paris by bus", "in Paris by bus"),
        ("", ""),
    ],
)
def test_names_are_those_that_steps_write_with_capitals(title: str, sentence: str) -> None:
    assert Vocabulary.of(STEPS).in_sentence_case(title) == sentence


def test_verbs_begin_steps_and_follow_to() -> None:
    # "level" is a noun more often.
    assert Vocabulary.of(STEPS).verbs == set()
    assert Vocabulary.of([*STEPS, "Stop to use it."]).verbs == {"use"}


@pytest.mark.parametrize(
    ("goal", "step"),
    [
        ("Make Stewed Fruit Without a Slow Cooker", "Do the rest with a slow cooker."),
        ("Make stewed fruit Without a Slow Cooker", "Do the rest with a Slow Cooker."),
    ],
)
def test_constraints_of_a_goal_in_title_case_are_planted_in_sentence_case(goal: str, step: str) -> None:
    steps = [Step(text="Cook the fruit."), Step(text="Eat it.")]
    row = EvaluateScriptsRequest(
        task=Task(id="1", goal=goal, constraints=["Without a Slow Cooker"]),
        candidates=[Candidate(id="a", script=Script(steps=steps))],
    )
    originals = Originals.read([Row(1, row)])
    made = by_rule(
        originals.scripts[0],
        ["contradict"],
        originals.of_other_goals(),
        originals.vocabulary(),
        0,
        Skipped(),
    )
    (variant,) = made
    assert step in variant.steps
