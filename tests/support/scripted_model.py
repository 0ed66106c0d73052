"""A model that judges and writes scripts by what it is shown: equal questions get equal answers, for ever."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from dramaturg.api.generation.v1 import generation_service_pb2 as generation
from dramaturg.judge.criteria import ABSEVAL
from dramaturg.testing.generation import smallest_instance
from tests.support.judges import all_pass
from tests.support.openai_server import Body

_CANDIDATE = re.compile(r"\[BEGIN candidate\b.*?\[END candidate\b", re.DOTALL)


def approve(body: Body) -> str:
    """Passes everything, whatever judge asks, and writes a script where one is asked for."""
    form = body["response_format"]["json_schema"]
    request = generation.GenerateRequest(
        messages=[generation.Message(text=body["messages"][-1]["content"])],
        json_format=generation.JsonFormat(name=form["name"], schema=json.dumps(form["schema"])),
    )
    return all_pass(request).text


def judge(body: Body) -> str:
    """Answers by what is judged: equal scripts get equal verdicts, whatever else is in the prompt."""
    schema = body["response_format"]["json_schema"]["schema"]["properties"]
    # A request to repair an answer extends the conversation; the question stays its second message.
    question = body["messages"][1]["content"]
    if "considerations" in schema:
        return json.dumps({"considerations": "None.", "steps": ["Begin.", "Go on.", "Finish."]})
    shown = _CANDIDATE.search(question)
    assert shown is not None
    answer: dict[str, Any] = {}
    for criterion, shape in schema.items():
        if criterion not in ABSEVAL:
            answer[criterion] = smallest_instance(shape)
        else:
            failed = hashlib.sha256(f"{criterion}/{shown[0]}".encode()).digest()[0] < 80
            answer[criterion] = decide(not failed, shape["properties"], question, shown[0])
    return json.dumps(answer)


def decide(passed: bool, members: dict[str, Any], question: str, shown: str) -> dict[str, Any]:
    """The answer to one criterion, in the form that its members ask for."""
    verdict = "pass" if passed else "fail"
    for item, pattern, text in (("constraint", r"\nConstraint \d", question), ("step", r"\nStep \d", shown)):
        if f"{item}s" in members:
            verdicts = [verdict] + ["pass"] * (len(re.findall(pattern, text)) - 1)
            listed = [
                {item: number, "reason": "So it is.", "verdict": one}
                | ({"steps": []} if "steps" in members[f"{item}s"]["items"]["properties"] else {})
                for number, one in enumerate(verdicts, start=1)
            ]
            return {f"{item}s": listed, "verdict": verdict}
    return {"reason": "So it is.", "findings": [], "verdict": verdict}
