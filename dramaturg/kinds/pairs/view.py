"""The view of two compared texts (DRPE)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dramaturg.api.evaluation.v1.pairs_pb2 import PairComparison, PairResult
from dramaturg.api.judging.v1 import pair_judge_service_pb2
from dramaturg.api.judging.v1.pair_judge_service_pb2 import Preference
from dramaturg.kinds.pairs import COUNT_TAG
from dramaturg.report.sample_view import Block, JudgementView, SampleView, StepView, SubjectView
from dramaturg.report.views import abstention, confidence, number, provenances, truncate, votes
from dramaturg.results.names import value_name
from dramaturg.tables.model import words


def view(index: int, result: PairResult) -> SampleView:
    """The pair of texts and its comparisons."""
    human = _preferred(result, result.human_preference) if result.human_preference else "unknown"
    systems = f"{result.first_model or 'first'} against {result.second_model or 'second'}"
    return SampleView(
        index=index,
        title=f"{result.id}: {systems}" if result.id else systems,
        sample_id=result.id,
        facts=[
            ("first", result.first_model or "unnamed"),
            ("second", result.second_model or "unnamed"),
            ("people prefer", human),
            ("longer", _preferred(result, result.longer)),
        ],
        blocks=[
            *_texts(result),
            Block(
                "Roles" + (f": {result.roles.failure}" if result.roles.failure else ""), steps=_roles(result)
            ),
        ],
        subjects=[
            _comparison(comparison, result.tags.get(COUNT_TAG, "")) for comparison in result.comparisons
        ],
        tags=sorted(result.tags.items()),
        models=[result.first_model, result.second_model],
        disagreement=_disagreement(result),
    )


def _texts(result: PairResult) -> Iterator[Block]:
    for name, model, text in (
        ("First", result.first_model, result.first_text),
        ("Second", result.second_model, result.second_text),
    ):
        if text:
            yield Block(f"{name} text" + (f", {model}" if model else ""), text=truncate(text), open=True)


def _preferred(result: PairResult, preference: int) -> str:
    """A preference with the system of the text, e.g. "first (gpt)"."""
    name = words(value_name(Preference, preference))
    system = {"first": result.first_model, "second": result.second_model}.get(name, "")
    return f"{name} ({system})" if system else name


def _roles(result: PairResult) -> Sequence[StepView]:
    """The roles that judge, then those that clustering dropped, each with the role that stands for it."""
    known = result.roles
    shown = [StepView(f"{role.type}: {role.description}") for role in known.roles]
    for cluster in known.clustering.clusters:
        if any(index >= len(known.clustered_roles) for index in cluster.member_indices):
            return shown
        kept = ", ".join(known.clustered_roles[index].type for index in cluster.kept_indices)
        dropped = set(cluster.member_indices) - set(cluster.kept_indices)
        roles = (known.clustered_roles[index] for index in sorted(dropped))
        shown += [
            StepView(f"{role.type}: {role.description}", mark=f"left out, like {kept}") for role in roles
        ]
    return shown


def _disagreement(result: PairResult) -> str:
    """The methods that prefer another text than people or than each other, and judges whose orders differ."""
    given = {one.method: one.comparison.preference for one in result.comparisons}
    given = {method: one for method, one in given.items() if one != pair_judge_service_pb2.PREFERENCE_ABSTAIN}
    parts = []
    if result.human_preference:
        other = [method for method, preference in given.items() if preference != result.human_preference]
        parts += [f"people differ from {', '.join(other)}"] if other else []
    parts += ["methods differ"] if len(set(given.values())) > 1 else []
    for one in result.comparisons:
        votes_cast = one.comparison.votes
        if len(votes_cast) == 1 and votes_cast[0].inconsistent:
            parts.append(f"the orders differ by {one.method}")
    return "; ".join(parts)


def _comparison(item: PairComparison, count: str) -> SubjectView:
    comparison = item.comparison
    swept = f" k={count}" if count and item.method == "roles" else ""
    measure = f"win/{item.method}{swept}"
    if comparison.preference == pair_judge_service_pb2.PREFERENCE_ABSTAIN:
        reasons = [vote.abstain_reason for vote in comparison.votes if vote.abstain_reason]
        judgement = abstention(measure, reasons[0] if reasons else 0, item.judge)
    else:
        share = comparison.first_vote_share if comparison.HasField("first_vote_share") else None
        judgement = JudgementView(
            measure=measure,
            outcome="number",
            label=value_name(Preference, comparison.preference),
            judge=item.judge,
            confidence=confidence(comparison),
            rationale="" if share is None else f"share of the votes for the first text: {number(share)}",
            findings=votes(comparison),
        )
    return SubjectView(
        title=item.method,
        model="",
        judgements=[judgement],
        provenances=provenances([comparison.provenance]),
    )
