"""Normalizes answers of judges to one valid verdict for each criterion.

Missing, repeated and invented verdicts do not change the number of verdicts; an unclear verdict becomes an
abstention with its reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from operator import lt

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Assessment, Finding, Verdict
from dramaturg.api.identity.v1.identity_service_pb2 import Identity
from dramaturg.judge.protocols import ANY_CRITERION
from dramaturg.judge.roles import JudgeRole
from dramaturg.judge.verdicts import abstained

CORRECTIONS = "gateway-corrections"
"""The parameter of a provenance that lists what was corrected in the judge's answer."""

_DECIDED = (verdict_pb2.OUTCOME_PASS, verdict_pb2.OUTCOME_FAIL)


def expected_criteria(
    role: JudgeRole, identity: Identity | None, role_criteria: AbstractSet[str]
) -> Sequence[str]:
    """The criteria that a judge of a role answers for.

    They are those of the role, then criteria of its own that the judge declares, by name.

    Args:
        role: The role.
        identity: What the judge says of itself, if it does.
        role_criteria: The criteria of all roles. One that belongs to another role is not the judge's own.
    """
    declared = set() if identity is None else set(identity.criteria)
    return (*role.criteria, *sorted(declared - {""} - role_criteria))


def requested_criteria(expected: Sequence[str], identity: Identity | None) -> Sequence[str]:
    """Those of the expected criteria that the judge is asked for: what it judges by its identity.

    Empty where it says of none that it judges them; it is then asked for all that it has.
    """
    if identity is None:
        return ()
    if ANY_CRITERION in identity.capabilities:
        return expected
    return [criterion for criterion in expected if criterion in identity.criteria]


def normalize(
    assessment: Assessment, expected: Sequence[str], identity: Identity | None, step_count: int
) -> Assessment:
    """Corrects an assessment.

    Args:
        assessment: What the judge answered.
        expected: The criteria it answers for, in order.
        identity: What it says of itself, if it does.
        step_count: How many steps the candidate has; findings point at no others.

    Returns:
        The assessment with one verdict for each expected criterion, in order; what was corrected stands in
        the provenance's parameter "gateway-corrections". A missing or meaningless verdict abstains as
        UNPARSABLE, two that differ as CONTRADICTORY, and one that the judge never declared as NOT_SUPPORTED.
        Where nothing is to be corrected, as nearly always, it is the one given.
    """
    verdicts = assessment.verdicts
    if [verdict.criterion for verdict in verdicts] == list(expected) and all(
        _is_sound(verdict, step_count) for verdict in verdicts
    ):
        return assessment
    given: defaultdict[str, list[Verdict]] = defaultdict(list)
    for verdict in assessment.verdicts:
        given[verdict.criterion].append(verdict)
    corrections: list[str] = []
    settled = Assessment(provenance=assessment.provenance, reading=assessment.reading)
    for criterion in expected:
        settled.verdicts.append(_choose(criterion, given.pop(criterion, []), identity))
        corrections.extend(_correct(settled.verdicts[-1], step_count))
    corrections += [f"dropped a verdict on {criterion!r}, which was not asked" for criterion in sorted(given)]
    if corrections:
        settled.provenance.parameters[CORRECTIONS] = "; ".join(corrections)
    return settled


def _is_sound(verdict: Verdict, step_count: int) -> bool:
    """Whether a verdict stays as it is: it is clear, and nothing in it cannot be."""
    reasoned = verdict.abstain_reason != verdict_pb2.ABSTAIN_REASON_UNSPECIFIED
    if verdict.outcome not in (_DECIDED if not reasoned else (verdict_pb2.OUTCOME_ABSTAIN,)):
        return False
    if not (0.0 <= verdict.score <= 1.0 and 0.0 <= verdict.confidence <= 1.0):
        return False
    return all(_are_steps(finding.step_indices, step_count) for finding in verdict.findings)


def _are_steps(indices: Sequence[int], step_count: int) -> bool:
    """Whether indices are ascending, each once, and below a count."""
    return all(map(lt, indices, [*indices[1:], step_count]))


def _choose(criterion: str, verdicts: Sequence[Verdict], identity: Identity | None) -> Verdict:
    """The one verdict, or the abstention that stands for none or several."""
    if not verdicts:
        if identity is not None and not judges(identity, criterion):
            return abstained(
                criterion,
                verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED,
                "This judge does not judge this criterion.",
            )
        return _unclear(criterion, "The judge's answer has no verdict on this criterion.")
    if len({(verdict.outcome, verdict.abstain_reason) for verdict in verdicts}) > 1:
        return abstained(
            criterion,
            verdict_pb2.ABSTAIN_REASON_CONTRADICTORY,
            "The judge's answer has several verdicts on this criterion, and they differ.",
        )
    first = verdicts[0]
    reasoned = first.abstain_reason != verdict_pb2.ABSTAIN_REASON_UNSPECIFIED
    if first.outcome in _DECIDED and reasoned:
        return abstained(
            criterion,
            verdict_pb2.ABSTAIN_REASON_CONTRADICTORY,
            "The judge decided and abstained in one verdict.",
        )
    if first.outcome == verdict_pb2.OUTCOME_ABSTAIN and not reasoned:
        return _unclear(criterion, f"The judge abstained without a reason. {first.rationale}".rstrip())
    if first.outcome not in (*_DECIDED, verdict_pb2.OUTCOME_ABSTAIN):
        return _unclear(criterion, f"The judge's verdict has no outcome. {first.rationale}".rstrip())
    return first


def judges(identity: Identity, criterion: str) -> bool:
    """Whether a judge says of itself that it judges a criterion."""
    return criterion in identity.criteria or ANY_CRITERION in identity.capabilities


def _unclear(criterion: str, rationale: str) -> Verdict:
    return abstained(criterion, verdict_pb2.ABSTAIN_REASON_UNPARSABLE, rationale)


def _correct(verdict: Verdict, step_count: int) -> Iterator[str]:
    """Takes out of a verdict what cannot be, and says what it was."""
    for field in ("score", "confidence"):
        if not verdict.HasField(field):
            continue
        value = getattr(verdict, field)
        if not 0.0 <= value <= 1.0:
            verdict.ClearField(field)
            yield f"dropped the {field} {value} of {verdict.criterion}, which is not in [0, 1]"
    for finding in verdict.findings:
        if strangers := _drop_strangers(finding, step_count):
            yield (
                f"dropped the steps {strangers} from a finding of {verdict.criterion}: the candidate has "
                f"{step_count}"
            )


def _drop_strangers(finding: Finding, step_count: int) -> Sequence[int]:
    """Leaves the indices of steps that there are, ascending, each once; returns the others."""
    indices = sorted(set(finding.step_indices))
    finding.step_indices[:] = [index for index in indices if index < step_count]
    return [index for index in indices if index >= step_count]
