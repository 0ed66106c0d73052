from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.script_pb2 import Candidate
from dramaturg.judge.reasoning import blanked
from dramaturg.judge.steps import is_blank, parse_candidate, parse_listing, split_steps
from tests.support.judges import candidate

ABC = ("a", "b", "c")

LISTS = {
    "1. a\n2. b\n3. c": ABC,
    "1) a\n2) b\n3) c": ABC,
    "(1) a\n(2) b\n(3) c": ABC,
    "1: a\n2: b\n3: c": ABC,
    "1 - a\n2 - b\n3 - c": ABC,
    "**1.** a\n**2.** b\n**3.** c": ABC,
    "Step 1: a\nStep 2: b\nStep 3: c": ABC,
    "### Step 1\na\n### Step 2\nb\n### Step 3\nc": ABC,
    "**Step 1:** a\n**Step 2:** b\n**Step 3:** c": ABC,
    "- a\n- b\n- c": ABC,
    "• a\n• b\n• c": ABC,
    "- [ ] a\n- [x] b\n- [ ] c": ABC,
    "第一步：a\n第二步：b\n第三步：c": ABC,
    "第1步，a\n第2步，b\n第3步，c": ABC,
    "步骤一：a\n步骤二：b\n步骤三：c": ABC,
    "1、a\n2、b\n3、c": ABC,
    "一、a\n二、b\n三、c": ABC,
    "（一）a\n（二）b\n（三）c": ABC,
    "１．a\n２．b\n３．c": ABC,
    "①a②b③c": ABC,
    "1\ufe0f\u20e3 a\n2\ufe0f\u20e3 b\n3\ufe0f\u20e3 c": ABC,
    "1. a 2. b 3. c": ABC,
    "Step 1: a Step 2: b Step 3: c": ABC,
    "第一步烧水 第二步泡茶 第三步喝茶": ("烧水", "泡茶", "喝茶"),
    "1.烧水。2.泡茶。3.喝茶。": ("烧水。", "泡茶。", "喝茶。"),
    "1. a\r\n2. b\r\n3. c": ABC,
    "0. a\n1. b\n2. c": ABC,
    "1. a\n1. b\n1. c": ABC,
    "3. a\n4. b\n5. c": ABC,
    "1. a 2. b\n3. c": ABC,
    "1. a\n\n2. b\n\n3. c": ABC,
    "```\n1. a\n2. b\n3. c\n```": ABC,
    "1. a": ("a",),
    "1. a\n   more of a\n2. b": ("a\nmore of a", "b"),
    "1. a\n   1. x\n   2. y\n2. b": ("a\n1. x\n2. y", "b"),
    "1. a\n  - x\n  - y\n2. b": ("a\n- x\n- y", "b"),
    "Step 1: a\n1. x\n2. y\nStep 2: b\n1. z": ("a\n1. x\n2. y", "b\n1. z"),
    "1. **Boil:** heat\n2. **Brew:** pour": ("**Boil:** heat", "**Brew:** pour"),
    "**1. Boil:** heat\n**2. Brew:** pour": ("**Boil:** heat", "**Brew:** pour"),
    "1. Add 2.5 cups of milk\n2. Bake at\n10. Then rest\n3. Eat": (
        "Add 2.5 cups of milk",
        "Bake at\n10. Then rest",
        "Eat",
    ),
    "1. Meet at 10:30\n2. Founded in 1999. Sold in 2001. Done": (
        "Meet at 10:30",
        "Founded in 1999. Sold in 2001. Done",
    ),
    "Heat the water\nAdd the tea\nPour it": ("Heat the water", "Add the tea", "Pour it"),
    "10. a\n11. b\n12. c": ABC,
    "第九步：a\n第十步：b\n第十一步：c": ABC,
    "| Step | Action |\n|------|--------|\n| 1 | a |\n| 2 | b |\n| 3 | c |": ABC,
    "Step | Action\n--- | :-:\n1 | a\n2 | b\n3 | c": ABC,
    "| Step 1 | a |\n|---|---|\n| **Step 2** | b |\n| Step 3 | c |": ABC,
    "| 第1步 | a |\n|---|---|\n| 第2步 | b |\n| 第3步 | c |": ABC,
    "| Action |\n|---|\n| a |\n| b |\n| c |": ABC,
    "| # | Action | Time |\n|--|--|--|\n| 1 | Use 1 \\| 2 cups | 5 min |\n| 2 | b | |": (
        "Use 1 | 2 cups | 5 min",
        "b",
    ),
    # Only the numbered table is of steps.
    "| Item | g |\n|-|-|\n| Tea | 2 |\n\n| # | Do |\n|-|-|\n| 1 | a |\n| 2 | b |\n| 3 | c |": ABC,
    "a\n---\n1. a\n\n---\n2. b\n***\n3. c": ABC,
    "Heat the water\n---\nAdd the tea\n---\nPour it": ("Heat the water", "Add the tea", "Pour it"),
}


@pytest.mark.parametrize(("text", "steps"), LISTS.items())
def test_splits_lists_in_all_their_forms(text: str, steps: tuple[str, ...]) -> None:
    assert split_steps(text) == steps


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n\t ",
        "You heat some water and pour it over a tea bag.",
        "Heat the oven to level 10. Then wait until 11. Then eat.",
        "Use 2.5 cups of milk and 3.5 spoons of sugar.",
        "10:30 we meet.\n11:30 we leave.",
        "In 2019. It began.\nIn 2020. It ended.",
        "2019. It began.\n2020. It ended.",
        "It was 1. Nobody came.",
        "The recipe is from the 1980s, and says\nthat one should first of all heat the\noven and then wait.",
        "First heat it. Then drink it.\nIt is good. Try it.\nBe careful. It is hot.",
        "1. \n2. \n3. ",
        "-5 degrees outside\n-7 degrees in the north",
        "| Item | Amount |\n|---|---|\n| Tea | Two |\n| Water | Three |\n| Milk | Four |",
        "| # | Item |\n|---|---|\n| 1 | Tea |\n| 3 | Milk |\n| 4 | Water |",
        "| Step | Action |\n|---|---|",
    ],
)
def test_finds_no_steps_where_there_are_none(text: str) -> None:
    assert split_steps(text) == ()


def test_keeps_what_stands_around_the_steps() -> None:
    listing = parse_listing("Sure! You need a pot.\n\n1. Heat it.\n2. Eat it.\n\nEnjoy!\nIt is good.")
    assert listing.steps == ("Heat it.", "Eat it.")
    assert listing.preamble == "Sure! You need a pot."
    assert listing.notes == "Enjoy!\nIt is good."


def test_keeps_what_stands_around_a_table_and_its_heading() -> None:
    listing = parse_listing(
        "My plan:\n\n| # | Action |\n|---|---|\n| 1 | Heat it. |\n| 2 | Eat it. |\n\nEnjoy!"
    )
    assert listing.steps == ("Heat it.", "Eat it.")
    assert listing.preamble == "My plan:\n| # | Action |"
    assert listing.notes == "Enjoy!"


def test_a_line_that_says_note_is_no_part_of_the_last_step() -> None:
    listing = parse_listing("1. Heat it.\n2. Eat it.\n**Note:** it is hot.")
    assert (listing.steps[-1], listing.notes) == ("Eat it.", "**Note:** it is hot.")


FORMS = [
    "{n}. {step}",
    "{n}) {step}",
    "({n}) {step}",
    "Step {n}: {step}",
    "**{n}.** {step}",
    "{n}、{step}",
    "- {step}",
]
# Words that cannot be taken for a mark, with numbers that could.
WORDS = st.sampled_from(
    ["Heat", "the", "oven", "2.5", "cups", "at 10", "水", "3/4", "well.", "12:30", "(hot)", "1999"]
)
STEP = st.lists(WORDS, min_size=1, max_size=8).map(lambda words: "Do " + " ".join(words))


@given(
    st.lists(STEP, min_size=2, max_size=30), st.sampled_from(FORMS), st.sampled_from(["\n", "\n\n", "\r\n"])
)
def test_steps_that_were_formatted_are_read_again(steps: list[str], form: str, between: str) -> None:
    text = between.join(form.format(n=n, step=step) for n, step in enumerate(steps, start=1))
    assert split_steps(text) == tuple(steps)


@given(
    st.lists(STEP, min_size=2, max_size=12),
    st.sampled_from(["Here it is:\n", "Sure.\n\n"]),
    st.sampled_from(FORMS),
)
def test_a_preamble_does_not_change_the_steps(steps: list[str], preamble: str, form: str) -> None:
    text = preamble + "\n".join(form.format(n=n, step=step) for n, step in enumerate(steps, start=1))
    listing = parse_listing(text)
    assert listing.steps == tuple(steps)
    assert listing.preamble == preamble.strip()


LINE = st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(
    [
        "1. ",
        "2) ",
        "Step 3: ",
        "- ",
        "第二步",
        "①",
        "\n",
        "**",
        "# ",
        "Note: ",
        "\u2028",
        "一、",
        "百",
        "１．",
        "|",
        "\n|---|---|\n",
        "\n| 1 | ",
        "\n| Step 2 | ",
        "\n---\n",
    ]
)


@given(st.lists(LINE, max_size=30).map("".join))
@example("百百百、\n一百零、")
@example("⑳ ㉑ ²")
@example("1" * 5000)
@example("0.:<THOUGHT>")
def test_never_raises_and_loses_no_words(text: str) -> None:
    listing = parse_listing(text)
    assert all(not is_blank(step) for step in listing.steps)
    if not listing.steps:
        return
    kept = "".join((listing.preamble, *listing.steps, listing.notes))
    letters = [letter for letter in blanked(text) if letter.isalpha() and not is_mark(letter)]
    assert [letter for letter in kept if letter.isalpha() and not is_mark(letter)] == letters


def is_mark(letter: str) -> bool:
    """Letters that also stand in marks, such as those of "Step 3" and "第二步"."""
    return letter in "stepSTEP第步一二三四五六七八九十百零两xX" or letter.isnumeric() or not letter.isascii()


@pytest.mark.parametrize(
    "text",
    [
        "| a | b |\n|---|---|\n" * 10_000,
        "| 1 | a |\n|-|-|\n" + "| 2 | b |\n" * 20_000,
        "1. a\n" * 40_000,
        "1. " * 60_000,
        "- a\n" * 50_000,
        "(" * 200_000,
        "\n" * 200_000,
    ],
)
@pytest.mark.timeout(20)
def test_long_texts_are_read_in_linear_time(text: str) -> None:
    parse_listing(text)


def test_separated_steps_keep_their_places() -> None:
    read = parse_candidate(candidate("Heat it.", " ", "1. Eat it."))
    assert read.steps == ("Heat it.", " ", "1. Eat it.")
    assert read.reading == verdict_pb2.READING_STEPS


@pytest.mark.parametrize(
    "empty",
    [Candidate(id="a"), Candidate(id="a", text=" \n\u200b\ufeff"), candidate(), candidate(" ", "\t")],
)
def test_blank_content_is_an_empty_candidate(empty: Candidate) -> None:
    read = parse_candidate(empty)
    assert (read.reading, read.steps) == (verdict_pb2.READING_EMPTY, ())


def test_a_text_without_steps_is_read_as_text() -> None:
    read = parse_candidate(Candidate(id="a", text="Just heat it and eat it."))
    assert (read.reading, read.steps, read.text) == (verdict_pb2.READING_TEXT, (), "Just heat it and eat it.")


@pytest.mark.parametrize(("count", "read"), [(999, 999), (1000, 1000), (1001, 0), (1500, 0)])
def test_a_list_of_up_to_a_thousand_steps_is_read_and_a_longer_one_is_text(count: int, read: int) -> None:
    steps = split_steps("\n".join(f"{number}. Turn the page" for number in range(1, count + 1)))
    assert len(steps) == read


def test_a_year_at_the_start_of_a_line_is_no_step_number() -> None:
    assert split_steps("1. Read the news of\n2019. It is old.\n2. Sleep") == (
        "Read the news of\n2019. It is old.",
        "Sleep",
    )
