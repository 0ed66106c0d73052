"""A judge's certificate for people: its outcome as text, and a page without requests or scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from dramaturg.api.evaluation.v1.judge_certificate_pb2 import (
    PROPERTY_CONCLUSION_NOT_APPLICABLE,
    JudgeCertificate,
    PropertyConclusion,
)
from dramaturg.report import tokens
from dramaturg.results.names import value_name

_STYLE = """
body { font: var(--text)/1.45 var(--sans); color: var(--ink); background: var(--paper);
  max-width: var(--width); margin: var(--gap-4) auto; padding: 0 var(--gap-4); }
h1 { font-size: var(--text-title); }
dt { color: var(--soft); }
dd { margin: 0 0 var(--gap-2); overflow-wrap: anywhere; }
table { border-collapse: collapse; }
th, td { text-align: left; vertical-align: top; padding: var(--gap-1) var(--gap-3);
  border-bottom: 1px solid var(--line); }
.note { color: var(--soft); font-size: var(--text-note); }
.pass { color: var(--pass); } .fail { color: var(--fail); } .abstain { color: var(--abstain); }
@media (max-width: 600px) {
  body { margin: var(--gap-3) 0; padding: 0 var(--gap-3); }
  table, tbody, tr, td { display: block; } thead { display: none; }
  tr { border-bottom: 1px solid var(--line); padding: var(--gap-2) 0; }
  td { border: 0; padding: 0; } td:empty { display: none; }
  td[data-label]::before { content: attr(data-label) ": "; color: var(--soft); }
}
"""
_STYLES = {"within": "pass", "may replace": "pass", "outside": "fail"}
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_FOOT = (
    "Within: both bounds lie within the tolerance. Outside: both lie beyond it. Not shown: these cases do not"
    " decide it. Each bound has a one-sided error of 5 %. Cases are treated as independent."
)


@dataclass(frozen=True)
class PropertyRow:
    """A property as pages show it, in texts. Empty: it has none."""

    name: str
    figure: str
    conclusion: str
    value: str
    bounds: str
    tolerance: str
    cases: str

    @property
    def style(self) -> str:
        """The style of the conclusion: "pass", "fail" or "abstain"."""
        return _STYLES.get(self.conclusion, "abstain")

    @property
    def mark(self) -> str:
        """A mark of the conclusion that does not need colour."""
        return tokens.MARKS[self.style]


def property_rows(certificate: JudgeCertificate) -> Sequence[PropertyRow]:
    """The rows of a certificate that a gateway keeps."""
    return [
        _row(
            {
                "name": one.name,
                "figure": one.figure,
                "conclusion": _conclusion(one.conclusion),
                "tolerance": one.tolerance,
                "case_count": one.case_count,
                **{
                    key: getattr(one, key) if one.HasField(key) else None
                    for key in ("value", "lower", "upper")
                },
            }
        )
        for one in certificate.properties
    ]


def certificate_outcome(certificate: JudgeCertificate) -> str:
    """The number of each conclusion, e.g. "9 within, 1 outside, 2 not shown", without what was not tested."""
    counts = Counter(one.conclusion for one in certificate.properties)
    names = {
        number: _conclusion(number)
        for number in PropertyConclusion.values()
        if number != PROPERTY_CONCLUSION_NOT_APPLICABLE
    }
    return ", ".join(f"{counts[number]} {name}" for number, name in names.items() if counts[number])


def certificate_page(certificate: Mapping[str, Any]) -> str:
    """The page of a certificate, given as its JSON object (``conformance.Certificate.to_json``)."""
    title = f"{certificate['role']}: {certificate['name']} {certificate['version']}"
    facts = {
        "Measured": certificate["measured_at"],
        "Requested model": certificate["model"] or "the default",
        "Models": ", ".join(certificate["models"]) or "none",
        "Prompts": ", ".join(f"{name} {digest[:12]}" for name, digest in certificate["prompts"].items())
        or "none",
        "Sets": ", ".join(digest[:12] for digest in certificate["sets"]),
        "Requests": f"{certificate['request_count']}, {len(certificate['errors'])} failed",
        "Cases with an abstention": str(certificate["abstained"]),
    }
    described = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())
    heads = ("property", "conclusion", "value", "bounds", "tolerance", "cases")
    head = "".join(f"<th scope='col'>{name}</th>" for name in heads)
    rows = "".join(_as_html(_row(one)) for one in certificate["properties"])
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<meta name='viewport' content='width=device-width'><title>{escape(title)}</title>"
        f"<style>{tokens.style()}{_STYLE}</style></head><body><h1>{escape(title)}</h1>"
        f"<dl>{described}</dl><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        f"<p class='note'>{_FOOT}</p></body></html>\n"
    )


def _conclusion(number: PropertyConclusion.ValueType) -> str:
    return value_name(PropertyConclusion, number).lower().replace("_", " ")


def _row(one: Mapping[str, Any]) -> PropertyRow:
    """The row of a property, given as a member of a certificate's JSON object."""
    return PropertyRow(
        name=one["name"],
        figure=one["figure"],
        conclusion=one["conclusion"],
        value="" if one["value"] is None else f"{one['value']:.3f}",
        bounds="" if one["lower"] is None else f"{one['lower']:.3f} to {one['upper']:.3f}",
        tolerance=f"{one['tolerance']:g}" if one["tolerance"] else "",
        cases=str(one["case_count"] or ""),
    )


def _as_html(row: PropertyRow) -> str:
    labelled = {"value": row.value, "bounds": row.bounds, "tolerance": row.tolerance, "cases": row.cases}
    cells = "".join(f"<td data-label='{label}'>{text}</td>" for label, text in labelled.items())
    return (
        f"<tr><td>{escape(row.name)}<br><span class='note'>{escape(row.figure)}</span></td>"
        f"<td><span class='{row.style}'>{row.mark} {escape(row.conclusion)}</span></td>{cells}</tr>"
    )
