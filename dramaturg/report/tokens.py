"""The tokens that the report, the console and plots share: colours in both themes, type and spacing.

The outcomes are a blue, an orange and a grey, which people who are colour-blind tell apart too. A square, a
bar and an empty square say the same without colour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

COLOURS: Mapping[str, tuple[str, str]] = {
    "paper": ("#ffffff", "#15171c"),
    "panel": ("#f4f5f7", "#1e2129"),
    "ink": ("#1b1d22", "#e8e9ed"),
    "soft": ("#565a64", "#a9adb8"),
    "line": ("#d9dbe1", "#383c47"),
    "accent": ("#1f55b5", "#8fb8ff"),
    "pass": ("#0a5fa0", "#63b3ff"),
    "fail": ("#b03c00", "#ff9a62"),
    "abstain": ("#6d6a75", "#a5a1ad"),
    "low": ("#fbe9d7", "#4a2e1d"),
    "high": ("#a9cdf5", "#1d4f86"),
    "fault": ("#fdeee4", "#3d281d"),
    "marked": ("#fff4d6", "#3a3118"),
}
"""The colour of the light theme and that of the dark one, by name."""

SERIES: Sequence[tuple[str, str]] = (
    ("#1f55b5", "#8fb8ff"),
    ("#e65a10", "#d83207"),
    ("#5f282d", "#f6cda6"),
    ("#19a36e", "#873ff7"),
    ("#993018", "#3bfa33"),
    ("#c264b0", "#c37886"),
    ("#43296c", "#406aa7"),
)
"""The colours of models, groups and other series, in the order of their use. Marks differ too."""

MARKS: Mapping[str, str] = {"pass": "\u25a0", "fail": "\u2501", "abstain": "\u25a1"}
"""The mark that says each outcome without colour."""

_MEASURES = """\
  --text-small: 12.5px; --text-note: 13.5px; --text: 15px;
  --text-large: 19px; --text-lead: 20px; --text-title: 26px;
  --gap-1: 4px; --gap-2: 8px; --gap-3: 14px; --gap-4: 20px; --gap-5: 34px;
  --radius: 8px; --width: 1240px;
  --sans: system-ui, -apple-system, "Segoe UI", sans-serif; --mono: ui-monospace, "SF Mono", Menlo, monospace;
"""


def declarations() -> str:
    """The tokens as custom properties of CSS. Colours follow the property color-scheme."""
    series = {f"series-{number}": pair for number, pair in enumerate(SERIES)}
    colours = {**COLOURS, **series}.items()
    return (
        "".join(f"  --{name}: light-dark({light}, {dark});\n" for name, (light, dark) in colours) + _MEASURES
    )


def style() -> str:
    """The tokens of a page, in the theme of the system or in the one that the page names."""
    return (
        f":root {{\n  color-scheme: light dark;\n{declarations()}}}\n"
        ":root[data-theme=light] { color-scheme: light; }\n:root[data-theme=dark] { color-scheme: dark; }\n"
    )


def light(name: str) -> str:
    """A colour in the light theme, which files have."""
    return COLOURS[name][0]
