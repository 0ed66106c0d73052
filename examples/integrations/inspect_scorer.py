"""Answers in Inspect AI: inspect eval examples/integrations/inspect_scorer.py --model mockllm/model.

The answers are in the file already. A task that has a model write them ends with the same scorer.
"""

import json
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput
from inspect_ai.solver import Generate, Solver, TaskState, solver

from dramaturg.integrations.inspect import dramaturg_judge

HERE = Path(__file__).parent


@solver
def given_answer() -> Solver:
    async def solve(state: TaskState, _: Generate) -> TaskState:
        state.output = ModelOutput.from_content("given", state.metadata["answer"])
        return state

    return solve


@task
def answers() -> Task:
    rows = [json.loads(line) for line in (HERE / "answers.jsonl").read_text().splitlines()]
    return Task(
        dataset=[Sample(input=row["question"], metadata={"answer": row["answer"]}) for row in rows],
        solver=given_answer(),
        scorer=dramaturg_judge(HERE / "rubric.toml"),
    )
