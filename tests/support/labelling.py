"""Finished runs of every kind that people can label, and labelling in a browser."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dramaturg.api.common.v1.content_pb2 import Conversation, Image, Part, ToolCall, ToolResult, Turn
from dramaturg.api.common.v1.provenance_pb2 import Usage
from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.common.v1.verdict_pb2 import (
    ABSTAIN_REASON_LOW_CONFIDENCE,
    OUTCOME_ABSTAIN,
    OUTCOME_FAIL,
    OUTCOME_PASS,
    UnitVerdict,
)
from dramaturg.api.evaluation.v1.pairs_pb2 import ComparedText, EvaluatePairsRequest
from dramaturg.api.evaluation.v1.run_pb2 import (
    RUN_STATE_PREPARING,
    RUN_STATE_RUNNING,
    RUN_STATE_SUCCEEDED,
    Dataset,
    DatasetManifest,
    RunSample,
    RunSpec,
)
from dramaturg.api.evaluation.v1.texts_pb2 import RubricCriterion, TextResult, TextsResult
from dramaturg.api.judging.v1.judge_service_pb2 import (
    CRITERION_UNIT_TOOL_CALL,
    CRITERION_UNIT_TURN,
    CRITERION_UNIT_UNSPECIFIED,
)
from dramaturg.conformance.judges import PIXEL
from dramaturg.judge.conversations import MAX_SHOWN_IMAGE_BYTES, transcript
from dramaturg.judge.verdicts import of_units, passed
from dramaturg.results.rows import flatten
from gateway.runs.records import NewRun, NewSample, SampleOutcome
from gateway.runs.store import RunStore
from tests.support.browser import Tab
from tests.support.runs import sample_rows

KINDS = {
    "scripts": "scripts",
    "texts": "texts",
    "pair": "pairs",
    "dialogue": "dialogues",
    "graphs": "graphs",
    "decision": "decisions",
    "scenarios": "scenarios",
}
"""The kind of a run by the member of ``RunSample.result``."""


def agent_run() -> RunSample:
    """A sample with the run of an agent that sends images, judged by turn, by call and as a whole.

    Its turns 2 and 4 are those of the assistant; turn 2 has two calls.
    """
    first = Part(tool_call=ToolCall(id="1", name="weather", arguments='{"city": "Oslo"}'))
    second = Part(tool_call=ToolCall(id="2", name="weather", arguments="{}"))
    conversation = Conversation(
        turns=[
            Turn(
                role="user",
                parts=[
                    Part(text="Which weather is this?"),
                    Part(image=Image(data=PIXEL, media_type="image/png")),
                    Part(image=Image(uri="http://10.0.0.1/sky.png", media_type="image/png")),
                    Part(image=Image(data=PIXEL + bytes(MAX_SHOWN_IMAGE_BYTES), media_type="image/png")),
                ],
            ),
            Turn(role="assistant", parts=[first, second]),
            Turn(role="tool", parts=[Part(tool_result=ToolResult(tool_call_id="1", text="Rain."))]),
            Turn(role="assistant", parts=[Part(text="Rain.")]),
        ]
    )
    turns = [
        UnitVerdict(turn_index=1, outcome=OUTCOME_PASS),
        UnitVerdict(turn_index=3, outcome=OUTCOME_FAIL),
    ]
    calls = [
        UnitVerdict(turn_index=1, call_index=0, outcome=OUTCOME_PASS),
        UnitVerdict(
            turn_index=1,
            call_index=1,
            outcome=OUTCOME_ABSTAIN,
            abstain_reason=ABSTAIN_REASON_LOW_CONFIDENCE,
        ),
    ]
    missed = of_units(
        "names_city", [*calls[:1], UnitVerdict(turn_index=1, call_index=1, outcome=OUTCOME_FAIL)]
    )
    criteria = {
        "helps": (of_units("helps", turns), CRITERION_UNIT_TURN),
        "names_city": (missed, CRITERION_UNIT_TOOL_CALL),
        "needed": (of_units("needed", calls), CRITERION_UNIT_TOOL_CALL),
        "reaches_the_goal": (passed("reaches_the_goal"), CRITERION_UNIT_UNSPECIFIED),
    }
    text = TextResult(
        text_id="run",
        model="large",
        text=transcript(conversation),
        conversation=conversation,
        verdicts=[verdict for verdict, _ in criteria.values()],
    )
    rubric = [RubricCriterion(id=name, passes="It is so.", each=each) for name, (_, each) in criteria.items()]
    result = TextsResult(task=Task(id="sky", goal="Tell the weather."), criteria=rubric, texts=[text])
    return RunSample(index=0, sample_id="sky", texts=result)


def press_keys(seen: Tab, keys: Iterable[str]) -> None:
    """Labels the items of an open queue, from the first, each by one key."""
    for place, key in enumerate(keys, start=1):
        seen.page.locator("h1", has_text=f"Item {place} of").wait_for()
        # The heading is there before the script that reads keys.
        seen.page.wait_for_load_state()
        seen.page.keyboard.press(key)


def finished_run(
    store: RunStore,
    samples: Iterable[RunSample],
    run_id: str = "run",
    tenant: str = "",
    name: str = "a run",
    creator: str = "",
    **fields: Any,
) -> None:
    """Makes a run of samples with results, which has succeeded.

    Args:
        store: The store of the run.
        samples: Its samples.
        run_id: Its id.
        tenant: Its tenant.
        name: Its name.
        creator: Who creates it.
        fields: Other fields of its specification.
    """
    listed = list(samples)
    result = listed[0].WhichOneof("result") or ""
    options: Any = {KINDS[result]: {}}
    spec = RunSpec(dataset=Dataset(content=b""), display_name=name, **options, **fields)
    store.runs.create(NewRun(id=run_id, tenant=tenant, spec=spec, creator=creator))
    rows = [
        NewSample(one.index, one.index + 1, one.sample_id, dict(one.tags), _request(one)) for one in listed
    ]
    store.samples.add(run_id, sample_rows(rows))
    store.runs.set_manifest(run_id, DatasetManifest(sha256="x"))
    store.runs.change_state(run_id, RUN_STATE_RUNNING, expected=[RUN_STATE_PREPARING])
    store.samples.take(run_id, [one.index for one in listed], "e")
    store.attempts.finish(run_id, 1, [SampleOutcome(one, flatten(one), _usage(one)) for one in listed])
    store.runs.change_state(run_id, RUN_STATE_SUCCEEDED, expected=[RUN_STATE_RUNNING])


def _usage(sample: RunSample) -> Usage:
    """The usage that the result of a sample states."""
    result = getattr(sample, sample.WhichOneof("result") or "")
    return result.usage if hasattr(result, "usage") else Usage()


def _request(sample: RunSample) -> bytes:
    pair = EvaluatePairsRequest(
        id=sample.pair.id,
        source=f"The article {sample.index}.",
        first=ComparedText(text=f"The first summary of {sample.index}."),
        second=ComparedText(text=f"The second summary of {sample.index}."),
    )
    return pair.SerializeToString()
