"""The samples of a page as data: an index that filters read, and compressed blocks of whole samples.

The page's script inflates a block when a sample of it is opened, so that a page of many samples opens quickly
and stays small enough for e-mail.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from dramaturg.report.views.model import SampleView, SubjectView

BLOCK_SIZE = 50
"""The number of samples of a block."""

FAILED, DISAGREEMENT = 1, 2
"""The flags of a sample in the index."""

_OUTCOMES = {"pass": "p", "fail": "f", "number": "n"}
_FIRST_REASON = ord("A")
_TITLE_LENGTH = 300


class _Names:
    """Numbers values in order of first occurrence."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}

    def number(self, value: Any) -> int:
        """The number of a value."""
        return self._numbers.setdefault(value, len(self._numbers))

    def values(self) -> Sequence[Any]:
        """The values by number."""
        return list(self._numbers)


class SampleIndex:
    """What filters need of each sample: names, outcomes, tags.

    A sample is [index, title, id, flags, tags, models, kinds of its subjects, outcomes], a kind of subject
    [model, measures, tags]. Names are numbers; so are lists of numbers and kinds, which many samples share.
    The outcomes of all subjects follow one another, with a letter for each measure: p, f, n (a number), or
    for an abstention a capital letter that numbers its reason.
    """

    def __init__(self) -> None:
        self._models, self._measures, self._reasons = _Names(), _Names(), _Names()
        self._tags, self._kinds, self._lists = _Names(), _Names(), _Names()
        self._samples: list[Sequence[Any]] = []

    def add(self, shown: SampleView) -> None:
        """Adds a sample."""
        failed = FAILED if shown.failed else 0
        tags = dict.fromkeys((name, value) for name, value in (*shown.tags, *shown.filters))
        self._samples.append(
            [
                shown.index,
                shown.title[:_TITLE_LENGTH],
                shown.sample_id,
                failed | (DISAGREEMENT if shown.disagreement else 0),
                self._list(map(self._tags.number, tags)),
                self._list(map(self._models.number, dict.fromkeys(shown.models))),
                self._list(map(self._kind, shown.subjects)),
                "".join(map(self._outcomes, shown.subjects)),
            ]
        )

    def json(self) -> str:
        """The index as JSON that may stand in a script element."""
        index = {
            "models": self._models.values(),
            "measures": self._measures.values(),
            "reasons": self._reasons.values(),
            "tags": self._tags.values(),
            "kinds": self._kinds.values(),
            "lists": self._lists.values(),
            "blockSize": BLOCK_SIZE,
            "samples": self._samples,
        }
        return _dump(index).replace("<", "\\u003c")

    def _list(self, numbers: Iterable[int]) -> int:
        return self._lists.number(tuple(numbers))

    def _kind(self, subject: SubjectView) -> int:
        measures = self._list(self._measures.number(one.measure) for one in subject.judgements)
        tags = self._list(self._tags.number(tuple(pair)) for pair in subject.tags)
        return self._kinds.number((self._models.number(subject.model), measures, tags))

    def _outcomes(self, subject: SubjectView) -> str:
        return "".join(
            _OUTCOMES.get(one.outcome) or chr(_FIRST_REASON + self._reasons.number(one.reason))
            for one in subject.judgements
        )


def blocks(samples: Iterable[SampleView], index: SampleIndex) -> Iterator[str]:
    """Yields the blocks, and adds the samples to the index.

    A block is base64 of deflated JSON Lines, a view of a sample on each line. Defaults are left out.
    """
    lines: list[str] = []
    for shown in samples:
        index.add(shown)
        lines.append(_dump(_without_defaults(asdict(shown))))
        if len(lines) == BLOCK_SIZE:
            yield pack("\n".join(lines))
            lines = []
    if lines:
        yield pack("\n".join(lines))


def pack(text: str) -> str:
    """A text as base64 of deflated UTF-8, which stands in a page as it is."""
    return base64.b64encode(zlib.compress(text.encode("utf-8", "replace"), 9)).decode()


def _without_defaults(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_defaults(one) for key, one in value.items() if one or one == 0}
    if isinstance(value, list | tuple):
        return [_without_defaults(one) for one in value]
    return value


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
