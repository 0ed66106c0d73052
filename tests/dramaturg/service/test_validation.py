from __future__ import annotations

import math
import sys
import threading
import timeit
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.api.common.v1 import limits_pb2, script_pb2
from dramaturg.api.embedding.v1.embedding_service_pb2 import EmbedRequest
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.run_pb2 import Dataset, RunSpec
from dramaturg.api.evaluation.v1.run_service_pb2 import CompareRunsRequest, CreateRunRequest
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest
from dramaturg.api.generation.v1.generation_service_pb2 import GenerateRequest, JsonFormat
from dramaturg.service.errors import ServiceError
from dramaturg.service.validation import MAX_VIOLATIONS, validate, violations
from tests.support.grpc_servers import synthesize_request

FieldProto = descriptor_pb2.FieldDescriptorProto


def paths(message: Message) -> list[str]:
    return [violation.field for violation in violations(message)]


def evaluation_request(*candidates: script_pb2.Candidate) -> EvaluateScriptsRequest:
    return EvaluateScriptsRequest(
        task=script_pb2.Task(goal="Bake a cake"),
        candidates=candidates or [script_pb2.Candidate(id="a", text="x")],
    )


def test_a_violation_names_the_kind_of_limit() -> None:
    spec = RunSpec(display_name="x" * 201, models=["m"] * 101, dataset=Dataset(row_limit=2 * 10**9))
    spec.judges.add(role="critic")
    found = {
        violation.field: violation.reason
        for request in (
            CreateRunRequest(spec=spec, request_id="q"),
            CreateRunRequest(),
            CompareRunsRequest(run_ids=["a"], match=99),  # type: ignore[arg-type] # no such value
        )
        for violation in violations(request)
    }
    assert found == {
        "spec.display_name": "TOO_LONG",
        "spec.models": "TOO_MANY",
        "spec.dataset.row_limit": "OUT_OF_RANGE",
        "request_id": "PATTERN_MISMATCH",
        "spec": "REQUIRED",
        "run_ids": "TOO_FEW",
        "match": "UNKNOWN_VALUE",
    }


def test_a_request_within_the_limits_passes() -> None:
    validate(synthesize_request())
    validate(evaluation_request())


def test_paths_name_the_place_at_any_depth() -> None:
    request = evaluation_request(*(script_pb2.Candidate(id=str(index)) for index in range(4)))
    request.task.constraints.extend(["fine", "x" * 2001])
    request.candidates[3].script.steps.add(text="x" * 20_001)
    request.candidates[3].script.steps.add(duration_minutes=-1)
    request.tags["k"] = "x" * 501
    request.options.sampling.stop.extend(["ok", "x" * 201])
    assert violations(request) == [
        ("task.constraints[1]", "has 2001 characters; at most 2000 are allowed"),
        ("candidates[3].script.steps[0].text", "has 20001 characters; at most 20000 are allowed"),
        (
            "candidates[3].script.steps[1].duration_minutes",
            "is -1; it must be at least 0 and at most 1000000000",
        ),
        ('tags["k"]', "has 501 characters; at most 500 are allowed"),
        ("options.sampling.stop[1]", "has 201 characters; at most 200 are allowed"),
    ]


def in_pieces(over: int) -> EvaluateScriptsRequest:
    """A request whose texts and lists are as long as they may be, or longer."""
    request = evaluation_request(script_pb2.Candidate(id="i" * (200 + over)))
    request.task.topic = "é" * (200 + over)
    request.task.constraints.extend(["c"] * (50 + over))
    request.task.constraints[0] = "c" * (2000 + over)
    request.candidates[0].script.steps.add(text="x" * (20_000 + over))
    request.candidates.add(id="b").script.steps.add(duration_minutes=-over)
    request.tags["k" * (500 + over)] = "v" * (500 + over)
    request.options.sampling.stop.extend(["s"] * (4 + over))
    return request


@given(st.integers(0, 2), st.sets(st.sampled_from(["task", "candidates", "tags", "options", "judges"])))
def test_what_a_message_of_its_size_cannot_break_is_all_that_is_left_out(
    over: int, left_out: set[str]
) -> None:
    request: Message = in_pieces(over)
    for name in left_out:
        request.ClearField(name)
    data = request.SerializeToString()
    found = violations(EvaluateScriptsRequest.FromString(data), len(data))
    assert found == violations(request)
    assert bool(found) == (over > 0 or "task" in left_out or "candidates" in left_out)


def test_one_wrong_element_among_many_is_found() -> None:
    request = synthesize_request()
    for index in range(20):
        request.candidates[0].script.steps.add(duration_minutes=index)
    assert violations(request, request.ByteSize()) == ()
    request.candidates[0].script.steps[13].duration_minutes = -1
    assert [path for path, _ in violations(request, request.ByteSize())] == [
        "candidates[0].script.steps[13].duration_minutes"
    ]


def test_a_missing_field_is_found_in_a_small_message_too() -> None:
    request = EvaluateScriptsRequest(judges=[JudgeSelection(judge="mine")])
    found = violations(request, request.ByteSize())
    assert [path for path, _ in found] == ["task", "candidates", "judges[0].role"]


def test_every_violation_is_raised_at_once() -> None:
    with pytest.raises(ServiceError) as raised:
        validate(EvaluateScriptsRequest())
    assert [violation.field for violation in raised.value.violations] == ["task", "candidates"]
    assert "1 more" in raised.value.message


@pytest.mark.parametrize("goal", ["", " ", "\t\n", "\u3000\u2003"])
def test_white_space_alone_is_no_required_text(goal: str) -> None:
    assert paths(synthesize_request(goal=goal)) == ["task.goal"]


def test_a_required_message_may_be_empty_but_not_absent() -> None:
    request = synthesize_request()
    request.ClearField("task")
    assert paths(request) == ["task"]
    request.task.SetInParent()
    assert paths(request) == ["task.goal"]


@given(st.integers(0, 3), st.sampled_from(["a", "é", "漢", "😀", "e\u0301"]))
def test_lengths_are_code_points(over: int, character: str) -> None:
    text = (character * 200)[: 200 + over] + "b" * over
    wrong = paths(synthesize_request(topic=text))
    assert bool(wrong) == (len(text) > 200)


@given(st.floats())
def test_numbers_pass_only_within_their_limits(temperature: float) -> None:
    request = GenerateRequest(messages=[{"text": "hi", "role": "MESSAGE_ROLE_USER"}])  # type: ignore[list-item]
    request.sampling.temperature = temperature
    assert (paths(request) == []) == (0 <= temperature <= 2)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_infinities_never_pass(value: float) -> None:
    request = synthesize_request()
    request.candidates[0].script.steps[0].duration_minutes = value
    assert paths(request) == ["candidates[0].script.steps[0].duration_minutes"]


def test_a_field_with_presence_is_checked_only_when_present() -> None:
    request = synthesize_request()
    request.options.sampling.SetInParent()
    assert paths(request) == []
    request.options.sampling.max_output_tokens = 0
    assert paths(request) == ["options.sampling.max_output_tokens"]


def test_counts_of_elements() -> None:
    assert paths(EmbedRequest()) == ["texts"]
    assert violations(EmbedRequest(texts=[""] * 4097)) == [
        ("texts", "has 4097 elements; at most 4096 are allowed")
    ]
    assert paths(EmbedRequest(texts=[""])) == []


def test_only_the_set_member_of_a_oneof_is_checked() -> None:
    request = evaluation_request(script_pb2.Candidate(id="a", text="x" * 200_001))
    assert paths(request) == ["candidates[0].text"]


@pytest.mark.parametrize(("name", "fits"), [("a-b_C9", True), ("a b", False), ("ok\n", False), ("é", False)])
def test_a_pattern_must_match_whole(name: str, fits: bool) -> None:
    assert (paths(JsonFormat(name=name, schema="{}")) == []) == fits


def test_map_keys_are_limited_and_never_echoed_whole() -> None:
    request = evaluation_request()
    request.tags["k" * 600] = "v"
    (violation,) = violations(request)
    assert violation.description == "has a key that has 600 characters; at most 500 are allowed"
    assert len(violation.field) < 60


def test_long_values_are_never_echoed() -> None:
    request = synthesize_request(id="s" * 5000)
    with pytest.raises(ServiceError) as raised:
        validate(request)
    assert "sss" not in str(raised.value)


def test_enum_numbers_that_this_server_does_not_know_are_refused() -> None:
    request = GenerateRequest()
    request.messages.add(text="hi", role=77)
    assert violations(request) == [("messages[0].role", "is 77, which is no value of MessageRole")]


@pytest.mark.parametrize(("seconds", "nanos"), [(2**63 - 1, 0), (-315_576_000_001, 0), (1, -1), (0, 10**9)])
def test_durations_out_of_their_range_are_refused(seconds: int, nanos: int) -> None:
    spec = RunSpec(dataset=Dataset(content=b"{}"))
    spec.scripts.SetInParent()
    spec.policy.sample_timeout.seconds, spec.policy.sample_timeout.nanos = seconds, nanos
    (violation,) = violations(CreateRunRequest(spec=spec))
    assert (violation.field, violation.reason) == ("spec.policy.sample_timeout", "OUT_OF_RANGE")


@given(seconds=st.integers(-315_576_000_000, 315_576_000_000))
def test_durations_in_their_range_pass(seconds: int) -> None:
    request = evaluation_request()
    request.shadow_wait.seconds = seconds
    assert not paths(request)


def test_elements_beyond_the_most_are_not_looked_at() -> None:
    request = evaluation_request(*(script_pb2.Candidate() for _ in range(5000)))
    found = paths(request)
    assert found[0] == "candidates"
    assert len(found) == 201


def test_a_request_full_of_violations_stops_at_the_bound() -> None:
    candidate = script_pb2.Candidate(id="a")
    candidate.script.steps.extend(script_pb2.Step(duration_minutes=-1) for _ in range(1000))
    request = evaluation_request(*([candidate] * 200))
    assert len(violations(request)) == MAX_VIOLATIONS


def test_recursive_messages_are_checked_at_every_depth(node: Callable[..., Any]) -> None:
    root = node()
    deepest = root
    for _ in range(50):
        deepest = deepest.children.add()
    deepest.name = "x" * 9
    (violation,) = violations(root)
    assert violation.field == "children[0]." * 50 + "name"


def test_a_type_may_be_seen_first_by_several_threads(node: Callable[..., Any]) -> None:
    root = node()
    root.children.add().children.add(name="x" * 9)
    sizes = [2**bits for bits in range(20, 40)]  # each is compiled for itself
    together, interval = threading.Barrier(4), sys.getswitchinterval()

    def look(_: int) -> set[str]:
        together.wait(20)
        return {path for size in sizes for path, _ in violations(root, size)}

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            seen = list(threads.map(look, range(4)))
    finally:
        sys.setswitchinterval(interval)
    assert seen == [{"children[0].children[0].name"}] * 4


def test_maps_of_messages_are_checked(node: Callable[..., Any]) -> None:
    root = node()
    root.by_name["b"].name = "x" * 9
    root.by_name["a"].name = "x" * 9
    assert paths(root) == ['by_name["a"].name', 'by_name["b"].name']


def test_bytes_are_counted_in_bytes(node: Callable[..., Any]) -> None:
    assert violations(node(blob=b"12345")) == [("blob", "has 5 bytes; at most 4 are allowed")]


@pytest.fixture(scope="module")
def node() -> Callable[..., Any]:
    """A message type that contains itself: directly, and in a map."""
    file = descriptor_pb2.FileDescriptorProto(
        name="dramaturg/tests/v1/node.proto", package="dramaturg.tests.v1", syntax="proto3"
    )
    message = file.message_type.add(name="Node")

    def field(
        name: str, number: int, kind: int, label: int, type_name: str | None = None, limit: int = 0
    ) -> None:
        added = message.field.add(name=name, number=number, type_name=type_name)
        added.type, added.label = kind, label  # type: ignore[assignment]
        if limit:
            added.options.Extensions[limits_pb2.limits].max_length = limit

    field("name", 1, FieldProto.TYPE_STRING, FieldProto.LABEL_OPTIONAL, limit=8)
    field("children", 2, FieldProto.TYPE_MESSAGE, FieldProto.LABEL_REPEATED, ".dramaturg.tests.v1.Node")
    field(
        "by_name",
        3,
        FieldProto.TYPE_MESSAGE,
        FieldProto.LABEL_REPEATED,
        ".dramaturg.tests.v1.Node.ByNameEntry",
    )
    field("blob", 4, FieldProto.TYPE_BYTES, FieldProto.LABEL_OPTIONAL, limit=4)
    entry = message.nested_type.add(name="ByNameEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=FieldProto.TYPE_STRING, label=FieldProto.LABEL_OPTIONAL)
    entry.field.add(
        name="value",
        number=2,
        type=FieldProto.TYPE_MESSAGE,
        label=FieldProto.LABEL_OPTIONAL,
        type_name=".dramaturg.tests.v1.Node",
    )
    pool = descriptor_pool.Default()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("dramaturg.tests.v1.Node"))


@given(st.integers(0, 30), st.integers(0, 30))
def test_the_number_of_violations_is_the_number_of_faults(bad_steps: int, good_steps: int) -> None:
    request = synthesize_request()
    for _ in range(bad_steps):
        request.candidates[0].script.steps.add(text="x" * 20_001)
    for _ in range(good_steps):
        request.candidates[0].script.steps.add(text="x" * 20_000)
    assert len(violations(request)) == bad_steps


def test_a_typical_request_costs_microseconds() -> None:
    request = synthesize_request(constraints=["Without an oven"])
    for index in range(12):
        request.candidates[0].script.steps.add(text=f"Step {index} with some words in it.")
    validate(request)
    # About 10 microseconds on an idle machine; the bound catches a plan that is compiled anew each time.
    assert min(timeit.repeat(lambda: validate(request), number=200, repeat=5)) / 200 < 500e-6
