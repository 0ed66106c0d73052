"""Reasoning and the answer, told apart by the marks of the models that are in use."""

from __future__ import annotations

import pytest

from dramaturg.judge.reasoning import separate


@pytest.mark.parametrize(
    ("text", "answer", "reasoning"),
    [
        ("<think>Hm.</think>\n\nPaint the wall.", "Paint the wall.", "Hm."),
        ("<think>\n\n</think>\n\nPaint.", "Paint.", ""),
        ("<thinking>Hm.</thinking>Paint.", "Paint.", "Hm."),
        ("<thought>Hm.</thought>\nPaint.", "Paint.", "Hm."),
        ("<reasoning>Hm.</reasoning>\nPaint.", "Paint.", "Hm."),
        ("[THINK]Hm.[/THINK]Paint.", "Paint.", "Hm."),
        ("◁think▷Hm.◁/think▷Paint.", "Paint.", "Hm."),
        ("<seed:think>Hm.</seed:think>Paint.", "Paint.", "Hm."),
        ("<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>Paint.<|END_RESPONSE|>", "Paint.", "Hm."),
        (
            "<|begin_of_thought|>Hm.<|end_of_thought|>\n<|begin_of_solution|>Paint.<|end_of_solution|>",
            "Paint.",
            "Hm.",
        ),
        ("Hm, well.\n</think>\n\nPaint.", "Paint.", "Hm, well."),
        ("Well.[/THINK]Paint.", "Paint.", "Well."),
        ("<think>One.</think><think>Two.</think>Paint.", "Paint.", "One.\n\nTwo."),
        ("1. Open it.\n<think>What next?</think>\n2. Paint.", "1. Open it.\n\n2. Paint.", "What next?"),
        (
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Paint.<|return|>",
            "Paint.",
            "Hm.",
        ),
        (
            (
                "<|start|>assistant<|channel|>analysis<|message|>Hm.<|end|>"
                "<|start|>assistant<|channel|>final <|constrain|>json<|message|>{}"
            ),
            "{}",
            "Hm.",
        ),
        ("<|channel|>final<|message|>Paint.", "Paint.", ""),
        ("analysisHm, it is simple.assistantfinalPaint.", "Paint.", "Hm, it is simple."),
    ],
)
def test_reasoning_is_taken_out_and_kept(text: str, answer: str, reasoning: str) -> None:
    separated = separate(text)
    assert (separated.text, separated.reasoning, separated.unfinished) == (answer, reasoning, False)


@pytest.mark.parametrize(
    ("text", "answer", "reasoning"),
    [
        ("<think>Hm, let me see", "", "Hm, let me see"),
        ("<think>\nOption 2", "", "Option 2"),
        ('<think>maybe {"rating": 3}', "", 'maybe {"rating": 3}'),
        ("[THINK]Hm", "", "Hm"),
        ("<think>One.</think>\nPaint.\n<think>Two", "Paint.", "One.\n\nTwo"),
        ("<|channel|>analysis<|message|>Hm, let me", "", "Hm, let me"),
    ],
)
def test_reasoning_without_an_end_is_no_answer(text: str, answer: str, reasoning: str) -> None:
    separated = separate(text)
    assert (separated.text, separated.reasoning, separated.unfinished) == (answer, reasoning, True)


@pytest.mark.parametrize(
    "text",
    [
        "Paint the wall.",
        "",
        "  Paint.\n",
        "analysis is the first step",
        "Write the tag <think> in the file, then </b>.",
        '{"rationale": "The script says </think> in step 2.", "met": true}',
        '{"rationale": "It begins with <think>, which is odd.", "met": true}',
        "a < b and [x] > c",
    ],
)
def test_an_answer_without_reasoning_is_left_as_it_is(text: str) -> None:
    separated = separate(text)
    assert (separated.text, separated.reasoning, separated.unfinished) == (text, "", False)
    assert separated.spans == ((0, len(text)),)


def test_the_spans_are_those_of_the_answer() -> None:
    text = "<think>Hm.</think>Yes\n<think>No?</think>indeed"
    separated = separate(text)
    assert "".join(text[start:end] for start, end in separated.spans) == "Yes\nindeed"


def test_many_marks_are_read_in_time() -> None:
    assert separate("<think>" * 30_000).unfinished
    assert separate("</think>" * 30_000 + "x").text.endswith("x")
    assert separate("<|channel|>analysis<|message|>" * 5_000).unfinished
