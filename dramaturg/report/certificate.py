"""A judge's certificate for people: its outcome as text, and a page without requests or scripts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from html import escape
from typing import Any

from dramaturg.api.evaluation.v1.judge_certificate_pb2 import (
    PROPERTY_CONCLUSION_NOT_APPLICABLE,
    JudgeCertificate,
    PropertyConclusion,
)
from dramaturg.report import tokens

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
.within { color: var(--pass); } .outside { color: var(--fail); } .other { color: var(--abstain); }
"""
_MARKS = {"within": "\u25a0", "may replace": "\u25a0", "outside": "\u2501"}
_UNDECIDED = "\u25a1"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_FOOT = (
    "Within: both bounds lie within the tolerance. Outside: both lie beyond it. Not shown: these cases do not"
    " decide it. Each bound has a one-sided error of 5 %. Cases are treated as independent."
)


def certificate_outcome(certificate: JudgeCertificate) -> str:
    """The number of each conclusion, e.g. "9 within, 1 outside, 2 not shown", without what was not tested."""
    counts = Counter(one.conclusion for one in certificate.properties)
    names = {
        number: name.removeprefix("PROPERTY_CONCLUSION_").lower().replace("_", " ")
        for name, number in PropertyConclusion.items()
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
    rows = "".join(map(_row, certificate["properties"]))
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<meta name='viewport' content='width=device-width'><title>{escape(title)}</title>"
        f"<style>{tokens.style()}{_STYLE}</style></head><body><h1>{escape(title)}</h1>"
        f"<dl>{described}</dl><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        f"<p class='note'>{_FOOT}</p></body></html>\n"
    )


def _row(one: Mapping[str, Any]) -> str:
    conclusion = one["conclusion"]
    style = {"may replace": "within"}.get(conclusion, conclusion if conclusion in _MARKS else "other")
    measured = one["value"] is not None
    cells = [
        f"{escape(one['name'])}<br><span class='note'>{escape(one['figure'])}</span>",
        f"<span class='{style}'>{_MARKS.get(conclusion, _UNDECIDED)} {escape(conclusion)}</span>",
        f"{one['value']:.3f}" if measured else "",
        f"{one['lower']:.3f} to {one['upper']:.3f}" if one["lower"] is not None else "",
        f"{one['tolerance']:g}" if one["tolerance"] else "",
        str(one["case_count"] or ""),
    ]
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
