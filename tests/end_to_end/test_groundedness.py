"""Answers with planted sentences that their documents do not have, judged by the ready rubric end to end.

The model is scripted: it fails an answer for each sentence that no document has, and quotes it. The lying one
quotes words that are not there.
"""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.content_pb2 import Document
from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.evaluation.v1.texts_pb2 import EvaluatedText, EvaluateTextsRequest, TextsResult
from dramaturg.client import DramaturgClient
from dramaturg.formats.rubric import read_rubric
from dramaturg.judge.spec import JudgeSpec
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from dramaturg.testing import serve
from gateway.app import App
from gateway.settings import GatewaySettings, JudgeEntry
from services.judging.rubrics.judge import SPEC
from tests.services.judging.dialogues import generation_target
from tests.support.openai_server import Body, OpenAIServer

THINGS = ("kettle", "lamp", "parcel", "refund", "invoice", "voucher", "chair", "shelf")
FACTS = ("ships on Monday", "costs 20 euros", "comes in blue", "may go back for 30 days", "needs no tools")
PLANTED = ("is the best in town", "won a prize last year", "glows at night", "is free for members")
_FENCED = re.compile(r"\[BEGIN (\w+) (\w+)\]\n(.*?)\n\[END \1 \2\]", re.DOTALL)


def labelled(count: int = 24) -> list[tuple[EvaluatedText, list[str]]]:
    """Answers with their documents, and the planted sentences of each; every second one has some."""
    rng = random.Random(7)
    made = []
    for number in range(count):
        thing = rng.choice(THINGS)
        facts = [f"The {thing} {fact}." for fact in rng.sample(FACTS, 3)]
        planted = [f"The {thing} {one}." for one in rng.sample(PLANTED, 1 + number % 3)] if number % 2 else []
        sentences = [*facts, *planted]
        rng.shuffle(sentences)
        documents = [Document(text=" ".join(facts[:2])), Document(text=facts[2])]
        made.append((EvaluatedText(id=str(number), text=" ".join(sentences), context=documents), planted))
    return made


def reader(quote: Callable[[str], str]) -> Callable[[Body], Body]:
    """A model that compares each sentence with the documents, and quotes those that they lack."""

    def answer(body: Body) -> Body:
        shown = {label: text for label, _, text in _FENCED.findall(body["messages"][-1]["content"])}
        sentences = re.findall(r"[^.]+\.", shown["text"])
        lacking = [one.strip() for one in sentences if one.strip() not in shown["context"]]
        faults = [
            {"part": "text", "quote": quote(one), "problem": "no document says so", "severity": "major"}
            for one in lacking
        ]
        grounded = {"reason": "Compared.", "faults": faults, "verdict": "fail" if faults else "pass"}
        agrees = {"reason": "Nothing contradicts.", "faults": [], "verdict": "pass"}
        return {"grounded_in_context": grounded, "contradicts_no_context": agrees}

    return answer


@asynccontextmanager
async def gateway(
    answer: Callable[[Body], Any], *, judges: Sequence[JudgeSpec[Any]] = (SPEC,), **settings: Any
) -> AsyncIterator[DramaturgClient]:
    """A gateway with judges of these settings, by default a rubric judge, whose model answers so."""
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(OpenAIServer(answer))
        generation = await stack.enter_async_context(generation_target(model))
        entries = []
        for judge in judges:
            app = judge(generation_target=generation, **settings)
            served = await stack.enter_async_context(serve(*await stack.enter_async_context(app.open())))
            entries.append(JudgeEntry(role=judge.role.name, name="llm", target=served.target))
        own = await stack.enter_async_context(App(GatewaySettings(judges=tuple(entries))).open())
        server = await stack.enter_async_context(Server(own, ServerSettings.loopback()))
        yield await stack.enter_async_context(DramaturgClient(server.target))


async def judged(client: DramaturgClient, texts: list[EvaluatedText]) -> TextsResult:
    request = EvaluateTextsRequest(
        task=Task(goal="Tell me about it."), texts=texts, criteria=read_rubric("builtin:groundedness")
    )
    events = [event async for event in client.evaluate_texts(request)]
    return events[-1].result


@pytest.mark.timeout(120)
async def test_each_planted_sentence_is_found_in_its_place_and_no_true_one_is() -> None:
    answers = labelled()
    async with gateway(reader(lambda sentence: sentence)) as client:
        result = await judged(client, [text for text, _ in answers])
    for found, (text, planted) in zip(result.texts, answers, strict=True):
        grounded = found.verdicts[0]
        expected = verdict_pb2.OUTCOME_FAIL if planted else verdict_pb2.OUTCOME_PASS
        assert (grounded.criterion, grounded.outcome) == ("grounded_in_context", expected)
        spans = [span for one in grounded.findings for span in one.spans]
        assert all(span.found for span in spans)
        assert sorted(text.text[span.start : span.end] for span in spans) == sorted(planted)
        assert found.verdicts[1].outcome == verdict_pb2.OUTCOME_PASS


@pytest.mark.timeout(120)
async def test_a_model_that_makes_its_quotes_up_decides_nothing() -> None:
    answers = labelled(8)
    async with gateway(reader(lambda sentence: sentence.replace("The", "This"))) as client:
        result = await judged(client, [text for text, _ in answers])
    for found, (_, planted) in zip(result.texts, answers, strict=True):
        grounded = found.verdicts[0]
        if planted:
            assert grounded.abstain_reason == verdict_pb2.ABSTAIN_REASON_CONTRADICTORY
            assert "quotes words that the text does not have" in grounded.rationale
        else:
            assert grounded.outcome == verdict_pb2.OUTCOME_PASS
