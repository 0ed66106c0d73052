from __future__ import annotations

from bench.prompt_tokens import BEGIN, DOCUMENT, END, measure, table, tokens


async def test_the_documented_tokens_are_those_of_the_prompts() -> None:
    """After a change on purpose: python -m bench.prompt_tokens --write."""
    documented = DOCUMENT.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    assert documented.strip() == table(await measure(), await measure(severity=True)).strip()


def test_a_token_is_four_characters() -> None:
    assert [tokens("x" * length) for length in (0, 1, 4, 5)] == [0, 1, 1, 2]


async def test_the_fixed_part_is_the_same_for_all_calls_of_a_judge() -> None:
    for name, sent in (await measure()).calls.items():
        # One of the candidates has no steps that findings could name.
        assert len({one.system for one in sent}) == (1 if name == "synthesize" else 2), name
