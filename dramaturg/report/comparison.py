"""The page that compares results with a baseline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.report.page import SAMPLES_SHOWN, Content, Heading, Tile, render_page
from dramaturg.report.sample_view import SampleView
from dramaturg.report.views import view
from dramaturg.tables.comparison import CHANGES, FLIPPED, Comparison, change_counts, lead, sections


def render_comparison(
    title: str,
    comparison: Comparison,
    samples: Mapping[str, Iterable[RunSample]],
    limit: int = SAMPLES_SHOWN,
    *,
    total: int | None = None,
) -> Iterator[str]:
    """Renders the page in pieces.

    Args:
        title: The title.
        comparison: The comparison.
        samples: The samples of each result. Those of the same id are shown together.
        limit: The maximum number of samples shown one by one.
        total: The number of samples that the page could show. None: all of them.
    """
    first, *others = comparison.runs
    heading = Heading(
        title, [("baseline", first), ("compared", ", ".join(others))], notes=comparison.left_out
    )
    paired = _paired(comparison, samples)
    if total is None:
        total = max(summary.sample_count for summary in comparison.summaries.values())
    shown = list(sections(comparison))
    changes = sum(section.title in {CHANGES, *FLIPPED.values()} for section in shown)
    tiles = [Tile(*one) for one in change_counts(comparison)]
    content = Content(lead(comparison), tiles, shown, samples_after=changes)
    yield from render_page(heading, content, paired, total, limit)


def _paired(comparison: Comparison, samples: Mapping[str, Iterable[RunSample]]) -> Iterator[SampleView]:
    """The samples of the same id in all results as one each, with what changed as tags."""
    tags: dict[str, dict[tuple[str, str], None]] = {}
    parts: dict[str, dict[str, dict[tuple[str, str], None]]] = {}
    for one in comparison.flips:
        change = one.direction, one.aspect
        tags.setdefault(one.sample, {})[change] = None
        parts.setdefault(one.sample, {}).setdefault(one.subject, {})[change] = None
    waiting: dict[str, dict[str, SampleView]] = {}
    readers = {run: iter(some) for run, some in samples.items()}
    place = 0
    while readers:
        for run, reader in list(readers.items()):
            sample = next(reader, None)
            if sample is None:
                del readers[run]
                continue
            shown = view(sample)
            key = shown.sample_id or shown.title
            found = waiting.setdefault(key, {})
            found[run] = shown
            if len(found) == len(samples):
                changes = tags.get(key, {}), parts.get(key, {})
                yield _merged(waiting.pop(key), comparison.runs, *changes, place)
                place += 1
    for key, found in waiting.items():
        yield _merged(found, comparison.runs, tags.get(key, {}), parts.get(key, {}), place)
        place += 1


def _merged(
    found: Mapping[str, SampleView],
    runs: Sequence[str],
    changes: Iterable[tuple[str, str]],
    parts: Mapping[str, Iterable[tuple[str, str]]],
    place: int,
) -> SampleView:
    whole = [(run, found[run]) for run in runs if run in found]
    _, first = next((one for one in whole if not one[1].failed), whole[0])
    subjects = [
        replace(
            subject,
            title=f"{run}: {subject.title}".rstrip(": "),
            tags=[*subject.tags, *parts.get(subject.title, parts.get(subject.model, ()))],
        )
        for run, one in whole
        for subject in one.subjects
    ]
    errors = [f"{run}: {one.error}" for run, one in whole if one.error]
    missing = [f"{run}: the sample is missing" for run in runs if run not in found]
    return replace(
        first,
        index=place,
        subjects=sorted(subjects, key=lambda subject: subject.model),
        error="; ".join([*errors, *missing]),
        failed=bool(errors),
        filters=[*first.filters, *changes],
        disagreement="; ".join(f"{direction} by {aspect}" for direction, aspect in changes),
    )
