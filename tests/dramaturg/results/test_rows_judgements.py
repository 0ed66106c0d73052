"""What results of every kind say of what was judged."""

from __future__ import annotations

from dramaturg.api.common.v1.verdict_pb2 import ABSTAIN_REASON_REFUSED
from dramaturg.api.evaluation.v1.graphs_pb2 import GraphsResult
from dramaturg.api.evaluation.v1.pairs_pb2 import PairResult
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.judging.v1.pair_judge_service_pb2 import (
    PREFERENCE_ABSTAIN,
    PREFERENCE_FIRST,
    PREFERENCE_SECOND,
    PREFERENCE_TIE,
)
from dramaturg.results.rows import judgements


def test_preferences_are_right_where_people_say_the_same() -> None:
    pair = PairResult(id="p", first_model="a", second_model="b", human_preference=PREFERENCE_FIRST)
    said = (PREFERENCE_FIRST, PREFERENCE_SECOND, PREFERENCE_TIE, PREFERENCE_ABSTAIN)
    for place, preference in enumerate(said):
        pair.comparisons.add(method="roles", judge=str(place)).comparison.preference = preference
    found = list(judgements(RunSample(pair=pair)))
    assert [one.value for one in found] == [True, False, False, None]
    assert (found[0].sample, found[0].subject, found[0].aspect) == ("p", "a and b", "roles by 0")
    pair.ClearField("human_preference")
    assert not list(judgements(RunSample(pair=pair)))


def test_graphs_have_the_f1_of_their_edges() -> None:
    graphs = GraphsResult()
    graphs.reference.id = "g"
    graphs.graphs.add(model="a").score.measures.f1 = 0.5
    graphs.graphs.add(model="b", abstain_reason=ABSTAIN_REASON_REFUSED)
    first, second = judgements(RunSample(graphs=graphs))
    assert (first.sample, first.subject, first.value) == ("g", "a", 0.5)
    assert (second.value, second.reason) == (None, ABSTAIN_REASON_REFUSED)


def test_a_sample_that_failed_says_nothing() -> None:
    assert not list(judgements(RunSample(sample_id="x")))
