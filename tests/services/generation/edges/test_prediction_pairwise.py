"""EdgeService.PredictEdges pair by pair, over real gRPC.

Reading yes and no, and how likely yes was.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from itertools import permutations
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dramaturg.api.common.v1 import verdict_pb2
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.generation.v1 import edge_service_pb2 as pb
from dramaturg.api.generation.v1.generation_service_pb2 import AlternativeToken, TokenLogprob
from dramaturg.api.graph.v1.script_graph_pb2 import Event
from dramaturg.service.errors import from_rpc_error
from services.generation.edges.prediction import probability_of_yes, read_yes_no
from tests.services.generation.edges.conftest import EVENTS, predict, shown
from tests.support.openai_server import Answer, Body

TEXTS = {event.text: event.id for event in EVENTS}
ORDER = ["first", "middle", "last"]
PAIRWISE = {"method": pb.EDGE_METHOD_PAIRWISE}


def pair(body: Body) -> tuple[str, str]:
    """The ids of the two events that are asked about."""
    one, two = re.findall(r"\[BEGIN event [AB] \w+\]\n(.*)\n", shown(body))
    return TEXTS[one], TEXTS[two]


def is_before(body: Body) -> bool:
    one, two = map(ORDER.index, pair(body))
    return one < two


def oracle(body: Body) -> Answer:
    """Knows the order; sure to 0.9 of what comes before and to 0.8 of what does not."""
    yes = is_before(body)
    return Answer("Yes." if yes else "No.", tokens=[("Yes" if yes else "No", math.log(0.9 if yes else 0.8))])


def without_tokens(respond: Callable[[Body], str | Answer]) -> Callable[[Body], Answer]:
    def answer(body: Body) -> Answer:
        reply = respond(body)
        return reply if isinstance(reply, Answer) else Answer(reply, tokens=[])

    return answer


def probabilities(response: pb.PredictEdgesResponse) -> dict[tuple[str, str], float]:
    return {(one.source_id, one.target_id): one.probability for one in response.probabilities}


async def test_each_ordered_pair_is_asked_about_once() -> None:
    response, bodies = await predict(oracle, **PAIRWISE)
    assert Counter(map(pair, bodies)) == Counter(permutations(ORDER, 2))
    found = probabilities(response)
    # The server lists "Yes1", "Yes2" ... as alternatives: neither word, so that the token itself is certain.
    assert found == {two: float(ORDER.index(two[0]) < ORDER.index(two[1])) for two in permutations(ORDER, 2)}
    assert (response.probability_source, response.method) == ("log-probabilities", pb.EDGE_METHOD_PAIRWISE)
    assert not response.dropped
    assert not response.HasField("graph")
    assert (bodies[0]["logprobs"], bodies[0]["top_logprobs"]) == (True, 5)
    assert (bodies[0]["temperature"], bodies[0]["max_tokens"]) == (0, 2048)
    provenance = response.provenance
    assert provenance.name == "llm-edges"
    assert [prompt.name for prompt in provenance.prompts] == ["precedes"]
    assert provenance.usage.provider_call_count == len(provenance.completions) == 6
    assert not any(event.id in shown(body).split() for event in EVENTS for body in bodies)


async def test_without_log_probabilities_the_answers_are_votes() -> None:
    asked: Counter[tuple[str, str]] = Counter()

    def waver(body: Body) -> str:
        """Says yes of what comes before, and every third time of all else."""
        asked[pair(body)] += 1
        return "yes" if is_before(body) or asked[pair(body)] % 3 == 0 else "no"

    response, bodies = await predict(without_tokens(waver), vote_count=3, **PAIRWISE)
    assert set(asked.values()) == {3}
    assert probabilities(response) == {
        two: 1.0 if ORDER.index(two[0]) < ORDER.index(two[1]) else pytest.approx(1 / 3)
        for two in permutations(ORDER, 2)
    }
    assert response.probability_source == "votes"
    assert len(response.provenance.completions) == len(bodies) == 18


async def test_one_vote_is_the_default() -> None:
    response, bodies = await predict(without_tokens(lambda _: "no"), **PAIRWISE)
    assert set(probabilities(response).values()) == {0.0}
    assert len(bodies) == 6


async def test_repeats_ask_for_other_votes() -> None:
    options = JudgeOptions(repeat_index=1)
    response, bodies = await predict(
        without_tokens(lambda _: "yes"), vote_count=2, options=options, **PAIRWISE
    )
    assert len(bodies) == 12
    assert len({call.fingerprint for call in response.provenance.completions}) == 12


async def test_an_endpoint_that_refuses_log_probabilities_is_asked_without() -> None:
    def refuse(body: Body) -> Answer:
        if body.get("logprobs"):
            return Answer("logprobs are not supported", status=400)
        return Answer("yes" if is_before(body) else "no")

    response, bodies = await predict(refuse, vote_count=2, **PAIRWISE)
    assert response.probability_source == "votes"
    assert len(response.probabilities) == 6
    assert sum("logprobs" not in body for body in bodies) == 12


async def test_pairs_without_a_clear_answer_are_left_out_and_said() -> None:
    def unsure(body: Body) -> Answer:
        match pair(body):
            case ("first", "last"):
                return Answer("It depends.")
            case ("last", "first"):
                return Answer("", refusal="I will not.")
            case ("middle", "last"):
                return Answer("Yes", tokens=[("Y", -0.1), ("es", -0.1)])
        return oracle(body)

    response, _ = await predict(unsure, **PAIRWISE)
    assert probabilities(response).keys() == {("first", "middle"), ("middle", "first"), ("last", "middle")}
    assert sorted(response.dropped) == [
        "'first' before 'last': The answer is not clearly yes or no.",
        "'last' before 'first': The model declined to answer: I will not.",
        "'middle' before 'last': No log-probability of the answer was given.",
    ]
    assert response.abstain_reason == verdict_pb2.ABSTAIN_REASON_UNSPECIFIED


async def test_unclear_votes_do_not_count_and_are_said() -> None:
    asked: Counter[tuple[str, str]] = Counter()

    def mumble(body: Body) -> str:
        asked[pair(body)] += 1
        return "hm" if pair(body) == ("first", "last") and asked[pair(body)] == 1 else "yes"

    response, _ = await predict(without_tokens(mumble), vote_count=2, **PAIRWISE)
    assert probabilities(response)["first", "last"] == 1.0
    assert list(response.dropped) == ["'first' before 'last': 1 of 2 votes are unclear"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer("", refusal="No."), verdict_pb2.ABSTAIN_REASON_REFUSED),
        (Answer("Yes", finish_reason="length"), verdict_pb2.ABSTAIN_REASON_TRUNCATED),
        (Answer("I cannot answer this question."), verdict_pb2.ABSTAIN_REASON_REFUSED),
        (Answer("yes and no"), verdict_pb2.ABSTAIN_REASON_UNPARSABLE),
        (Answer(""), verdict_pb2.ABSTAIN_REASON_EMPTY),
        (Answer("full", status=400), verdict_pb2.ABSTAIN_REASON_CALL_REJECTED),
    ],
)
async def test_without_any_answer_it_abstains(answer: Answer, reason: Any) -> None:
    response, _ = await predict(lambda _: answer, **PAIRWISE)
    assert response.abstain_reason == reason
    assert not response.probabilities
    assert response.probability_source == ""
    assert len(response.dropped) == 6


async def test_a_model_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await predict(lambda _: Answer("no such model", status=404, error_code="model_not_found"), **PAIRWISE)
    assert from_rpc_error(caught.value).reason_name == "ERROR_REASON_MODEL_UNKNOWN"


async def test_forty_events_make_1560_calls() -> None:
    events = [Event(id=str(index), text=f"event {index}") for index in range(40)]
    response, bodies = await predict(lambda _: "no", events=events, **PAIRWISE)
    assert len(response.probabilities) == len(bodies) == 1560


LOGPROBS = st.floats(min_value=-20, max_value=0)


def token(text: str, probability: float, **alternatives: float) -> TokenLogprob:
    return TokenLogprob(
        token=text,
        logprob=math.log(probability),
        alternatives=[
            AlternativeToken(token=word.replace("_", " "), logprob=math.log(one))
            for word, one in alternatives.items()
        ],
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("yes", True),
        ("Yes.", True),
        (" **No** ", False),
        ("Answer: no", False),
        ("Yes, because it must be hot.", True),
        ("No - they can be done side by side.", False),
        ("yes and no", None),
        ("Yes. No.", None),
        ("No event needs the other.", None),
        ("It is not clear.", None),
        ("I would say yes", None),
        ("yesterday", None),
        ("nobody", None),
        ("", None),
        ("y", None),
    ],
)
def test_only_a_clear_answer_is_read(text: str, expected: bool | None) -> None:
    assert read_yes_no(text) is expected


def test_spellings_are_summed_and_normalised_over_the_two_words() -> None:
    tokens = [token("Yes", 0.5, Yes=0.5, _yes=0.1, No=0.15, Maybe=0.2)]
    assert probability_of_yes(tokens, answer=True) == pytest.approx(0.6 / 0.75)


def test_without_alternatives_the_other_word_is_given_the_rest() -> None:
    assert probability_of_yes([token("No", 0.7)], answer=False) == pytest.approx(0.3)
    assert probability_of_yes([token("Yes", 0.7)], answer=True) == pytest.approx(0.7)


def test_a_word_that_is_not_listed_counts_as_impossible() -> None:
    assert probability_of_yes([token("Yes", 0.9, Yes=0.9, Well=0.1)], answer=True) == 1.0
    assert probability_of_yes([token("No", 0.9, No=0.9, Well=0.1)], answer=False) == 0.0


def test_the_token_counts_even_where_the_list_leaves_it_out() -> None:
    assert probability_of_yes([token("yes", 0.2, No=0.6)], answer=True) == pytest.approx(0.25)


@pytest.mark.parametrize("tokens", [[], [token("Y", 0.9), token("es", 0.9)], [token("no", 0.9)]])
def test_tokens_that_do_not_show_the_answer_give_nothing(tokens: list[TokenLogprob]) -> None:
    assert probability_of_yes(tokens, answer=True) is None


def test_an_impossible_log_probability_gives_nothing() -> None:
    assert probability_of_yes([TokenLogprob(token="yes", logprob=math.nan)], answer=True) is None
    assert probability_of_yes([TokenLogprob(token="yes", logprob=0.1)], answer=True) is None


@given(LOGPROBS, st.lists(st.tuples(st.sampled_from(["Yes", " no", "NO", "x"]), LOGPROBS), max_size=5))
def test_it_is_always_a_probability(logprob: float, others: list[tuple[str, float]]) -> None:
    alternatives = [AlternativeToken(token=word, logprob=one) for word, one in others]
    tokens = [TokenLogprob(token="Yes", logprob=logprob, alternatives=alternatives)]
    probability = probability_of_yes(tokens, answer=True)
    assert probability is not None
    assert 0 <= probability <= 1
