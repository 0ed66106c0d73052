from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

from dramaturg.conformance import CHECKED_ROLES, Check, Outcome, Subject, checked_role, checks_of, junit_xml
from dramaturg.judge.verdicts import scored
from dramaturg.testing import FakeJudge, serve
from tests.support.command_line import dramaturg


async def attempt(subject: Subject) -> None:
    del subject


def test_the_document_is_well_formed_whatever_a_server_answers() -> None:
    broken = Check(name="a", requirement='No "<b>" & no ]]>.', remedy="Leave out <b>.", attempt=attempt)
    kept = Check(name="b", requirement="Holds.", remedy="", attempt=attempt)
    seen = 'was <b>&amp;]]> "\x00\x1b\ud800\ufffe\U0001f642'
    document = junit_xml(
        "critic", "host:1\x00", [Outcome(check=broken, failure=seen, seconds=1.5), Outcome(kept, "", 0.25)]
    )
    suite = ET.fromstring(document.encode("utf-8")).find("testsuite")
    assert suite is not None
    assert {name: suite.get(name) for name in ("tests", "failures", "time")} == {
        "tests": "2",
        "failures": "1",
        "time": "1.750",
    }
    first, second = suite.findall("testcase")
    failure = first.find("failure")
    assert failure is not None
    assert failure.text == 'was <b>&amp;]]> "����🙂\nRemedy: Leave out <b>.'
    assert failure.get("message") == broken.requirement
    assert (second.get("name"), second.find("failure")) == ("b", None)


def test_every_check_says_how_to_mend_what_it_finds() -> None:
    checks = [one for name in CHECKED_ROLES for one in checks_of(checked_role(name))]
    assert checks
    assert [
        one.name for one in checks if not one.remedy.endswith(".") or not one.requirement.endswith(".")
    ] == []


async def test_the_command_names_the_rule_and_how_to_mend_it(tmp_path: Path) -> None:
    """A verdict that is scored without a scale breaks the form of every answer."""
    path = tmp_path / "conformance.xml"
    judge = FakeJudge(lambda request, candidate: [scored("fluent", 3.0)])
    async with serve(judge.contract()) as server:
        arguments = ("judges", "check", "judge", server.target, "--timeout", "20")
        finished = await dramaturg(*arguments, "--json", "--junit", path)
    assert finished.code == 1
    (check,) = [one for one in finished.json["checks"] if one["name"] == "judges-every-criterion"]
    assert "which is none of PASS, FAIL and ABSTAIN" in check["failure"]
    for text in (check["requirement"], check["failure"], f"Remedy: {check['remedy']}"):
        assert text in finished.err
    cases = ET.parse(path).findall("testsuite/testcase")
    failures = {case.get("name") for case in cases if case.find("failure") is not None}
    assert len(cases) == len(finished.json["checks"])
    assert failures == {one["name"] for one in finished.json["checks"] if one["failure"]}
    skipped = {case.get("name") for case in cases if case.find("skipped") is not None}
    assert skipped == {one["name"] for one in finished.json["checks"] if one["skipped"]}
    assert "drains" in skipped
