"""LabelService: draws items for people to label, and keeps their labels."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import grpc

from dramaturg.api.evaluation.v1 import label_service_pb2 as pb
from dramaturg.api.evaluation.v1 import label_service_pb2_grpc
from dramaturg.api.evaluation.v1.label_service_pb2 import LabelItem, LabelTask
from dramaturg.api.evaluation.v1.run_pb2 import RunSample
from dramaturg.judge import criteria
from dramaturg.judge.conversations import unit_name
from dramaturg.judge.roles import JudgeRole
from dramaturg.service.auth.caller import tenant_of
from dramaturg.service.errors import invalid
from dramaturg.service.threads import TenantThreads
from gateway.evaluations.kinds import run_kind
from gateway.evaluations.statistics import call_service
from gateway.judges.registry import Registry
from gateway.processes.pool import ProcessPool, no_answer
from gateway.quotas.gate import quota_exhausted
from gateway.runs.labels import reads
from gateway.runs.labels.drawn import MAX_CHOICES, Context, Drawn, LabelledKind
from gateway.runs.labels.kinds import labelled_kind
from gateway.runs.labels.population import Population, task_of
from gateway.runs.labels.sheets import sheets_of
from gateway.runs.records import LabelSetRecord, NewLabelItem, NewLabelSet, RunRecord
from gateway.runs.service.messages import RunLookup
from gateway.runs.service.pages import fill_page, key_of, next_token, page_size
from gateway.runs.store import RunStore
from gateway.runs.store_calls import ServiceCaller, not_found

_QUESTIONS = {
    criteria.NO_MISSING_STEPS: "Does the script have every step that the goal needs?",
    criteria.NO_REDUNDANT_STEPS: "Does every step serve the goal?",
    criteria.NO_DUPLICATE_STEPS: "Is the script free of steps that repeat another one?",
    criteria.EXECUTABLE: "Does every step agree with common sense?",
    criteria.SATISFIES_CONSTRAINTS: "Does the script respect every constraint of the task?",
    criteria.COMPLETES_GOAL: "Does following the script reach the goal?",
    criteria.ORDER_CORRECT: "Does no step come before a step that it depends on?",
}


class ItemBuilder:
    """Builds the items of samples.

    Args:
        kind: The kind of the run.
        task: The question.
        roles: The roles of judges, which define criteria.
    """

    def __init__(self, kind: LabelledKind, task: LabelTask.ValueType, roles: Mapping[str, object]) -> None:
        self._kind = kind
        self._task = task
        self._questions = dict(_QUESTIONS)
        for role in roles.values():
            if isinstance(role, JudgeRole):
                self._questions |= role.definitions

    def build(self, drawn: Drawn, sample: RunSample, request: bytes) -> LabelItem | None:
        """The item of a judgement. None: the sample has no text for it.

        Args:
            drawn: The judgement.
            sample: Its sample.
            request: The request of the sample, where the kind reads it.
        """
        if sample.WhichOneof("result") is None:
            return None
        item = self._kind.build(drawn, sample, Context(self._task, self._questions, request))
        if item is None or not 1 < len(item.choices) <= MAX_CHOICES:
            return None
        item.sample_index, item.candidate_id = drawn.sample, drawn.candidate_id
        if drawn.unit is not None:
            name = unit_name(drawn.unit)
            item.item = f"{item.item}/{name}"
            item.question = f"{name} alone, with all that precedes it: {item.question}"
            item.MergeFrom(LabelItem(turn_index=drawn.unit.turn_index, call_index=drawn.unit.call_index))
        return item


ServicerContext = grpc.aio.ServicerContext[Any, Any]

MAX_SET_BYTES = 64 << 20
"""The most bytes of the items of a set."""
MAX_ANNOTATORS = 100
"""The most annotators of a set."""
_DEFAULT_SIZE = 100
_DEFAULT_SETS = 50
_DEFAULT_ITEMS = 20


class LabelServicer(label_service_pb2_grpc.LabelServiceServicer):
    """``evaluation.v1.LabelService``.

    Args:
        store: The run store.
        registry: The registered judges: the roles that define criteria, and AlignmentService.
        threads: The threads of long calls.
        processes: The processes that read whole sets. None: threads do.
        max_label_sets: The most label sets of a tenant.
    """

    def __init__(
        self,
        store: RunStore,
        registry: Registry,
        threads: TenantThreads,
        processes: ProcessPool | None = None,
        *,
        max_label_sets: int,
    ) -> None:
        self._store = store
        self._registry = registry
        self._processes = processes or ProcessPool(0)
        self._most = max_label_sets
        self._caller = ServiceCaller(threads)
        self._runs = RunLookup(store, self._caller)

    def close(self) -> None:
        """Ends the threads of store calls."""
        self._caller.close()

    async def CreateLabelSet(
        self, request: pb.CreateLabelSetRequest, context: ServicerContext
    ) -> pb.CreateLabelSetResponse:
        tenant = tenant_of(context)
        if request.request_id:
            found = await self._caller.call(self._store.label_sets.requested, request.request_id, tenant)
            if found is not None:
                return pb.CreateLabelSetResponse(label_set=found.description)
        run = await self._runs.find(request.run_id, tenant)
        new = await self._caller.call_heavy(tenant, self._draw, run, request)
        created = await self._caller.call_heavy(tenant, self._store.label_sets.create, new, self._most)
        if created is None:
            raise quota_exhausted("label_sets", self._most, "label sets", None)
        return pb.CreateLabelSetResponse(label_set=created.description)

    async def GetLabelSet(
        self, request: pb.GetLabelSetRequest, context: ServicerContext
    ) -> pb.GetLabelSetResponse:
        record = await self._find(request.label_set_id, context)
        tenant = tenant_of(context)
        found = await self._processes.result(tenant, self._answer, reads.describe, record, self._store)
        return pb.GetLabelSetResponse(label_set=pb.LabelSet.FromString(found))

    async def ListLabelSets(
        self, request: pb.ListLabelSetsRequest, context: ServicerContext
    ) -> pb.ListLabelSetsResponse:
        size, key = page_size(request, _DEFAULT_SETS), key_of(request, int)
        found = await self._caller.call(
            self._store.label_sets.page,
            tenant_of(context),
            limit=size + 1,
            before=None if key is None else int(key[0]),
        )
        response = pb.ListLabelSetsResponse(label_sets=[one.description for one in found[:size]])
        if len(found) > size:
            response.next_page_token = next_token(request, [found[size - 1].number])
        return response

    async def ListLabelItems(
        self, request: pb.ListLabelItemsRequest, context: ServicerContext
    ) -> pb.ListLabelItemsResponse:
        record = await self._find(request.label_set_id, context)

        async def read(after: int, limit: int, max_bytes: int) -> list[tuple[int, pb.LabelItem]]:
            del max_bytes
            found = await self._caller.call(
                self._store.label_sets.items,
                record.number,
                after=after,
                limit=limit,
                annotator=request.annotator,
                unlabelled_only=request.unlabelled_only,
            )
            return [(one.item.position, one.item) for one in found]

        key = key_of(request, int)
        first = request.first_position - 1 if key is None else int(key[0])
        page = await fill_page(read, first, page_size(request, _DEFAULT_ITEMS))
        token = "" if page.last is None else next_token(request, [page.last])
        return pb.ListLabelItemsResponse(items=page.items, next_page_token=token)

    async def WriteLabel(
        self, request: pb.WriteLabelRequest, context: ServicerContext
    ) -> pb.WriteLabelResponse:
        record = await self._find(request.label_set_id, context)
        found = await self._caller.call(
            self._store.label_sets.items, record.number, after=int(request.position) - 1, limit=1
        )
        if not found or found[0].item.position != request.position:
            raise invalid(
                "position", f"is {request.position}; the set has {record.description.item_count} items"
            )
        choices = found[0].item.choices
        if request.label and request.label not in choices:
            raise invalid("label", f"is {request.label!r}, none of {', '.join(choices)}")
        stored = await self._caller.call(
            self._store.label_sets.write_label,
            record.number,
            request.position,
            request.annotator,
            request.label,
            request.note,
            MAX_ANNOTATORS,
        )
        if not stored:
            raise quota_exhausted("annotators", MAX_ANNOTATORS, "annotators of a label set", None)
        return pb.WriteLabelResponse()

    async def ExportLabels(
        self, request: pb.ExportLabelsRequest, context: ServicerContext
    ) -> AsyncGenerator[pb.ExportLabelsResponse]:
        """Streams the labels as one file."""
        record = await self._find(request.label_set_id, context)
        tenant = tenant_of(context)
        kind = await self._kind_of(record, request.sheet, tenant)
        pieces = self._processes.stream(tenant, no_answer, reads.export, record, request, kind, self._store)
        async with aclosing(pieces) as chunks:
            async for chunk in chunks:
                yield pb.ExportLabelsResponse(chunk=chunk)

    async def DeleteLabelSet(
        self, request: pb.DeleteLabelSetRequest, context: ServicerContext
    ) -> pb.DeleteLabelSetResponse:
        record = await self._find(request.label_set_id, context)
        await self._caller.call_heavy(tenant_of(context), self._store.label_sets.delete, record.number)
        return pb.DeleteLabelSetResponse()

    async def _kind_of(self, record: LabelSetRecord, sheet: pb.LabelSheet.ValueType, tenant: str) -> str:
        """The kind of the run, if the sheet reads it.

        Raises:
            ServiceError: INVALID_ARGUMENT: the set has no such sheet. NOT_FOUND: the run was deleted.
        """
        found = record.description
        if sheet not in sheets_of(found.task):
            raise invalid(
                "sheet",
                f"is {pb.LabelSheet.Name(sheet)}, which sets of {pb.LabelTask.Name(found.task)} do not have",
            )
        if sheet not in {pb.LABEL_SHEET_ESTIMATES, pb.LABEL_SHEET_REVIEW}:
            return ""
        kind = run_kind((await self._runs.find(found.run_id, tenant)).spec).name
        if sheet == pb.LABEL_SHEET_REVIEW and kind != "scenarios":
            raise invalid("sheet", f"is LABEL_SHEET_REVIEW; runs of {kind} have no sheet for review")
        return kind

    async def _answer(self, question: bytes) -> bytes:
        return await call_service(self._registry, question)

    async def _find(self, label_set_id: str, context: ServicerContext) -> LabelSetRecord:
        found = await self._caller.call(self._store.label_sets.get, label_set_id, tenant_of(context))
        if found is None:
            raise not_found("label set", label_set_id)
        return found

    def _draw(self, run: RunRecord, request: pb.CreateLabelSetRequest) -> NewLabelSet:
        kind = run_kind(run.spec).name
        task = task_of(kind, request.task)
        labelled = labelled_kind(kind)
        assert labelled is not None  # it has the task
        population = Population(self._store, run.id, request.filter, labelled, task)
        draw = request.draw or pb.LABEL_DRAW_UNIFORM
        drawn = population.sample(draw, request.sample_size or _DEFAULT_SIZE, request.seed)
        builder = ItemBuilder(labelled, task, self._registry.roles)
        read = [one.sample for one, _ in drawn] if labelled.reads_request else []
        requests = self._store.samples.requests(run.id, read) if read else {}
        items: list[NewLabelItem] = []
        total = 0
        for one, probability in drawn:
            sample = self._sample(run.id, one.sample)
            item = builder.build(one, sample, requests.get(one.sample, b""))
            if item is None:
                continue
            item.position = len(items)
            total += item.ByteSize()
            if total > MAX_SET_BYTES:
                raise invalid("sample_size", f"is too large: the items have more than {MAX_SET_BYTES} bytes")
            items.append(
                NewLabelItem(item, sample.sample_id, one.model, one.opponent, one.judged, probability)
            )
        if not items:
            raise invalid("filter", "selects no judgement of the run that can be labelled for this task")
        description = pb.LabelSet(
            id=str(uuid.uuid4()),
            display_name=request.display_name,
            run_id=run.id,
            task=task,
            item_count=len(items),
            population_count=population.count,
            seed=request.seed,
            filter=request.filter,
            draw=draw,
        )
        return NewLabelSet(description, run.tenant, items, request.request_id)

    def _sample(self, run_id: str, index: int) -> RunSample:
        found = self._store.samples.page(run_id, after=index - 1, limit=1)
        return found[0] if found and found[0].index == index else RunSample()
