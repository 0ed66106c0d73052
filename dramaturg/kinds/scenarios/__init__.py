"""The results of scenario writing (Choice-75, section 2.4): a row for each requested scenario."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dramaturg.api.common.v1.decision_pb2 import CHOICE_OPTION_1, CHOICE_OPTION_2
from dramaturg.api.common.v1.verdict_pb2 import OUTCOME_FAIL, OUTCOME_PASS
from dramaturg.api.evaluation.v1.run_results_pb2 import RunResult
from dramaturg.api.evaluation.v1.scenarios_pb2 import ScenariosResult, WrittenScenario
from dramaturg.api.generation.v1.authoring_decisions_pb2 import (
    SCENARIO_FORM_HARD_VERB_PHRASE,
    SCENARIO_FORM_USER_PROFILE,
    SCENARIO_FORM_VERB_PHRASE,
)
from dramaturg.results.kind import (
    Comparability,
    Judgement,
    ResultKind,
    row_judgement,
    set_abstention,
    set_provenance,
)

FORMS = {
    SCENARIO_FORM_VERB_PHRASE: "verb-phrase",
    SCENARIO_FORM_HARD_VERB_PHRASE: "hard-verb-phrase",
    SCENARIO_FORM_USER_PROFILE: "user-profile",
}
"""The names of the forms."""
TARGETS = {CHOICE_OPTION_1: "option-1", CHOICE_OPTION_2: "option-2"}
"""The names of the options that a scenario can lead to."""


def is_usable(one: WrittenScenario) -> bool:
    """Whether a scenario is written, no near-duplicate, and without the name of an option."""
    return bool(one.scenario) and not one.duplicate_of and not one.leaks_option


def faults(one: WrittenScenario) -> str:
    """The reasons for which a written scenario is not usable, as text. Empty: it is."""
    found = ["names an option"] if one.leaks_option else []
    return ", ".join([*found, *([f"near-duplicate of {one.duplicate_of}"] if one.duplicate_of else [])])


def _rows(result: ScenariosResult, texts: bool) -> Iterator[RunResult]:
    for one in result.scenarios:
        row = RunResult(
            model=one.model,
            candidate_id=one.id,
            measure="usable",
            role="author",
            judge=one.provenance.registered_name,
            failure_reason=one.failure_reason,
            label=faults(one),
        )
        if one.scenario or one.failure_reason:
            row.value = float(is_usable(one))
            row.outcome = OUTCOME_PASS if is_usable(one) else OUTCOME_FAIL
        else:
            set_abstention(row, one.abstain_reason)
        set_provenance(row, one.provenance)
        if texts:
            row.rationale = one.scenario or one.failure
        yield row


def _judgements(result: ScenariosResult, rows: Iterable[RunResult]) -> Iterator[Judgement]:
    for row in rows:
        yield row_judgement(result.id or result.brief.goal, row.candidate_id, row.measure, row)


SCENARIOS = ResultKind(
    name="scenarios",
    json_member="scenarios",
    rows=_rows,
    ranking="By the share of usable scenarios.",
    primary_measure="usable",
    comparability=Comparability("usable", _judgements),
)
