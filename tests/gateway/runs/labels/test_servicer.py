"""LabelService over real gRPC, on a real store, with AlignmentService."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from dramaturg.api.common.v1.verdict_pb2 import OUTCOME_ABSTAIN, OUTCOME_FAIL
from dramaturg.api.evaluation.v1 import label_service_pb2 as pb
from dramaturg.api.evaluation.v1 import label_service_pb2_grpc
from dramaturg.api.evaluation.v1.run_service_pb2 import ResultFilter
from dramaturg.conformance.judges import PIXEL
from dramaturg.service.errors import ServiceError, from_rpc_error
from dramaturg.testing import serve
from gateway.runs.labels import servicer
from gateway.runs.labels.population import task_of
from gateway.runs.store import RunStore
from gateway.settings import JudgeEntry
from services.alignment.app import App as AlignmentApp
from tests.dramaturg.report.many import many
from tests.dramaturg.report.samples import sample
from tests.support.auth import Holder, channel_of, holder
from tests.support.console import serve_console
from tests.support.labelling import KINDS, agent_run, finished_run

EVALUATOR, VIEWER = holder("research", "evaluator"), holder("research", "viewer")
STRANGER = holder("elsewhere", "evaluator")


@dataclass
class Labelling:
    store: RunStore
    target: str
    stub: label_service_pb2_grpc.LabelServiceAsyncStub

    async def create(self, **fields: Any) -> pb.LabelSet:
        response = await self.stub.CreateLabelSet(pb.CreateLabelSetRequest(run_id="run", **fields))
        return response.label_set

    async def items(self, label_set: pb.LabelSet, **fields: Any) -> list[pb.LabelItem]:
        request = pb.ListLabelItemsRequest(label_set_id=label_set.id, page_size=1000, **fields)
        return list((await self.stub.ListLabelItems(request)).items)

    async def write(self, label_set: pb.LabelSet, annotator: str, position: int, label: str) -> None:
        request = pb.WriteLabelRequest(
            label_set_id=label_set.id, annotator=annotator, position=position, label=label
        )
        await self.stub.WriteLabel(request)

    async def progress(self, label_set: pb.LabelSet) -> pb.LabelSet:
        response = await self.stub.GetLabelSet(pb.GetLabelSetRequest(label_set_id=label_set.id))
        return response.label_set

    async def export(self, label_set: pb.LabelSet, **fields: Any) -> str:
        request = pb.ExportLabelsRequest(label_set_id=label_set.id, **fields)
        return b"".join([piece.chunk async for piece in self.stub.ExportLabels(request)]).decode()


@asynccontextmanager
async def labelling(folder: Path, *holders: Holder, **options: Any) -> AsyncIterator[Labelling]:
    async with AlignmentApp().open() as contracts, serve(*contracts) as alignment:
        judges = [JudgeEntry(role="alignment", name="x", target=alignment.target)]
        async with serve_console(folder, judges, holders, **options) as served:
            who = holders[0] if holders else None
            async with channel_of(served.target, folder, who) as channel:
                yield Labelling(served.store, served.target, label_service_pb2_grpc.LabelServiceStub(channel))


async def refused(call: Any) -> ServiceError:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return from_rpc_error(raised.value)


@pytest.mark.parametrize("kind", sorted(KINDS))
async def test_each_kind_has_items_with_texts_and_choices(tmp_path: Path, kind: str) -> None:
    async with labelling(tmp_path) as service:
        finished_run(service.store, many(kind, 20))
        label_set = await service.create(sample_size=30, seed=3)
        items = await service.items(label_set)
        assert label_set.item_count == len(items) == min(30, label_set.population_count)
        assert [one.position for one in items] == list(range(len(items)))
        for one in items:
            assert one.question
            assert len(one.choices) > 1
            assert all(text.text or text.steps for text in one.texts)
        expected = {"pair": "first", "dialogue": "1", "decision": "option 1", "scenarios": "easy"}
        assert {one.choices[0] for one in items} == {expected.get(kind, "PASS")}
        # Two annotators who agree have a kappa of 1, whatever they choose between.
        for annotator in ("ann", "bob"):
            for place, one in enumerate(items[:6]):
                await service.write(label_set, annotator, one.position, one.choices[place % 2])
        (whole, *_) = (await service.progress(label_set)).agreement
        assert whole.item_count == 6
        assert whole.pairs[0].cohen_kappa.value == pytest.approx(1.0)


async def test_a_turn_and_a_call_are_items_of_their_own(tmp_path: Path) -> None:
    async with labelling(tmp_path) as service:
        finished_run(service.store, [agent_run()])
        label_set = await service.create()
        items = {one.item + " " + one.criterion: one for one in await service.items(label_set)}
        # "needed" abstains as a whole.
        assert sorted(items) == [
            "sky/run reaches_the_goal",
            "sky/run/Turn 2 helps",
            "sky/run/Turn 2, call 1 names_city",
            "sky/run/Turn 2, call 2 names_city",
            "sky/run/Turn 4 helps",
        ]
        places = {name: (one.turn_index, one.call_index) for name, one in items.items()}
        assert places["sky/run/Turn 2, call 2 names_city"] == (1, 1)
        assert not items["sky/run reaches_the_goal"].HasField("turn_index")
        turn = items["sky/run/Turn 4 helps"]
        assert (turn.turn_index, turn.HasField("call_index")) == (3, False)
        assert turn.question.startswith("Turn 4 alone, with all that precedes it: ")
        for name, label in zip(sorted(items), ("PASS", "PASS", "PASS", "FAIL", "PASS"), strict=True):
            await service.write(label_set, "ann", items[name].position, label)
        rows = {
            sheet: [json.loads(line) for line in (await service.export(label_set, sheet=sheet)).splitlines()]
            for sheet in (pb.LABEL_SHEET_LABELS, pb.LABEL_SHEET_SCORES, pb.LABEL_SHEET_ESTIMATES)
        }
        assert len({(row["item"], row["criterion"]) for row in rows[pb.LABEL_SHEET_LABELS]}) == 5
        scores = {row["id"]: (row["human"], row["judge"]) for row in rows[pb.LABEL_SHEET_SCORES]}
        assert scores["sky/run/Turn 2, call 2"] == (0.0, 0.0)
        assert scores["sky/run/Turn 4"] == (1.0, 0.0)
        estimates = rows[pb.LABEL_SHEET_ESTIMATES]
        assert len({row["item"] for row in estimates}) == label_set.population_count == 5
        assert sorted(row["predicted"] - row["label"] for row in estimates) == [-1, 0, 0, 0, 0]


async def test_units_that_the_judge_abstained_from_are_drawn_on_request(tmp_path: Path) -> None:
    async with labelling(tmp_path) as service:
        finished_run(service.store, [agent_run()])
        label_set = await service.create(filter=ResultFilter(outcomes=[OUTCOME_ABSTAIN]))
        assert sorted(one.item for one in await service.items(label_set)) == [
            "sky/run/Turn 2, call 1",
            "sky/run/Turn 2, call 2",
        ]


async def test_a_conversation_has_its_turns_and_small_images(tmp_path: Path) -> None:
    async with labelling(tmp_path) as service:
        finished_run(service.store, [agent_run()])
        (item, *_) = await service.items(await service.create())
    shown = item.texts[-1]
    assert (shown.title, len(shown.steps)) == ("Conversation", 4)
    assert "http://10.0.0.1/sky.png" in shown.steps[0]
    assert [(one.step_index, one.data) for one in shown.images] == [(0, PIXEL)]


@pytest.mark.parametrize("kind", ["decision", "dialogue", "scenarios"])
async def test_items_of_rows_without_ids_have_different_names(tmp_path: Path, kind: str) -> None:
    samples = list(many(kind, 6))
    for one in samples:
        match kind:
            case "decision":
                one.decision.decision.id = ""
            case "dialogue":
                one.dialogue.script.id = ""
            case "scenarios":
                one.scenarios.id = ""
    async with labelling(tmp_path) as service:
        finished_run(service.store, samples)
        names = [one.item for one in await service.items(await service.create(sample_size=30))]
    assert len(names) > 5
    assert len(set(names)) == len(names)


async def test_equal_seeds_draw_equal_items_in_equal_order(tmp_path: Path) -> None:
    async with labelling(tmp_path) as service:
        finished_run(service.store, many("scripts", 20))
        drawn = [
            [one.item + one.criterion for one in await service.items(await service.create(seed=seed))]
            for seed in (1, 1, 2)
        ]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]
    assert len(set(drawn[0])) == 100


async def test_the_draw_is_kept_and_tells_annotators_nothing(tmp_path: Path) -> None:
    async with labelling(tmp_path) as service:
        finished_run(service.store, many("scripts", 20))
        assert (await service.create()).draw == pb.LABEL_DRAW_UNIFORM
        for draw in (pb.LABEL_DRAW_STRATIFIED, pb.LABEL_DRAW_ACTIVE):
            label_set = await service.create(sample_size=20, draw=draw)
            assert (await service.progress(label_set)).draw == draw
            items = await service.items(label_set)
            assert len(items) == 20
            for one in items:
                await service.write(label_set, "ann", one.position, one.choices[0])
            text = await service.export(label_set, sheet=pb.LABEL_SHEET_ESTIMATES)
            rows = [json.loads(line) for line in text.splitlines()]
            assert len(rows) == label_set.population_count
            assert all(("probability" in row) == ("label" in row) for row in rows)
            drawn = [row for row in rows if "label" in row]
            assert len(drawn) == 20
            if draw == pb.LABEL_DRAW_STRATIFIED:
                assert {row["stratum"] for row in rows} == {"0", "1"}
                for value in (0.0, 1.0):
                    mine = [row["probability"] for row in drawn if row["predicted"] == value]
                    there = sum(row["predicted"] == value for row in rows)
                    assert mine == pytest.approx([len(mine) / there] * len(mine))
            scores = await service.export(label_set, sheet=pb.LABEL_SHEET_SCORES)
            assert all(json.loads(line)["probability"] for line in scores.splitlines())


async def test_a_draw_by_values_of_decisions_is_refused(tmp_path: Path) -> None:
    async with labelling(tmp_path) as service:
        finished_run(service.store, many("decision", 4))
        wrong = await refused(service.create(draw=pb.LABEL_DRAW_STRATIFIED))
        assert wrong.violations[0][0] == "draw"


async def test_a_pair_is_shown_with_its_texts_and_source(tmp_path: Path) -> None:
    async with labelling(tmp_path) as service:
        finished_run(service.store, many("pair", 4))
        label_set = await service.create()
        assert label_set.task == pb.LABEL_TASK_PREFERENCE
        first = (await service.items(label_set))[0]
        assert [text.title for text in first.texts] == ["Source", "First text", "Second text"]
        assert first.texts[1].text.startswith("The first summary of ")


async def test_criteria_with_a_scale_are_rated(tmp_path: Path) -> None:
    async with labelling(tmp_path) as service:
        finished_run(service.store, [sample("texts")])
        verdicts = await service.items(await service.create())
        assert [(one.criterion, list(one.choices)) for one in verdicts] == [("polite", ["PASS", "FAIL"])]
        ratings = await service.items(await service.create(task=pb.LABEL_TASK_RATING))
        assert [(one.criterion, list(one.choices)) for one in ratings] == [("clear", list("12345"))]
        assert "1: Confusing." in ratings[0].question


async def test_filters_select_what_is_drawn(tmp_path: Path) -> None:
    async with labelling(tmp_path) as service:
        finished_run(service.store, many("scripts", 20))
        fails = await service.create(
            sample_size=2000, filter=ResultFilter(outcomes=[OUTCOME_FAIL], measures=["executable"])
        )
        assert {one.criterion for one in await service.items(fails)} == {"executable"}
        whole = await service.create(sample_size=2000)
        abstentions = await service.create(sample_size=2000, filter=ResultFilter(outcomes=[OUTCOME_ABSTAIN]))
        seen = {one.item + one.criterion for one in await service.items(whole)}
        assert not seen & {one.item + one.criterion for one in await service.items(abstentions)}
        nothing = service.create(filter=ResultFilter(measures=["unknown"]))
        assert (await refused(nothing)).violations[0][0] == "filter"


async def test_annotators_have_queues_of_their_own_and_kappa_is_that_of_alignment(tmp_path: Path) -> None:
    async with labelling(tmp_path) as service:
        finished_run(service.store, many("scripts", 20))
        label_set = await service.create(sample_size=10)
        given = {"ann": "PPPPPFFFFF", "bob": "PPPPFFFFFP"}
        names = {"P": "PASS", "F": "FAIL"}
        for annotator, labels in given.items():
            for position, letter in enumerate(labels):
                await service.write(label_set, annotator, position, names[letter])
        await service.write(label_set, "cid", 4, "PASS")
        left = await service.items(label_set, annotator="cid", unlabelled_only=True)
        assert [one.position for one in left] == [0, 1, 2, 3, 5, 6, 7, 8, 9]
        found = await service.progress(label_set)
        assert [(one.annotator, one.labelled_count) for one in found.annotators] == [
            ("ann", 10),
            ("bob", 10),
            ("cid", 1),
        ]
        pairs = {(one.first_annotator, one.second_annotator): one for one in found.agreement[0].pairs}
        # Both marginals are one half: kappa is (0.8 - 0.5) / 0.5.
        assert pairs["ann", "bob"].cohen_kappa.value == pytest.approx(0.6)
        assert not found.agreement_problem


async def test_one_annotator_has_no_agreement(tmp_path: Path) -> None:
    async with labelling(tmp_path) as service:
        finished_run(service.store, many("scripts", 5))
        label_set = await service.create()
        await service.write(label_set, "ann", 0, "PASS")
        found = await service.progress(label_set)
        assert not found.agreement
        assert not found.agreement_problem


async def test_labels_are_choices_of_items_that_exist(tmp_path: Path) -> None:
    async with labelling(tmp_path) as service:
        finished_run(service.store, many("dialogue", 5))
        label_set = await service.create(sample_size=3)
        wrong = await refused(service.write(label_set, "ann", 0, "11"))
        assert wrong.violations[0][0] == "label"
        assert "10" in wrong.violations[0][1]
        assert (await refused(service.write(label_set, "ann", 3, "1"))).violations[0][0] == "position"
        assert (await refused(service.write(label_set, "", 0, "1"))).violations[0][0] == "annotator"
        await service.write(label_set, "ann", 0, "10")
        assert (await service.items(label_set, annotator="ann"))[0].label == "10"
        await service.write(label_set, "ann", 0, "")
        assert (await service.items(label_set, annotator="ann"))[0].label == ""


async def test_an_edge_is_shown_with_its_events_and_judged_by_the_reference(tmp_path: Path) -> None:
    some = list(many("graphs", 6))
    async with labelling(tmp_path) as service:
        finished_run(service.store, some)
        label_set = await service.create(sample_size=2000)
        items = await service.items(label_set)
        edges = sum(len(graph.graph.edges) for one in some for graph in one.graphs.graphs)
        assert len(items) == label_set.population_count == edges
        for one in items:
            graphs = some[one.sample_index].graphs
            source, _, target = one.candidate_id.partition("->")
            names = {event.id: event.text for event in graphs.reference.events}
            assert [text.text for text in one.texts[:2]] == [names[source], names[target]]
        await service.write(label_set, "ann", 0, "PASS")
        sheet = await service.export(label_set, sheet=pb.LABEL_SHEET_SCORES)
        row = json.loads(sheet)
        wanted = {
            (one.source_id, one.target_id) for one in some[items[0].sample_index].graphs.reference.edges
        }
        assert row["judge"] == float(tuple(items[0].candidate_id.split("->")) in wanted)


async def test_a_decision_is_one_item_also_without_a_right_choice(tmp_path: Path) -> None:
    some = list(many("decision", 8))
    for one in some[:4]:
        one.decision.ClearField("gold")
        for choice in one.decision.choices:
            choice.ClearField("correct")
    async with labelling(tmp_path) as service:
        finished_run(service.store, some)
        items = await service.items(await service.create())
        assert sorted(one.item for one in items) == sorted(one.decision.decision.id for one in some)
        assert {tuple(one.choices) for one in items} == {("option 1", "option 2", "either")}


async def test_a_set_has_only_the_sheets_of_its_task(tmp_path: Path) -> None:
    async with labelling(tmp_path) as service:
        finished_run(service.store, many("decision", 4))
        label_set = await service.create()
        for sheet in (pb.LABEL_SHEET_SCORES, pb.LABEL_SHEET_ESTIMATES, pb.LABEL_SHEET_REVIEW):
            wrong = await refused(service.export(label_set, sheet=sheet))
            assert wrong.violations[0][0] == "sheet"
    with pytest.raises(ServiceError) as raised:
        task_of("simulations", pb.LABEL_TASK_UNSPECIFIED)
    assert "has no items to label" in raised.value.violations[0][1]


async def test_a_run_without_such_items_is_refused(tmp_path: Path) -> None:
    async with labelling(tmp_path) as service:
        finished_run(service.store, many("scripts", 2))
        wrong = await refused(service.create(task=pb.LABEL_TASK_PREFERENCE))
        assert wrong.violations[0][0] == "task"
        request = pb.CreateLabelSetRequest(run_id="another")
        assert (await refused(service.stub.CreateLabelSet(request))).code is grpc.StatusCode.NOT_FOUND


async def test_items_and_annotators_of_a_set_have_a_maximum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servicer, "MAX_ANNOTATORS", 2)
    async with labelling(tmp_path) as service:
        finished_run(service.store, many("scripts", 4))
        label_set = await service.create()
        for annotator in ("ann", "bob", "ann"):
            await service.write(label_set, annotator, 0, "PASS")
        error = await refused(service.write(label_set, "cleo", 0, "PASS"))
        assert error.reason_name == "ERROR_REASON_QUOTA_EXHAUSTED"
        assert [one.annotator for one in (await service.progress(label_set)).annotators] == ["ann", "bob"]
        monkeypatch.setattr(servicer, "MAX_SET_BYTES", 100)
        wrong = await refused(service.create())
        assert wrong.violations[0][0] == "sample_size"


async def test_a_repeated_request_returns_its_set_and_sets_have_a_maximum(tmp_path: Path) -> None:
    async with labelling(tmp_path, max_label_sets=2) as service:
        finished_run(service.store, many("scripts", 2))
        request_id = str(uuid.uuid4())
        first = await service.create(request_id=request_id)
        assert (await service.create(request_id=request_id)).id == first.id
        second = await service.create()
        error = await refused(service.create())
        assert error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "2 label sets" in error.message
        page = await service.stub.ListLabelSets(pb.ListLabelSetsRequest(page_size=1))
        assert [one.id for one in page.label_sets] == [second.id]
        rest = await service.stub.ListLabelSets(
            pb.ListLabelSetsRequest(page_size=1, page_token=page.next_page_token)
        )
        assert ([one.id for one in rest.label_sets], rest.next_page_token) == ([first.id], "")
        await service.stub.DeleteLabelSet(pb.DeleteLabelSetRequest(label_set_id=first.id))
        assert (await refused(service.progress(first))).code is grpc.StatusCode.NOT_FOUND
        await service.create()


async def test_sets_are_of_a_tenant_and_writing_needs_the_permission(tmp_path: Path) -> None:
    async with labelling(tmp_path, EVALUATOR, VIEWER, STRANGER) as service:
        finished_run(service.store, many("scripts", 2), tenant="research")
        label_set = await service.create()
        async with channel_of(service.target, tmp_path, STRANGER) as channel:
            strange = Labelling(
                service.store, service.target, label_service_pb2_grpc.LabelServiceStub(channel)
            )
            for call in (
                strange.progress(label_set),
                strange.write(label_set, "a", 0, "PASS"),
                strange.create(),
            ):
                assert (await refused(call)).code is grpc.StatusCode.NOT_FOUND
        async with channel_of(service.target, tmp_path, VIEWER) as channel:
            reading = Labelling(
                service.store, service.target, label_service_pb2_grpc.LabelServiceStub(channel)
            )
            assert await reading.items(label_set)
            denied = await refused(reading.write(label_set, "a", 0, "PASS"))
            assert denied.code is grpc.StatusCode.PERMISSION_DENIED
