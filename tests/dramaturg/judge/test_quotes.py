"""Quotes are found in their part, and nothing else is."""

from __future__ import annotations

import random
import unicodedata
from typing import Literal

import pytest

from dramaturg.api.common.v1.content_pb2 import Document
from dramaturg.api.common.v1.script_pb2 import Task
from dramaturg.api.common.v1.verdict_pb2 import Span
from dramaturg.judge.quotes import CONTEXT, MAX_PLACED_CHARACTERS, REFERENCE, TEXT, Sources, normalized

PROSE = (
    "Die Bestellung\u00a0wird am Montag, dem 3. Mai, verschickt; \u201esofort\u201c hei\u00dft: am selben "
    "Tag. Caf\u00e9s in Z\u00fcrich \ufb01nden das gut. The fee is 12 \u20ac for 2\u00bd kg \U0001f69a and "
    "nothing else. "
    "\ud55c\uad6d\uc5b4 \u6587\u7ae0\u3067\u3059\u3002 A re\u0301sume\u0301 has e\u0301 twice."
)
WORDS = PROSE.split()
FORMS: tuple[Literal["NFC", "NFD", "NFKC", "NFKD"], ...] = ("NFC", "NFD", "NFKC", "NFKD")


def spaced(rng: random.Random, words: list[str]) -> str:
    return "".join(word + rng.choice((" ", "  ", "\n", " \t")) for word in words).strip()


def found(part: str, quote: str, sources: Sources) -> Span:
    span = Span(part=part, quote=quote)
    sources.locate(span)
    return span


def test_true_quotes_are_found_and_fabricated_spliced_and_misattributed_ones_are_not() -> None:
    rng = random.Random(4)
    counts = dict.fromkeys(("true", "fabricated", "spliced", "misattributed"), 0)
    for _ in range(100):
        texts = [rng.sample(WORDS, len(WORDS)) for _ in range(3)]
        text, document, reference = (spaced(rng, words) for words in texts)
        sources = Sources(
            Task(goal="g", context=[Document(text="other")]), [text], [Document(text=document)], reference
        )
        begin = rng.randrange(len(WORDS) - 8)
        words = texts[0][begin : begin + 8]
        form = rng.choice(FORMS)
        true = unicodedata.normalize(form, spaced(rng, words))
        span = found(TEXT, true, sources)
        counts["true"] += span.found
        assert normalized(text[span.start : span.end]) == normalized(true)
        changed = [*words[:4], "never", *words[4:]]
        counts["fabricated"] += not found(TEXT, " ".join(changed), sources).found
        spliced = " ".join([*words[:3], "...", *words[6:]])
        counts["spliced"] += not found(TEXT, spliced, sources).found
        counts["misattributed"] += not any(found(part, true, sources).found for part in (CONTEXT, REFERENCE))
    assert set(counts.values()) == {100}


@pytest.mark.parametrize(
    ("part", "quote", "place"),
    [
        ("", "on Monday", (True, 0, 10, 19)),
        (CONTEXT, "ship", (True, 1, 7, 11)),
        (CONTEXT, "It ships", (False, 0, 0, 0)),
        ("elsewhere", "on Monday", (False, 0, 0, 0)),
        (TEXT, " \n", (False, 0, 0, 0)),
        (TEXT, "[U+202E]!", (True, 0, 0, 0)),
    ],
)
def test_a_span_says_where_it_was_found(part: str, quote: str, place: tuple[bool, int, int, int]) -> None:
    task = Task(goal="g", context=[Document(text="none")])
    sources = Sources(task, ["It ships  on Monday\u202e!"], [Document(text="Orders ship.")], "")
    span = Span(part=part, quote=quote, found=True, index=9, start=9, end=9)
    sources.locate(span)
    assert (span.found, span.index, span.start, span.end) == place
    assert (span.part, span.quote) == (part or TEXT, quote)


def test_a_long_text_is_searched_in_little_time() -> None:
    sources = Sources(Task(goal="g"), ["e\u0301 " * 60_000 + "end"], [], "")
    span = found(TEXT, "\u00e9 end", sources)
    assert span.found
    assert span.end == 180_003


def test_places_are_looked_for_in_a_bounded_number_of_characters() -> None:
    documents = [Document(text=f"{number}  " * (MAX_PLACED_CHARACTERS // 8)) for number in range(1, 9)]
    sources = Sources(Task(goal="g"), [""], documents, "")
    spans = [found(CONTEXT, f"{number} {number}", sources) for number in range(1, 9)]
    assert all(span.found for span in spans)
    # Three characters a word: two documents have less than the bound together, the third one exceeds it.
    assert [bool(span.end) for span in spans] == [True, True, *[False] * 6]
    assert found(CONTEXT, "1 1", sources).end == spans[0].end
