"""The card of a sample as static HTML, for notebooks: what the report shows of it, without a script.

Judged texts are untrusted: all text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from html import escape

from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.report.sample_view import Block, JudgementView, ProvenanceView, StepView, SubjectView
from dramaturg.report.tokens import MARKS, declarations
from dramaturg.report.views import view

_CLASS = "dramaturg-card"
_STYLE = """
.dramaturg-card { font: var(--text)/1.45 var(--sans); color: var(--ink); background: var(--paper);
  border: 1px solid var(--line); border-radius: var(--radius); padding: var(--gap-3); max-width: 100%; }
.dramaturg-card table { border-collapse: collapse; }
.dramaturg-card th, .dramaturg-card td { text-align: left; vertical-align: top; padding: 3px 10px;
  border-bottom: 1px solid var(--line); background: none; color: var(--ink); }
.dramaturg-card .text { white-space: pre-wrap; overflow-wrap: anywhere; }
.dramaturg-card .note { color: var(--soft); }
.dramaturg-card .pass { color: var(--pass); } .dramaturg-card .fail { color: var(--fail); }
.dramaturg-card .abstain { color: var(--abstain); }
"""


def card(sample: RunSample) -> str:
    """The card of a sample: its judgements as a table, then each subject with its text and faults."""
    shown = view(sample)
    parts = [
        f"<style>{_style()}</style><p><b>{escape(shown.title)}</b></p>",
        f"<p class='fail'>{escape(shown.error)}</p>" if shown.error else "",
        _facts([*shown.facts, *shown.tags]),
        _table(shown.subjects),
        *(_block(one) for one in shown.blocks),
        *(_subject(one) for one in shown.subjects),
    ]
    return f"<div class='{_CLASS}'>{''.join(parts)}</div>"


@cache
def _style() -> str:
    # The tokens of the report, for this card alone.
    return f".{_CLASS} {{\n  color-scheme: light dark;\n{declarations()}}}\n{_STYLE}"


def _facts(pairs: Iterable[tuple[str, str]]) -> str:
    facts = "; ".join(f"{escape(name)}: {escape(value)}" for name, value in pairs)
    return f"<p class='note'>{facts}</p>" if facts else ""


def _table(subjects: Sequence[SubjectView]) -> str:
    measures = list(dict.fromkeys(one.measure for subject in subjects for one in subject.judgements))
    if not measures:
        return ""
    head = "".join(f"<th scope='col'>{escape(measure)}</th>" for measure in measures)
    rows = []
    for subject in subjects:
        by_measure = {one.measure: one for one in subject.judgements}
        cells = "".join(
            f"<td>{_badge(by_measure[measure]) if measure in by_measure else ''}</td>" for measure in measures
        )
        rows.append(f"<tr><th scope='row'>{escape(_name(subject))}</th>{cells}</tr>")
    return f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _name(subject: SubjectView) -> str:
    return " ".join(filter(None, (subject.title, subject.model and f"({subject.model})")))


def _badge(one: JudgementView) -> str:
    words = " ".join(filter(None, (MARKS.get(one.outcome, ""), one.label, one.reason)))
    return f"<span class='{escape(one.outcome)}'>{escape(words)}</span>"


def _block(block: Block) -> str:
    is_open = " open" if block.open else ""
    inside = f"<div class='text'>{escape(block.text)}</div>" if block.text else ""
    return (
        f"<details{is_open}><summary>{escape(block.title)}</summary>{inside}{_steps(block.steps)}</details>"
    )


def _steps(steps: Sequence[StepView]) -> str:
    if not steps:
        return ""
    return f"<ol>{''.join(_step(one) for one in steps)}</ol>"


def _step(step: StepView) -> str:
    faults = "".join(f"<div class='fail'>{escape(fault)}</div>" for fault in step.faults)
    mark = f" <b>{escape(step.mark)}</b>" if step.mark else ""
    images = "".join(f"<div><img src='{escape(url)}' alt='image' width='240'></div>" for url in step.images)
    return f"<li><span class='text'>{_marked(step.text, step.marks)}</span>{mark}{images}{faults}</li>"


def _subject(subject: SubjectView) -> str:
    inside = [
        f"<div class='text'>{_marked(subject.text, subject.marks)}</div>" if subject.text else "",
        _steps(subject.steps),
        *(f"<p class='note'>{escape(note)}</p>" for note in subject.notes),
        *(_judgement(one) for one in subject.judgements),
        *(f"<p class='note'>{'; '.join(_provenance(one))}</p>" for one in subject.provenances),
    ]
    return f"<details><summary>{escape(_name(subject))}</summary>{''.join(inside)}</details>"


def _marked(text: str, marks: Sequence[tuple[int, int, str]]) -> str:
    """A text with the words marked that findings rest on."""
    parts, done = [], 0
    for start, end, why in marks:
        parts.append(escape(text[done:start]))
        parts.append(f"<mark title='{escape(why)}'>{escape(text[start:end])}</mark>")
        done = end
    return "".join([*parts, escape(text[done:])])


def _judgement(one: JudgementView) -> str:
    stated = one.confidence and f"confidence {one.confidence}"
    details = ", ".join(filter(None, (one.judge, stated)))
    findings = "".join(f"<li class='fail'>{escape(finding)}</li>" for finding in one.findings)
    return (
        f"<p><b>{escape(one.measure)}</b> {_badge(one)} <span class='note'>{escape(details)}</span> "
        f"{escape(one.rationale)}</p>" + (f"<ul>{findings}</ul>" if findings else "")
    )


def _provenance(one: ProvenanceView) -> Iterator[str]:
    yield escape(one.judge)
    yield from map(escape, one.prompts)
    for call in one.calls:
        yield escape(" ".join(filter(None, (call.model, call.tokens, call.cost, call.latency))))
