from __future__ import annotations

from pathlib import Path

import pytest

from dramaturg.formats.rubric import BUILTIN, RubricError, read_rubric, ready_rubrics
from dramaturg.judge.rules import check_rubric

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "texts" / "rubric.toml"


def test_the_example_has_verdicts_and_a_scale() -> None:
    criteria = {one.id: one for one in read_rubric(EXAMPLE)}
    assert criteria["at_most_80_words"].passes == "The answer has at most 80 words."
    assert (criteria["tone"].scale.lowest, criteria["tone"].scale.highest) == (1, 5)
    assert [anchor.value for anchor in criteria["tone"].scale.anchors] == [5, 3, 1]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[criteria]", "is not TOML"),
        ("", "has no [[criteria]]"),
        ("[[criteria]]\nid = 'a'\npass = 'x'", "criteria[0].pass: there is no such field; there are id, "),
        ("[[criteria]]\nid = 'Not snake'\npasses = 'x'", "criteria[0].id"),
        ("[[criteria]]\nid = 'a'\nscale = 5", "criteria.scale: "),
        ("[[criteria]]\nid = 'a'", "criteria[0].passes: must not be blank"),
        ("[[criteria]]\nid = 'a'\npasses = 'x'\n" * 2, "criteria[1]: is 'a', as is criteria[0]"),
        ("[[criteria]]\nid = 'a'\nrule.matches = '('", "criteria[0].rule: matches: is no regular expression"),
        ("\n".join(f"[[criteria]]\nid = 'c{index}'\npasses = 'x'" for index in range(51)), "criteria: "),
    ],
)
def test_a_file_that_is_no_rubric_is_refused(text: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "rubric.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(RubricError) as raised:
        read_rubric(file)
    assert problem in str(raised.value)


def test_a_byte_order_mark_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "rubric.toml"
    file.write_text("[[criteria]]\nid = 'a'\npasses = 'x'", encoding="utf-8-sig")
    assert [one.id for one in read_rubric(file)] == ["a"]


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "rubric.toml"
    file.write_bytes(b"\xff")
    with pytest.raises(RubricError, match="not UTF-8"):
        read_rubric(file)


@pytest.mark.parametrize("name", ready_rubrics())
def test_a_ready_rubric_is_valid(name: str) -> None:
    rubric = ready_rubrics()[name]
    assert list(check_rubric(rubric.criteria)) == []
    assert read_rubric(f"{BUILTIN}{name}") == rubric.criteria
    assert rubric.about
    assert rubric.takes in ("", "context", "instructions", "messages")


def test_an_unknown_ready_rubric_names_the_known_ones() -> None:
    with pytest.raises(RubricError, match="groundedness, relevance"):
        read_rubric("builtin:other")


def test_the_document_lists_the_ready_rubrics() -> None:
    text = (EXAMPLE.parents[2] / "docs" / "reference" / "texts.md").read_text(encoding="utf-8")
    table = text.partition("<!-- ready rubrics -->")[2].partition("<!-- end of ready rubrics -->")[0]
    rows = [
        f"| `{one.name}` | {one.version} | {one.about} | "
        f"{', '.join(f'`{criterion.id}`' for criterion in one.criteria)} | {one.takes} | {one.measured} |"
        for one in ready_rubrics().values()
    ]
    assert table.strip().splitlines()[2:] == rows
