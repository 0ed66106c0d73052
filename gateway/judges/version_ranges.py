"""Expected versions of judges: exact versions and ranges of semantic versions.

A requirement is one version ("1.4.2"), or comparisons separated by commas that all hold (">=1.4,<2"). The
operators are ``==``, ``!=``, ``>=``, ``>``, ``<=`` and ``<``. Missing parts of a version are 0. A pre-release
is lower than its release (Semantic Versioning 2.0.0, section 11). Build metadata after ``+`` does not count.
Versions that are not semantic, for example a commit, match only as equal texts.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_VERSION = re.compile(
    r"v?(?P<release>\d{1,9}(?:\.\d{1,9}){0,3})(?:-(?P<pre>[0-9A-Za-z.-]{1,60}))?(?:\+[0-9A-Za-z.-]{1,60})?"
)
_COMPARISON = re.compile(r"(?P<operator>==|!=|>=|<=|>|<)?\s*(?P<version>[^\s,<>=!]{1,100})")
_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
}

_Key = tuple[tuple[int, ...], tuple[tuple[int, int, str], ...]]


@dataclass(frozen=True)
class VersionRange:
    """A parsed requirement. ``parse`` makes it."""

    comparisons: tuple[tuple[str, str], ...]
    """Operators and versions."""

    @classmethod
    def parse(cls, text: str) -> VersionRange:
        """Parses a requirement.

        Raises:
            ValueError: It is no requirement, or a range has a version that is not semantic.
        """
        comparisons = []
        for part in text.split(","):
            match = _COMPARISON.fullmatch(part.strip())
            if match is None:
                raise ValueError(
                    f"{part.strip()!r} is no version and no comparison like '>=1.4'; a range is "
                    "comparisons separated by commas, for example '>=1.4,<2'"
                )
            sign = match["operator"] or "=="
            if sign not in {"==", "!="} and _key(match["version"]) is None:
                raise ValueError(f"{match['version']!r} is no semantic version, which {sign!r} needs")
            comparisons.append((sign, match["version"]))
        return cls(tuple(comparisons))

    def contains(self, version: str) -> bool:
        """Whether a version meets all comparisons."""
        return all(_holds(sign, version, wanted) for sign, wanted in self.comparisons)


def _holds(sign: str, version: str, wanted: str) -> bool:
    left, right = _key(version), _key(wanted)
    if left is None or right is None:
        return (version == wanted) if sign == "==" else (sign == "!=" and version != wanted)
    return _OPERATORS[sign](left, right)


def _key(version: str) -> _Key | None:
    """A value that orders versions; None for versions that are not semantic."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return None
    release = tuple(int(part) for part in match["release"].split("."))
    release = (*release, *(0 for _ in range(4 - len(release))))
    if match["pre"] is None:
        return release, ((2, 0, ""),)
    # Numbers are lower than texts, and a release is higher than each of its pre-releases.
    return release, tuple(
        (0, int(part), "") if part.isdigit() else (1, 0, part) for part in match["pre"].split(".")
    )
