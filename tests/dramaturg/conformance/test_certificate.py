from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from dramaturg import conformance
from dramaturg.api.common.v1.verdict_pb2 import AbstainReason, Assessment
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import Judge, PanelMember
from dramaturg.api.identity.v1.identity_service_pb2 import Identity
from dramaturg.api.judging.v1.judge_service_pb2 import JudgeRequest
from dramaturg.conformance import NOT_SHOWN, OUTSIDE, WITHIN, checked_role
from dramaturg.judge.batches import JudgeItem
from dramaturg.judge.contracts import judge_contract
from dramaturg.judge.roles import EXECUTE
from dramaturg.judge.verdicts import abstained, failed, passed
from dramaturg.meta_evaluation.cases import HELD_OUT_FILE, BenchSet
from dramaturg.meta_evaluation.variants import AUTHORITY, BANDWAGON, INJECTIONS, PADDING
from dramaturg.testing import serve
from tests.dramaturg.conformance import services


def _known() -> dict[tuple[str, ...], frozenset[str]]:
    """The criteria that each text of the sets breaks, by its goal and steps."""
    found: dict[tuple[str, ...], frozenset[str]] = {}
    for one in (BenchSet(), BenchSet(HELD_OUT_FILE)):
        for case in one.cases([EXECUTE.name]):
            assert isinstance(case.request, JudgeRequest)
            steps = tuple(step.text for step in case.request.candidates[0].script.steps)
            broken = frozenset(item for item, fault in case.faults.items() if fault)
            key = (case.request.task.goal, *steps)
            found[key] = found.get(key, frozenset()) | broken
    return found


class Knowing:
    """Reports exactly the planted faults, unless it sees a text that misleads it."""

    name, version, description = "knowing", "2.1.0", "Knows the sets."
    criteria: Sequence[str] = EXECUTE.criteria
    capabilities: Sequence[str] = ()
    known = _known()

    def __init__(self, *misleading: str, capricious: bool = False) -> None:
        self._misleading = misleading
        self._capricious = capricious

    async def judge(self, item: JudgeItem) -> Assessment:
        texts = list(item.candidate.steps)
        misled = any(text in step for text in self._misleading for step in texts)
        if self._capricious and item.options.repeat_index:
            misled = True
        for added in (AUTHORITY, BANDWAGON, PADDING, *INJECTIONS):
            texts = [text.replace(added, "") for text in texts]
        plain = tuple(text.removeprefix("**").removesuffix("**") for text in texts)
        broken = self.known.get((item.batch.task.goal, *plain), frozenset())
        return Assessment(
            verdicts=[
                failed(criterion, []) if criterion in broken and not misled else passed(criterion)
                for criterion in item.criteria
            ]
        )


class Silent(Knowing):
    """Abstains from a text that misleads it."""

    async def judge(self, item: JudgeItem) -> Assessment:
        if any(text in step for text in self._misleading for step in item.candidate.steps):
            return Assessment(
                verdicts=[abstained(one, AbstainReason.ABSTAIN_REASON_REFUSED) for one in item.criteria]
            )
        return await super().judge(item)


async def certificate(judge: Knowing) -> conformance.Certificate:
    async with serve(judge_contract(judge)) as server:
        return await conformance.certify(checked_role(EXECUTE.name), server.target)


async def test_a_sound_judge_is_within_where_the_cases_suffice() -> None:
    found = await certificate(Knowing())
    assert (found.name, found.version, found.errors) == ("knowing", "2.1.0", [])
    conclusions = {one.name: one.conclusion for one in found.properties}
    assert OUTSIDE not in conclusions.values()
    assert conclusions["missed faults"] == conclusions["repeatability"] == conclusions["formatting"] == WITHIN
    assert {one.value for one in found.properties} <= {0.0, None}
    assert len(json.loads(json.dumps(found.to_json()))["properties"]) == len(conformance.TOLERANCES)
    assert "--pairs FILE --judge-family FAMILY" in found.properties[-1].figure


async def test_a_misled_judge_is_outside_in_those_properties_alone() -> None:
    found = await certificate(Knowing(AUTHORITY, *INJECTIONS, "**", capricious=True))
    outside = {one.name for one in found.properties if one.conclusion == OUTSIDE}
    assert outside == {"authority", "injection", "formatting", "repeatability"}


async def test_an_abstention_from_one_form_alone_is_not_within() -> None:
    found = await certificate(Silent(BANDWAGON))
    (bandwagon,) = [one for one in found.properties if one.name == "bandwagon"]
    assert (bandwagon.conclusion, bandwagon.value) == (NOT_SHOWN, 0)
    assert bandwagon.lower == pytest.approx(-1)
    assert bandwagon.upper == pytest.approx(1)


class Prompted(Knowing):
    """States a prompt and a model."""

    async def judge(self, item: JudgeItem) -> Assessment:
        found = await super().judge(item)
        found.provenance.prompts.add(name="execute", sha256="ab" * 32)
        found.provenance.completions.add(answered_model="small")
        return found


async def test_a_certificate_is_stale_when_the_judge_changes() -> None:
    now = {
        "role": EXECUTE.name,
        "name": "knowing",
        "version": "2.1.0",
        "models": ["other", "small"],
        "prompts": {"execute": "ab" * 32, "more": "00"},
    }
    cases: list[tuple[dict[str, object], list[str]]] = [
        ({}, []),
        ({"version": "2.0.0"}, ["version 2.0.0, now 2.1.0"]),
        ({"models": ["other"]}, ["models other, now small"]),
        ({"prompts": {"execute": "cd" * 32}}, ["prompt execute"]),
    ]
    async with serve(judge_contract(Prompted())) as server:
        for changed, told in cases:
            earlier = {**now, **changed}
            found = await conformance.changes_since(earlier, checked_role(EXECUTE.name), server.target)
            assert found == told
        with pytest.raises(ValueError, match="of the role 'critic'"):
            await conformance.changes_since({**now, "role": "critic"}, checked_role(EXECUTE.name), "x:1")


@pytest.mark.parametrize(
    ("role", "listed", "message"),
    [
        (conformance.JUDGE, Judge(identity=Identity(name="both")), "certify the members a, b"),
        (EXECUTE.name, Judge(error="b UNREACHABLE"), "does not state its identity: b UNREACHABLE"),
    ],
)
async def test_a_panel_that_cannot_be_asked_is_refused(role: str, listed: Judge, message: str) -> None:
    listed.panel.members.extend(PanelMember(judge=name) for name in ("a", "b", "a"))
    with pytest.raises(ValueError, match=message):
        await conformance.certify(checked_role(role), "x:1", panel=listed)
    with pytest.raises(ValueError, match=message):
        await conformance.changes_since({"role": role}, checked_role(role), "x:1", panel=listed)


@pytest.mark.parametrize(
    ("role", "method", "case_count", "outside"),
    [
        # Prefers the first text, also of two equal ones, and in both orders.
        ("pair-judge", services.compare_pair, 76, {"false alarms"}),
        # Rates everything 7, which reports no fault.
        ("rating-judge", services.rate_seven, 90, {"missed faults"}),
    ],
)
async def test_judges_of_pairs_and_replies(
    role: str, method: services.Method, case_count: int, outside: set[str]
) -> None:
    async with serve(services.service(role, method)) as server:
        found = await conformance.certify(checked_role(role), server.target)
    properties = {one.name: one for one in found.properties}
    assert {name for name, one in properties.items() if one.conclusion == OUTSIDE} == outside
    assert properties["repeatability"].case_count == case_count
    assert (properties["position"].conclusion == WITHIN) == (role == "pair-judge")
    # The cases suffice to show that a form changes nothing.
    for name in ("verbosity", "authority", "bandwagon", "formatting", "injection", "repeatability"):
        assert properties[name].conclusion == WITHIN, name
    assert len(found.sets) == 3


async def test_a_judge_without_cases_is_refused() -> None:
    judge = Knowing()
    judge.criteria = ("polite",)
    async with serve(judge_contract(judge)) as server:
        with pytest.raises(ValueError, match="no cases"):
            await conformance.certify(checked_role("judge", ["polite"]), server.target)
