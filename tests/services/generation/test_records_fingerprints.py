"""The content address of a call: stable for ever, and different for all that decides the answer."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.generation.answers.forms import JsonForm
from services.generation.calls import Call, Image, Message, Role, Sampling
from services.generation.records import fingerprint

PNG = Image(b"a", "image/png")
PLAIN = Call("m", (Message(Role.USER, "Is it good? 好吗"),))
FULL = Call(
    "m",
    (Message(Role.SYSTEM, "Judge."), Message(Role.USER, "Is it good?")),
    Sampling(temperature=0.0, top_p=0.9, max_output_tokens=100, seed=-1, stop=("END",)),
    JsonForm("verdict", '{"type": "object", "properties": {"b": {}, "a": {}}}'),
    logprobs=True,
    top_logprobs=3,
    repeat_index=2,
)


def test_the_fingerprint_of_a_call_never_changes() -> None:
    """Ledgers and recordings are addressed by it: a change here makes every kept completion unfindable."""
    assert fingerprint(PLAIN) == "e3bd63e7b88b7aee04861763ab1d3d0327f9f33c6d19467d566b5e53b4cfb76e"
    assert fingerprint(FULL) == "be538475855508e7fa4b6b1adbb847975cfe3c5ff254ba99041c4d66763f3c1a"
    assert (
        fingerprint(FULL, "http://127.0.0.1/v1")
        == "32770dadf264531f1f9d3e86808e9ff89822237df80ef374042d36bfb1ce589e"
    )


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
FORMS = st.sampled_from([JsonForm("f", '{"title": "a \\"quoted\\" word, \\n\u597d"}'), FULL.json_form])
NUMBERS = st.sampled_from([0, -0.0, 0.1, 1, 1e-7, 1.5, 2.0])
CALLS = st.builds(
    Call,
    model=TEXTS,
    messages=st.lists(st.builds(Message, st.sampled_from(Role), TEXTS), min_size=1, max_size=3).map(tuple),
    sampling=st.builds(
        Sampling,
        temperature=st.none() | NUMBERS,
        top_p=st.none() | NUMBERS,
        max_output_tokens=st.none() | st.integers(1, 9),
        seed=st.none() | st.integers(-(2**63), 2**63 - 1),
        stop=st.lists(TEXTS, max_size=2).map(tuple),
    ),
    json_form=st.none() | FORMS,
    logprobs=st.booleans(),
    top_logprobs=st.integers(0, 5),
    repeat_index=st.integers(0, 9),
    ask_index=st.integers(0, 2),
    owner=TEXTS,
)


@given(CALLS, TEXTS)
def test_it_is_the_hash_of_canonical_json(call: Call, address: str) -> None:
    """Of a mapping, whatever its values are and however its text is put together."""
    sampling, form = call.sampling, call.json_form
    content = {
        "version": 1,
        "address": address,
        "model": call.model,
        "messages": [[message.role.value, message.text] for message in call.messages],
        "temperature": None if sampling.temperature is None else float(sampling.temperature),
        "top_p": None if sampling.top_p is None else float(sampling.top_p),
        "max_output_tokens": sampling.max_output_tokens,
        "seed": sampling.seed,
        "stop": sampling.stop,
        "schema": None if form is None else [form.name, form.text],
        "logprobs": [call.logprobs, call.top_logprobs],
        "repeat_index": call.repeat_index,
        "ask_index": call.ask_index,
    }
    if address and call.owner:
        content["owner"] = call.owner
    canonical = json.dumps(content, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    assert fingerprint(call, address) == hashlib.sha256(canonical.encode()).hexdigest()


@pytest.mark.parametrize(
    "other",
    [
        replace(FULL, model="n"),
        replace(FULL, messages=FULL.messages[1:]),
        replace(FULL, messages=(Message(Role.USER, "Judge."), FULL.messages[1])),
        replace(FULL, messages=(FULL.messages[0], Message(Role.USER, "Is it good?", ("Look.",)))),
        replace(FULL, messages=(FULL.messages[0], Message(Role.USER, "Is it good?", (PNG,)))),
        replace(FULL, sampling=replace(FULL.sampling, temperature=None)),
        replace(FULL, sampling=replace(FULL.sampling, top_p=0.8)),
        replace(FULL, sampling=replace(FULL.sampling, max_output_tokens=200)),
        replace(FULL, sampling=replace(FULL.sampling, seed=None)),
        replace(FULL, sampling=replace(FULL.sampling, stop=())),
        replace(FULL, json_form=None),
        replace(FULL, json_form=JsonForm("other", FULL.json_form.text if FULL.json_form else "")),
        # The order of members decides the order in which a model reasons.
        replace(FULL, json_form=JsonForm("verdict", '{"type": "object", "properties": {"a": {}, "b": {}}}')),
        replace(FULL, logprobs=False),
        replace(FULL, top_logprobs=4),
        replace(FULL, repeat_index=3),
        replace(FULL, ask_index=1),
    ],
)
def test_whatever_decides_the_answer_takes_part(other: Call) -> None:
    assert fingerprint(other) != fingerprint(FULL)


def test_each_byte_of_an_image_takes_part() -> None:
    made = [
        replace(PLAIN, messages=(Message(Role.USER, "Look.", (Image(data, "image/png"),)),))
        for data in (b"a", b"b")
    ]
    assert len({fingerprint(one) for one in made}) == 2


def test_the_endpoint_takes_part_where_it_is_named() -> None:
    assert len({fingerprint(FULL), fingerprint(FULL, "a"), fingerprint(FULL, "b")}) == 3


def test_the_owner_takes_part_where_the_endpoint_is_named() -> None:
    """Recordings are played back to whoever asks."""
    others = [replace(FULL, owner=owner) for owner in ("team-a", "team-b")]
    assert len({fingerprint(call, "a") for call in (FULL, *others)}) == 3
    assert {fingerprint(call) for call in others} == {fingerprint(FULL)}


def test_what_only_looks_different_does_not() -> None:
    spaced = JsonForm("verdict", '{"type":  "object","properties": {"b": {},\n"a": {}}}')
    zero = replace(FULL.sampling, temperature=0)
    assert fingerprint(replace(FULL, json_form=spaced, sampling=zero)) == fingerprint(FULL)
