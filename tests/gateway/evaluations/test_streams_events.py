"""Verdicts as events, as a collector gets them."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from dramaturg.api.evaluation.v1 import evaluation_service_pb2_grpc
from dramaturg.api.evaluation.v1.texts_pb2 import EvaluatedText, EvaluateTextsRequest
from dramaturg.service.telemetry import telemetry
from dramaturg.testing import serve_gateway
from tests.support.harness_rows import PROMPT, ROWS, scripted
from tests.support.telemetry import Collector, Event, collector, global_provider
from tests.support.texts import CLEAR, POLITE, judge, registered, texts_request

TRACE, SPAN = "a1" * 16, "b2" * 8
LABELS = {1.0: "pass", 0.0: "fail", None: "abstain"}


@pytest.fixture(autouse=True)
def _no_provider() -> Iterator[None]:
    with global_provider():
        yield


def request() -> EvaluateTextsRequest:
    texts = [EvaluatedText(id=str(number), text=row.output) for number, row in enumerate(ROWS)]
    return texts_request(texts=texts, criteria=[POLITE, CLEAR])


async def evaluated(collecting: Collector, made: EvaluateTextsRequest, traceparent: str = "") -> list[Event]:
    """The events of an evaluation that a caller without telemetry of its own asks for."""
    metadata = (("traceparent", traceparent),) if traceparent else ()
    async with (
        telemetry("gateway", "127.0.0.1"),
        serve_gateway(*registered(judge(scripted), judge(scripted))) as server,
        grpc.aio.insecure_channel(server.target) as channel,
    ):
        stub = evaluation_service_pb2_grpc.EvaluationServiceStub(channel)
        async for _ in stub.EvaluateTexts(made, metadata=metadata, timeout=30):
            pass
    return [event for event in collecting.events if event.name == "gen_ai.evaluation.result"]


async def test_each_verdict_is_an_event_of_the_callers_span(monkeypatch: pytest.MonkeyPatch) -> None:
    async with collector() as collecting:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{collecting.target}")
        events = await evaluated(collecting, request(), f"00-{TRACE}-{SPAN}-01")
    assert len(events) == 2 * len(ROWS)
    for event in events:
        assert (event.service, event.trace_id, event.span_id) == ("gateway", TRACE, SPAN)
        found = event.attributes
        row = ROWS[int(found["dramaturg.candidate.id"])]
        value = row.expected()[found["gen_ai.evaluation.name"]]
        assert found.get("gen_ai.evaluation.score.value") == value
        assert found["dramaturg.judge.role"] == "rubric-judge"
        assert found["dramaturg.judge.name"] == "judge-0"
        assert found["dramaturg.judge.version"] == "fake-judge 1.0.0"
        assert found["dramaturg.judge.prompt_sha256"] == [PROMPT]
        assert found["dramaturg.evaluation.kind"] == "texts"
        assert ("dramaturg.evaluation.abstain_reason" in found) == (value is None)
        assert "gen_ai.evaluation.explanation" not in found
    polite = [one.attributes for one in events if one.attributes["gen_ai.evaluation.name"] == "polite"]
    clear = [one.attributes for one in events if one.attributes["gen_ai.evaluation.name"] == "clear"]
    labels = [one["gen_ai.evaluation.score.label"] for one in polite]
    assert labels == [LABELS[row.expected()["polite"]] for row in ROWS]
    assert {one.get("dramaturg.evaluation.abstain_reason") for one in polite} == {None, "UNPARSABLE"}
    assert clear[0]["gen_ai.evaluation.score.label"] == "1 of 1 to 5"
    assert clear[3]["gen_ai.evaluation.score.label"] == "abstain"


async def test_an_explanation_is_sent_where_contents_are(monkeypatch: pytest.MonkeyPatch) -> None:
    async with collector() as collecting:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{collecting.target}")
        monkeypatch.setenv("DRAMATURG_TRACES_CONTENTS", "true")
        events = await evaluated(collecting, request())
    explanations = {event.attributes.get("gen_ai.evaluation.explanation") for event in events}
    assert explanations == {
        "It greets.",
        "It is rude.\nIt greets nobody.",
        "No answer.",
        "As it reads.",
        None,
    }
    # Without a caller's span they belong to that of the call.
    (served,) = [span for span in collecting.spans if span.name.endswith("/EvaluateTexts")]
    assert {event.span_id for event in events} == {served.span_id}


async def test_a_panel_states_the_version_of_its_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    made = texts_request("Hello!", criteria=[POLITE])
    for name in ("judge-0", "judge-1"):
        made.judges.add(role="rubric-judge", judge=name)
    async with collector() as collecting:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{collecting.target}")
        (event,) = await evaluated(collecting, made)
    assert "dramaturg.judge.name" not in event.attributes
    assert event.attributes["dramaturg.judge.version"] == "fake-judge 1.0.0"
    assert event.attributes["dramaturg.judge.prompt_sha256"] == [PROMPT]


async def test_a_trace_that_is_not_recorded_has_no_events(monkeypatch: pytest.MonkeyPatch) -> None:
    async with collector() as collecting:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{collecting.target}")
        assert not await evaluated(collecting, request(), f"00-{TRACE}-{SPAN}-00")
        assert await evaluated(collecting, request())
