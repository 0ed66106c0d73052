"""Normalizes answers of judges to one valid verdict for each criterion.

The result has one verdict for each criterion, also where verdicts are missing, repeated or unrequested. An
invalid verdict becomes an abstention with its reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import lt
from types import MappingProxyType

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.verdict_pb2 import Assessment, Finding, Verdict
from dramaturg.api.identity.v1.identity_service_pb2 import Identity
from dramaturg.api.judging.v1.judge_service_pb2 import CriterionScale
from dramaturg.judge.conversations import Unit
from dramaturg.judge.protocols import ANY_CRITERION
from dramaturg.judge.quotes import Sources
from dramaturg.judge.roles import JudgeRole
from dramaturg.judge.verdicts import abstained, by_unit
from gateway.evaluations.judge_answers import CORRECTIONS, add_corrections

_BREACHES = {
    verdict_pb2.ABSTAIN_REASON_UNPARSABLE: "a verdict is missing or invalid",
    verdict_pb2.ABSTAIN_REASON_CONTRADICTORY: "a verdict contradicts itself or another one",
}
_DECIDED = (verdict_pb2.OUTCOME_PASS, verdict_pb2.OUTCOME_FAIL)
_SCORED = (verdict_pb2.OUTCOME_SCORED,)
MAX_QUOTES = 100
"""The most quotes of an assessment that are looked for."""
_SHOWN_QUOTE = 200
_UNIT = CriterionScale(lowest=0, highest=1)
"""The scale of scores beside an outcome."""


def expected_criteria(
    role: JudgeRole, identity: Identity | None, role_criteria: AbstractSet[str]
) -> Sequence[str]:
    """The criteria that a judge of a role answers for.

    They are those of the role, then further criteria that the judge declares, by name.

    Args:
        role: The role.
        identity: The identity of the judge. None: unknown.
        role_criteria: The criteria of all roles. A declared criterion of another role is left out.
    """
    declared = set() if identity is None else set(identity.criteria)
    return (*role.criteria, *sorted(declared - {""} - role_criteria))


def requested_criteria(expected: Sequence[str], identity: Identity | None) -> Sequence[str]:
    """The expected criteria that the judge declares, which the request names.

    Empty where it declares none of them: the judge then judges all its criteria.
    """
    if identity is None:
        return ()
    if ANY_CRITERION in identity.capabilities:
        return expected
    return [criterion for criterion in expected if criterion in identity.criteria]


def normalize(
    assessment: Assessment,
    expected: Sequence[str],
    identity: Identity | None,
    step_count: int,
    scales: Mapping[str, CriterionScale] = MappingProxyType({}),
    units: Mapping[str, Sequence[Unit]] = MappingProxyType({}),
) -> Assessment:
    """Corrects an assessment.

    Args:
        assessment: The answer of the judge.
        expected: The criteria that the judge answers for, in order.
        identity: The identity of the judge. None: unknown.
        step_count: The number of steps of the candidate, or of its turns; findings refer to these alone.
        scales: The scales of the criteria that are scored.
        units: The turns or calls of the candidate that criteria judge one by one.

    Returns:
        The assessment with one verdict for each expected criterion, in order. The provenance's parameter
        "gateway-corrections" lists the corrections. A missing or invalid verdict abstains as UNPARSABLE,
        differing verdicts as CONTRADICTORY, and a missing one that the judge does not declare as
        NOT_SUPPORTED. A criterion that judges units abstains as NOT_APPLICABLE where there are none, and as
        NOT_SUPPORTED where the judge has no verdict on them; a missing one is UNPARSABLE. Without corrections
        the given assessment is returned.
    """
    verdicts = assessment.verdicts
    noted = [note.step_index for note in assessment.step_notes]
    if (
        [verdict.criterion for verdict in verdicts] == list(expected)
        and _are_steps(noted, step_count)
        and not units
        and all(_is_sound(verdict, step_count, scales.get(verdict.criterion)) for verdict in verdicts)
    ):
        return assessment
    given: defaultdict[str, list[Verdict]] = defaultdict(list)
    for verdict in assessment.verdicts:
        given[verdict.criterion].append(verdict)
    corrections: list[str] = []
    normalized = Assessment(provenance=assessment.provenance, reading=assessment.reading)
    for criterion in expected:
        scale = scales.get(criterion)
        chosen = _choose(criterion, given.pop(criterion, []), identity, scale)
        places = units.get(criterion)
        normalized.verdicts.append(chosen if places is None else by_unit(chosen, places))
        corrections.extend(
            _correct(normalized.verdicts[-1], step_count, scale or _UNIT, has_units=places is not None)
        )
    corrections += [f"dropped a verdict on {criterion!r}, which was not asked" for criterion in sorted(given)]
    known = {note.step_index: note for note in assessment.step_notes if note.step_index < step_count}
    normalized.step_notes.extend(known[index] for index in sorted(known))
    if unknown := sorted({*noted} - {*known}):
        corrections.append(f"dropped the notes on the steps {unknown[:10]}: the candidate has {step_count}")
    if corrections:
        add_corrections(normalized.provenance, corrections)
    return normalized


def check_quotes(assessment: Assessment, make_sources: Callable[[], Sources]) -> None:
    """Finds the quotes of all findings in their parts, and marks what was found.

    A verdict whose finding rests on words that are not there becomes an abstention (CONTRADICTORY), as does
    one with a quote beyond the ``MAX_QUOTES`` of the assessment: that many are looked for, since a judge may
    send any number and all callers wait meanwhile.

    Args:
        assessment: The assessment, normalized.
        make_sources: Makes the texts that quotes may be from; called where there is a quote.
    """
    sources: Sources | None = None
    count = 0
    for verdict in assessment.verdicts:
        fault = ""
        for finding in verdict.findings:
            count += len(finding.spans)
            if count > MAX_QUOTES:
                fault = f"The judge quotes more than {MAX_QUOTES} times, which is not checked"
                del finding.spans[:]
            for span in finding.spans:
                sources = sources or make_sources()
                sources.locate(span)
                if not span.found and not fault:
                    words = repr(span.quote[:_SHOWN_QUOTE])
                    fault = f"The judge quotes words that the {span.part} does not have: {words}"
        if fault and verdict.outcome != verdict_pb2.OUTCOME_ABSTAIN:
            verdict.CopyFrom(
                abstained(
                    verdict.criterion,
                    verdict_pb2.ABSTAIN_REASON_CONTRADICTORY,
                    f"{fault}. {verdict.rationale}".rstrip(),
                    list(verdict.findings),
                )
            )


def breach_of(given: Assessment, normalized: Assessment) -> str:
    """The rule of the contract that an answer breaks, as text without words of the answer. Empty: none.

    Verdicts that the request does not name, and usage that no model call accounts for, are corrected and are
    no breach.

    Args:
        given: The answer of the judge, within the limits of ``judge_answers``.
        normalized: The same after ``normalize``.
    """
    stated = {verdict.criterion: verdict.abstain_reason for verdict in given.verdicts}
    for verdict in normalized.verdicts:
        replaced = stated.get(verdict.criterion) != verdict.abstain_reason
        if replaced and verdict.abstain_reason in _BREACHES:
            return _BREACHES[verdict.abstain_reason]
    corrections = normalized.provenance.parameters.get(CORRECTIONS, "").split("; ")
    if any(one.startswith("dropped the ") for one in corrections):
        return "it has values that the contract does not permit"
    return "it is too large" if any(one.startswith("cut ") for one in corrections) else ""


def _is_sound(verdict: Verdict, step_count: int, scale: CriterionScale | None) -> bool:
    """Whether a verdict is valid and needs no correction."""
    reasoned = verdict.abstain_reason != verdict_pb2.ABSTAIN_REASON_UNSPECIFIED
    decided = _DECIDED if scale is None else _SCORED
    if verdict.outcome not in (decided if not reasoned else (verdict_pb2.OUTCOME_ABSTAIN,)):
        return False
    if scale is not None and not reasoned and not verdict.HasField("score"):
        return False
    # Every verdict comes by here, and members of messages are slow to read.
    lowest, highest = (0.0, 1.0) if scale is None or reasoned else (scale.lowest, scale.highest)
    if not (lowest <= verdict.score <= highest and 0.0 <= verdict.confidence <= 1.0):
        return False  # also NaN
    if verdict.votes or verdict.units or verdict.HasField("measured_confidence"):
        return False
    if not verdict.findings:
        return True
    if verdict.outcome == verdict_pb2.OUTCOME_PASS:
        return False
    return all(_are_steps(finding.step_indices, step_count) for finding in verdict.findings)


def _are_steps(indices: Sequence[int], step_count: int) -> bool:
    """Whether indices are strictly ascending and below a count."""
    return all(map(lt, indices, [*indices[1:], step_count]))


def _is_on(scale: CriterionScale, score: float) -> bool:
    return scale.lowest <= score <= scale.highest  # also false for NaN


def _choose(
    criterion: str, verdicts: Sequence[Verdict], identity: Identity | None, scale: CriterionScale | None
) -> Verdict:
    """The verdict on a criterion, or the abstention that replaces none or several."""
    if not verdicts:
        if identity is not None and not judges(identity, criterion):
            return abstained(
                criterion,
                verdict_pb2.ABSTAIN_REASON_NOT_SUPPORTED,
                "This judge does not judge this criterion.",
            )
        return _unclear(criterion, "The judge's answer has no verdict on this criterion.")
    if len({(verdict.outcome, verdict.abstain_reason, scale and verdict.score) for verdict in verdicts}) > 1:
        return abstained(
            criterion,
            verdict_pb2.ABSTAIN_REASON_CONTRADICTORY,
            "The judge's answer has several verdicts on this criterion, and they differ.",
        )
    first = verdicts[0]
    reasoned = first.abstain_reason != verdict_pb2.ABSTAIN_REASON_UNSPECIFIED
    decided = _DECIDED if scale is None else _SCORED
    if first.outcome in decided and reasoned:
        return abstained(
            criterion,
            verdict_pb2.ABSTAIN_REASON_CONTRADICTORY,
            "The judge decided and abstained in one verdict.",
        )
    if first.outcome == verdict_pb2.OUTCOME_PASS and first.findings:
        return abstained(
            criterion,
            verdict_pb2.ABSTAIN_REASON_CONTRADICTORY,
            f"The judge passed the candidate and found faults. {first.rationale}".rstrip(),
            first.findings,
        )
    if first.outcome == verdict_pb2.OUTCOME_ABSTAIN and not reasoned:
        return _unclear(criterion, f"The judge abstained without a reason. {first.rationale}".rstrip())
    if first.outcome not in (*decided, verdict_pb2.OUTCOME_ABSTAIN):
        missing = "no outcome" if scale is None else "no score"
        return _unclear(criterion, f"The judge's verdict has {missing}. {first.rationale}".rstrip())
    if scale is not None and first.outcome == verdict_pb2.OUTCOME_SCORED:
        if not first.HasField("score"):
            return _unclear(criterion, f"The judge's verdict has no score. {first.rationale}".rstrip())
        if not _is_on(scale, first.score):
            off = f"The judge's score {first.score:g} is not from {scale.lowest} to {scale.highest}."
            return _unclear(criterion, f"{off} {first.rationale}".rstrip())
    return first


def judges(identity: Identity, criterion: str) -> bool:
    """Whether a judge declares a criterion."""
    return criterion in identity.criteria or ANY_CRITERION in identity.capabilities


def _unclear(criterion: str, rationale: str) -> Verdict:
    return abstained(criterion, verdict_pb2.ABSTAIN_REASON_UNPARSABLE, rationale)


def _correct(verdict: Verdict, step_count: int, scale: CriterionScale, *, has_units: bool) -> Iterator[str]:
    """Removes invalid values from a verdict; yields a description of each."""
    if verdict.HasField("score") and not _is_on(scale, verdict.score):
        yield _dropped("score", verdict.score, verdict.criterion, scale)
        verdict.ClearField("score")
    if verdict.HasField("confidence") and not _is_on(_UNIT, verdict.confidence):
        yield _dropped("confidence", verdict.confidence, verdict.criterion, _UNIT)
        verdict.ClearField("confidence")
    if verdict.votes:
        yield f"dropped the votes of {verdict.criterion}, which the gateway sets"
        del verdict.votes[:]
    if verdict.HasField("measured_confidence"):
        yield f"dropped the measured confidence of {verdict.criterion}, which the gateway sets"
        verdict.ClearField("measured_confidence")
    if verdict.units and not has_units:
        yield f"dropped the units of {verdict.criterion}, which judges the whole"
        del verdict.units[:]
    for finding in verdict.findings:
        if unknown := _drop_unknown_steps(finding, step_count):
            yield (
                f"dropped the steps {unknown} from a finding of {verdict.criterion}: the candidate has "
                f"{step_count}"
            )


def _dropped(field: str, value: float, criterion: str, scale: CriterionScale) -> str:
    return f"dropped the {field} {value} of {criterion}, which is not in [{scale.lowest}, {scale.highest}]"


def _drop_unknown_steps(finding: Finding, step_count: int) -> Sequence[int]:
    """Keeps the indices of existing steps, ascending and distinct; returns the others."""
    indices = sorted(set(finding.step_indices))
    finding.step_indices[:] = [index for index in indices if index < step_count]
    return [index for index in indices if index >= step_count]
