"""The view of written scenarios (Choice-75, section 2.4)."""

from __future__ import annotations

from dramaturg.api.evaluation.v1.scenarios_pb2 import ScenariosResult, WrittenScenario
from dramaturg.kinds.scenarios import FORMS, faults, is_usable
from dramaturg.report.sample_view import JudgementView, SampleView, SubjectView
from dramaturg.report.views import abstention, provenances, truncate
from dramaturg.results.names import reason_name

MEASURE = "usable"


def view(index: int, result: ScenariosResult) -> SampleView:
    """The decision and the scenarios."""
    facts = [
        ("option 1", result.brief.option_1),
        ("option 2", result.brief.option_2),
        ("form", FORMS.get(result.form, "")),
    ]
    if result.duplicates_unchecked:
        facts.append(("near-duplicates by equal words", truncate(result.duplicates_unchecked)))
    return SampleView(
        index=index,
        title=result.brief.goal,
        sample_id=result.id,
        facts=facts,
        subjects=[_scenario(one) for one in result.scenarios],
        tags=sorted(result.tags.items()),
    )


def _scenario(one: WrittenScenario) -> SubjectView:
    if one.abstain_reason or not (one.scenario or one.failure_reason):
        judgement = abstention(MEASURE, one.abstain_reason, rationale=one.failure)
    elif one.failure_reason:
        judgement = JudgementView(MEASURE, "fail", reason_name(one.failure_reason), rationale=one.failure)
    else:
        usable = is_usable(one)
        judgement = JudgementView(MEASURE, "pass" if usable else "fail", "usable" if usable else faults(one))
    return SubjectView(
        title=one.id,
        model=one.model,
        text=truncate(one.scenario),
        notes=[truncate(f"through: {one.base_scenario}")] if one.base_scenario else [],
        judgements=[judgement],
        provenances=provenances([one.provenance]),
    )
