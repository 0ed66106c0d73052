"""The tokens that report, console, plots and documentation share.

The colours of outcomes are told apart by people with each kind of colour blindness, in both themes.
"""

from __future__ import annotations

import math
import re
from itertools import combinations

import pytest

from docs.build import style as site_style
from docs.hooks import on_page_content
from dramaturg.report.charts import HEAT_STEPS, colour
from dramaturg.report.page import stylesheet
from dramaturg.report.tokens import SERIES
from dramaturg.tables.model import Cell

OUTCOMES = ("pass", "fail", "abstain")
BEHIND = ("paper", "panel")
LEAST_DISTANCE = 20.0
"""In CIE 1976 L*a*b*. About 2.3 can just be noticed (Mahy et al. 1994); these are marks of a few pixels."""
LEAST_CONTRAST = 4.5
"""Of text, by WCAG 2.2, success criterion 1.4.3."""

# The matrices of Machado, Oliveira and Fernandes (2009) for a whole loss of one kind of cone.
SIGHT = {
    "usual": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}

Colour = tuple[float, ...]


def token(name: str, theme: str) -> Colour:
    """A colour of a theme as linear red, green and blue."""
    found = re.search(rf"--{name}: light-dark\(#(\w{{6}}), #(\w{{6}})\)", stylesheet())
    assert found, name
    digits = found[1 if theme == "light" else 2]
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    return tuple(one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)


def seen(made: Colour, sight: str) -> Colour:
    """A colour as L*, a* and b* of what an eye sees."""
    red, green, blue = (
        max(0.0, sum(weight * part for weight, part in zip(row, made, strict=True))) for row in SIGHT[sight]
    )
    white = (0.9505, 1.0, 1.089)
    tristimulus = (
        0.4124 * red + 0.3576 * green + 0.1805 * blue,
        0.2126 * red + 0.7152 * green + 0.0722 * blue,
        0.0193 * red + 0.1192 * green + 0.9505 * blue,
    )
    x, y, z = (
        (part / full) ** (1 / 3) if part / full > 0.008856 else 7.787 * part / full + 16 / 116
        for part, full in zip(tristimulus, white, strict=True)
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def luminance(made: Colour) -> float:
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), made, strict=True))


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("sight", SIGHT)
def test_every_eye_tells_the_outcomes_apart(sight: str, theme: str) -> None:
    for one, other in combinations(OUTCOMES, 2):
        distance = math.dist(seen(token(one, theme), sight), seen(token(other, theme), sight))
        assert distance >= LEAST_DISTANCE, (one, other)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("sight", SIGHT)
def test_every_eye_tells_the_series_apart(sight: str, theme: str) -> None:
    series = [token(f"series-{number}", theme) for number in range(len(SERIES))]
    for one, other in combinations(series, 2):
        assert math.dist(seen(one, sight), seen(other, sight)) >= LEAST_DISTANCE


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_outcomes_are_legible_as_text(theme: str) -> None:
    for name in (*OUTCOMES, "ink", "soft", "accent"):
        for behind in BEHIND:
            low, high = sorted((luminance(token(name, theme)), luminance(token(behind, theme))))
            assert (high + 0.05) / (low + 0.05) >= LEAST_CONTRAST, (name, behind)


def test_a_file_has_the_colours_of_the_light_theme() -> None:
    ends = (0.0, 1.0)
    for name, place in (("low", 0.0), ("high", 1.0)):
        assert f"--{name}: light-dark({colour(Cell('', heat=place), ends)}, " in stylesheet()
    assert HEAT_STEPS == 10


def test_an_empty_corner_of_a_table_of_the_site_heads_nothing() -> None:
    rows = '<tr><th></th><th style="text-align: right;"></th><th>name</th></tr>'
    assert on_page_content(rows) == '<tr><td></td><td style="text-align: right;"></td><th>name</th></tr>'


@pytest.mark.parametrize("sheet", [stylesheet(), site_style()], ids=["report", "site"])
def test_a_style_sheet_uses_what_it_declares(sheet: str) -> None:
    declared, used = (set(re.findall(pattern, sheet)) for pattern in (r"--([\w-]+):", r"var\(--([\w-]+)"))
    assert used
    assert used <= declared
