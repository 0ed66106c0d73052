"""The outcomes of a check run as JUnit XML, for the reports of continuous integration."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from dramaturg.conformance.kit import Outcome

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""The characters that XML 1.0 does not have, for example U+0000."""


def junit_xml(role: str, target: str, outcomes: Sequence[Outcome]) -> str:
    """A document with one ``testsuite`` and one ``testcase`` for each check.

    The message of a failure is the requirement. Its text says what was seen and the remedy. A character
    that XML does not have is replaced by U+FFFD.

    Args:
        role: The role that was checked.
        target: The address of the server.
        outcomes: The outcomes, in the order of the test cases.
    """
    suite = ET.Element(
        "testsuite",
        name=_text(f"dramaturg judges check {role}"),
        tests=str(len(outcomes)),
        failures=str(sum(one.broken for one in outcomes)),
        errors="0",
        skipped=str(sum(bool(one.skipped) for one in outcomes)),
        time=f"{sum(one.seconds for one in outcomes):.3f}",
    )
    properties = ET.SubElement(suite, "properties")
    ET.SubElement(properties, "property", name="target", value=_text(target))
    for one in outcomes:
        case = ET.SubElement(
            suite,
            "testcase",
            classname=_text(f"conformance.{role}"),
            name=one.check.name,
            time=f"{one.seconds:.3f}",
        )
        if one.skipped:
            ET.SubElement(case, "skipped", message=_text(one.skipped))
        if one.broken:
            failure = ET.SubElement(case, "failure", type="requirement", message=one.check.requirement)
            failure.text = _text(f"{one.failure}\nRemedy: {one.check.remedy}")
    suites = ET.Element("testsuites")
    suites.append(suite)
    ET.indent(suites)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(suites, encoding="unicode")}\n'


def _text(value: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", value)
