"""Written events are matched with the reference's by meaning, through a real embedding and graph service."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.optimize import linear_sum_assignment

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.evaluation.v1.graphs_pb2 import (
    EVENT_MATCHING_EMBEDDINGS,
    EVENT_MATCHING_TEXT,
)
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.api.graph.v1 import graph_service_pb2
from dramaturg.results.rows import flatten
from dramaturg.service.errors import ServiceError
from dramaturg.testing import serve
from gateway.evaluations.graphs.matching import MAX_EVENTS, assign
from gateway.evaluations.graphs.summary import Counts
from services.embedding.settings import EmbeddingSettings
from tests.support.embedding import WarmApp
from tests.support.evaluations import contract
from tests.support.graph_evaluations import (
    GENERATE,
    TEXTS,
    asked,
    eggs,
    graphs_gateway,
    graphs_result,
    only_graph,
    refusing,
    writing,
)

CAREFUL = eggs(texts={name: f"carefully {text}" for name, text in TEXTS.items()})


@pytest.fixture
async def embedding() -> AsyncIterator[str]:
    async with WarmApp(EmbeddingSettings()).open() as contracts, serve(*contracts) as server:
        yield server.target


async def test_a_right_script_in_other_words_has_no_distance_by_meaning(graph: str, embedding: str) -> None:
    async with graphs_gateway(graph, write=writing(CAREFUL), embedding=embedding) as target:
        result = await graphs_result(target, asked(task=GENERATE))
    (measured,) = result.graphs
    assert (measured.distance.distance, measured.distance.proven) == (0, True)
    assert measured.distance.label_rule == graph_service_pb2.LABEL_RULE_GIVEN
    # By text all four events and three edges are replaced.
    assert measured.text_distance.distance == 4 + 3
    matches = measured.event_matches
    assert (matches.matching, matches.threshold, matches.service) == (
        EVENT_MATCHING_EMBEDDINGS,
        0.75,
        "built-in",
    )
    assert [(one.event_id, one.reference_id) for one in matches.matches] == [(name, name) for name in TEXTS]
    assert all(0.75 <= one.similarity < 1 for one in matches.matches)
    assert matches.model == "all-MiniLM-L6-v2"
    assert len(matches.weights_sha256) == 64
    rows = {row.measure: row.value for row in flatten(RunSample(graphs=result))}
    assert rows == {"edit_distance": 0, "edit_distance/lower_bound": 0, "edit_distance/text": 7}
    counts = Counts()
    counts.add([measured])
    assert {key: sums.upper.total for key, sums in counts.distances.items()} == {
        ("proscript", "embeddings"): 0,
        ("proscript", "text"): 7,
    }
    assert counts.event_count_mismatches == 0


async def test_the_matching_and_its_threshold_can_be_chosen(graph: str, embedding: str) -> None:
    async with graphs_gateway(graph, write=writing(CAREFUL), embedding=embedding) as target:
        by_text = await only_graph(target, asked(task=GENERATE, event_matching=EVENT_MATCHING_TEXT))
        strict = await only_graph(target, asked(task=GENERATE, match_threshold=0.999))
    assert by_text.event_matches.matching == EVENT_MATCHING_TEXT
    assert by_text.distance.distance == 7
    assert not by_text.HasField("text_distance")
    assert strict.distance.distance == 7
    assert not strict.event_matches.matches


async def test_a_graph_with_fewer_events_than_requested_is_counted(graph: str, embedding: str) -> None:
    short = eggs("1>2", {"1": TEXTS["1"], "2": TEXTS["2"]})
    async with graphs_gateway(graph, write=writing(short), embedding=embedding) as target:
        measured = await only_graph(target, asked(task=GENERATE))
    assert (measured.requested_event_count, len(measured.graph.events)) == (4, 2)
    counts = Counts()
    counts.add([measured])
    assert counts.event_count_mismatches == 1


async def test_without_an_embedding_service_the_default_is_by_text(graph: str) -> None:
    async with graphs_gateway(graph, write=writing(CAREFUL)) as target:
        measured = await only_graph(target, asked(task=GENERATE))
        with pytest.raises(ServiceError) as raised:
            await only_graph(target, asked(task=GENERATE, event_matching=EVENT_MATCHING_EMBEDDINGS))
    assert measured.event_matches.matching == EVENT_MATCHING_TEXT
    assert raised.value.code is grpc.StatusCode.FAILED_PRECONDITION
    assert raised.value.reason == error_reason_pb2.ERROR_REASON_ROLE_UNBOUND


async def test_an_embedding_service_that_fails_leaves_the_distance_by_text(graph: str) -> None:
    async with (
        serve(contract("embedding", {"Embed": refusing})) as server,
        graphs_gateway(graph, write=writing(CAREFUL), embedding=server.target) as target,
    ):
        result = await graphs_result(target, asked(task=GENERATE))
    (measured,) = result.graphs
    assert not measured.HasField("distance")
    assert measured.text_distance.distance == 7
    assert measured.failures == [
        (
            "The edit distance by meaning is not measured: "
            "embedding 'built-in' failed with INTERNAL: out of order."
        )
    ]
    rows = {row.measure: row for row in flatten(RunSample(graphs=result))}
    assert not rows["edit_distance"].HasField("value")
    assert rows["edit_distance/text"].value == 7


async def test_events_of_the_reference_need_no_matching(graph: str, embedding: str) -> None:
    async with graphs_gateway(graph, write=writing(eggs()), embedding=embedding) as target:
        result = await graphs_result(target, asked(task=GENERATE))
    (measured,) = result.graphs
    assert measured.distance.label_rule == graph_service_pb2.LABEL_RULE_ID
    assert not measured.HasField("event_matches")
    assert not measured.HasField("text_distance")


def test_the_assignment_has_the_largest_sum_over_allowed_pairs() -> None:
    # Greedily the first row takes the first column, and the second row has none.
    similarities = np.array([[0.95, 0.9], [0.8, 0.1]])
    assert assign(similarities, 0.75) == [(0, 1), (1, 0)]
    assert assign(similarities, 0.85) == [(0, 0)]
    assert assign(similarities, 0.96) == []
    assert assign(np.array([[-0.5, 0.2], [0.1, -0.9]]), -1.0) == [(0, 1), (1, 0)]


@given(
    arrays.arrays(
        np.float64, st.tuples(st.integers(1, 6), st.integers(1, 6)), elements=st.floats(-1, 1, width=32)
    ),
    st.floats(-1, 1),
)
def test_pairs_are_one_to_one_and_reach_the_threshold(
    similarities: np.ndarray[tuple[int, int], np.dtype[np.float64]], threshold: float
) -> None:
    pairs = assign(similarities, threshold)
    assert len({row for row, _ in pairs}) == len({column for _, column in pairs}) == len(pairs)
    assert all(similarities[pair] >= threshold - 1e-6 for pair in pairs)


@given(
    arrays.arrays(
        np.float64, st.tuples(st.integers(1, 6), st.integers(1, 6)), elements=st.floats(-1, 1, width=32)
    ),
    st.floats(-1, 1),
)
def test_no_assignment_has_a_larger_sum(
    similarities: np.ndarray[tuple[int, int], np.dtype[np.float64]], threshold: float
) -> None:
    gains = np.where(similarities >= threshold - 1e-6, similarities + 2.0, 0.0)
    best = gains[linear_sum_assignment(gains, maximize=True)].sum()
    assert sum(gains[pair] for pair in assign(similarities, threshold)) == pytest.approx(best)


async def test_long_graphs_are_not_matched_by_meaning(graph: str, embedding: str) -> None:
    texts = {str(number): f"step {number}" for number in range(MAX_EVENTS + 1)}
    async with graphs_gateway(graph, write=writing(eggs(texts=texts)), embedding=embedding) as target:
        (measured,) = (await graphs_result(target, asked(task=GENERATE))).graphs
    assert not measured.HasField("event_matches") or not measured.event_matches.matches
    assert any(f"more than {MAX_EVENTS} events" in problem for problem in measured.failures)
