"""Messages of MeasurePairBias."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from dramaturg.api.alignment.v1 import bias_pb2 as pb
from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_UNSPECIFIED
from dramaturg.service.errors import Violation, invalid_fields
from dramaturg.service.validation import MAX_VIOLATIONS
from services.alignment.bias import JudgedPair, PairBias, PreferenceExcess, Side, Text
from services.alignment.codec.estimates import encode_estimate
from services.alignment.workers import Checkpoint

_SIDES = {
    pb.PREFERENCE_FIRST: Side.FIRST,
    pb.PREFERENCE_SECOND: Side.SECOND,
    pb.PREFERENCE_TIE: Side.TIE,
}
_CHUNK = 10_000
_ORDERS = 2


def decode_judged_pairs(request: pb.MeasurePairBiasRequest, checkpoint: Checkpoint) -> list[JudgedPair]:
    """Reads what the judge said.

    Raises:
        ServiceError: INVALID_ARGUMENT with every violation: a pair that was judged and has a reason for not
            being so; an id with more than two judgements, or with two that are not of the same systems in
            both orders.
    """
    violations: list[Violation] = []
    pairs: list[JudgedPair] = []
    by_id: defaultdict[str, list[pb.JudgedPair]] = defaultdict(list)
    for index, pair in enumerate(request.pairs):
        if index % _CHUNK == 0:
            checkpoint()
        if pair.judged != pb.PREFERENCE_UNSPECIFIED and pair.abstain_reason != ABSTAIN_REASON_UNSPECIFIED:
            violations.append(
                Violation(f"pairs[{index}].abstain_reason", "is set, though the pair was judged")
            )
        if pair.id:
            by_id[pair.id].append(pair)
            if problem := _problem(by_id[pair.id]):
                violations.append(Violation(f"pairs[{index}].id", problem))
        pairs.append(
            JudgedPair(
                id=pair.id,
                first=_text(pair.first),
                second=_text(pair.second),
                judged=_SIDES.get(pair.judged),
                human=_SIDES.get(pair.human),
                group=pair.tags.get(request.group_tag, ""),
            )
        )
    if violations:
        raise invalid_fields(violations[:MAX_VIOLATIONS])
    return pairs


def encode_biases(groups: Sequence[PairBias]) -> pb.MeasurePairBiasResponse:
    return pb.MeasurePairBiasResponse(groups=[_encode(group) for group in groups])


def _problem(judgements: Sequence[pb.JudgedPair]) -> str:
    if len(judgements) > _ORDERS:
        return "has two judgements already, one for each order"
    systems = [(pair.first.system, pair.second.system) for pair in judgements]
    if len(systems) == _ORDERS and systems[0] != systems[1][::-1]:
        return "is that of another judgement, which is not of the same systems in the other order"
    return ""


def _text(text: pb.JudgedText) -> Text:
    return Text(text.system, text.family, text.length if text.HasField("length") else None)


def _encode(group: PairBias) -> pb.PairBiasGroup:
    return pb.PairBiasGroup(
        group=group.group,
        judgement_count=group.judgements,
        tie_count=group.ties,
        abstained_count=group.abstained,
        first_share=encode_estimate(group.first_share),
        first_share_p=group.first_share_p,
        length=_encode_excess(group.length),
        own_family=_encode_excess(group.own_family),
        position=_encode_excess(group.position),
        swaps=pb.SwapConsistency(
            pair_count=group.swaps.pairs,
            consistent_share=encode_estimate(group.swaps.consistent_share),
            first_both_count=group.swaps.first_both,
            second_both_count=group.swaps.second_both,
            tie_once_count=group.swaps.tie_once,
        ),
    )


def _encode_excess(excess: PreferenceExcess) -> pb.PreferenceExcess:
    return pb.PreferenceExcess(
        judge_share=encode_estimate(excess.judge_share),
        human_share=encode_estimate(excess.human_share),
        excess=encode_estimate(excess.excess),
        excess_lower_bound=excess.lower_bound,
        excess_upper_bound=excess.upper_bound,
    )
