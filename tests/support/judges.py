"""Requests to judges, and answers of models that judge."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc

from dramaturg.api.common.v1.script_pb2 import Candidate, Script, Step, Task
from dramaturg.api.generation.v1 import generation_service_pb2
from dramaturg.api.generation.v1.generation_service_pb2 import Completion, GenerateRequest
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.service.channel import open_channel
from dramaturg.service.installed import App
from dramaturg.testing import completion, serve
from dramaturg.testing.generation import smallest_instance

OK = generation_service_pb2.COMPLETION_STATUS_OK
TASK = Task(goal="Make a cup of tea", constraints=["without a kettle", "in five minutes"])
STEPS = ("Heat water in a pot.", "Put a tea bag into a cup.", "Pour the water over it.")


def script(*steps: str) -> Script:
    return Script(steps=[Step(text=step) for step in steps])


def candidate(*steps: str, id: str = "a", **fields: Any) -> Candidate:  # noqa: A002
    return Candidate(id=id, script=script(*steps), **fields)


def section(verdict: Any, *findings: Mapping[str, Any], reason: str = "Because.") -> dict[str, Any]:
    """The answer to a criterion that is answered by findings."""
    return {"reason": reason, "findings": list(findings), "verdict": verdict}


def items(name: str, verdicts: Sequence[Any], verdict: Any, **fields: Any) -> dict[str, Any]:
    """The answer to a criterion that is answered item by item ("constraint" or "step")."""
    listed = [
        {name: number, "reason": f"About {number}.", "verdict": one, **fields}
        for number, one in enumerate(verdicts, start=1)
    ]
    return {f"{name}s": listed, "verdict": verdict}


def all_pass(request: GenerateRequest) -> Completion:
    """Passes every criterion asked for, or writes a script, whatever the schema asks."""
    schema = json.loads(request.json_format.schema)["properties"]
    if "steps" in schema:
        return completion({"considerations": "None.", "steps": list(STEPS)})
    text = request.messages[-1].text
    answer: dict[str, Any] = {}
    for criterion, shape in schema.items():
        members = shape.get("properties", {})
        if "entries" in members:
            entries = smallest_instance(members["entries"])
            answer[criterion] = {
                "entries": [
                    {**entry, "number": number, "verdict": "pass"}
                    for number, entry in enumerate(entries, start=1)
                ]
            }
            continue
        if criterion not in ABSEVAL:
            answer[criterion] = smallest_instance(shape)
            continue
        if "constraints" in members:
            count = text.count("\nConstraint ")
            answer[criterion] = items("constraint", ["pass"] * count, "pass", steps=[])
        elif "steps" in members:
            shown = text[text.index("[BEGIN candidate") : text.rindex("[END candidate")]
            answer[criterion] = items("step", ["pass"] * shown.count("\nStep "), "pass")
        else:
            answer[criterion] = section("pass")
    return completion(answer)


@asynccontextmanager
async def serve_app(app: App) -> AsyncIterator[grpc.aio.Channel]:
    """Serves a service on a free port and yields a channel to it."""
    async with (
        app.open() as contracts,
        serve(*contracts) as server,
        open_channel(server.target) as channel,
    ):
        yield channel
