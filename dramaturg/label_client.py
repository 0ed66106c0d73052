"""The client of LabelService: samples of runs that people label."""

from __future__ import annotations

import math
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing

import grpc

from dramaturg.api.evaluation.v1 import label_service_pb2 as pb
from dramaturg.api.evaluation.v1.label_service_pb2 import (
    LABEL_DRAW_UNSPECIFIED,
    LABEL_FORMAT_JSONL,
    LABEL_SHEET_LABELS,
    LABEL_TASK_UNSPECIFIED,
    LabelDraw,
    LabelFormat,
    LabelItem,
    LabelSet,
    LabelSheet,
    LabelTask,
)
from dramaturg.api.evaluation.v1.label_service_pb2_grpc import LabelServiceStub
from dramaturg.api.evaluation.v1.run_service_pb2 import ResultFilter
from dramaturg.run_client import answer, pages, stream


class LabelClient:
    """The label sets of a gateway (``evaluation.v1.LabelService``); ``DramaturgClient.labels`` is one.

    Each method raises ``ServiceError``: NOT_FOUND for a label set that does not exist.

    Example:
        >>> async with DramaturgClient("localhost:50051") as client:
        ...     run = await client.runs.create(spec)
        ...     async for _ in client.runs.watch(run.id):  # until it has ended
        ...         pass
        ...     label_set = await client.labels.create(run.id, sample_size=100, seed=7)
        ...     async for item in client.labels.items(label_set.id, annotator="ann"):
        ...         await client.labels.write(label_set.id, "ann", item.position, "PASS")

    Args:
        channel: The channel to the gateway.
    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = LabelServiceStub(channel)

    async def create(
        self,
        run_id: str,
        *,
        task: LabelTask.ValueType = LABEL_TASK_UNSPECIFIED,
        sample_size: int = 0,
        draw: LabelDraw.ValueType = LABEL_DRAW_UNSPECIFIED,
        seed: int = 0,
        where: ResultFilter | None = None,
        display_name: str = "",
    ) -> LabelSet:
        """Draws items from the judgements of a run.

        Args:
            run_id: The run.
            task: The question. Unspecified: the default of the run's kind.
            sample_size: The maximum number of items. 0: 100.
            draw: How items are drawn. Unspecified: uniformly.
            seed: The seed of the draw and of the order.
            where: Selects judgements. None: all.
            display_name: The display name.
        """
        request = pb.CreateLabelSetRequest(
            run_id=run_id,
            task=task,
            sample_size=sample_size,
            draw=draw,
            seed=seed,
            filter=where,
            display_name=display_name,
            request_id=str(uuid.uuid4()),
        )
        return (await answer(self._stub.CreateLabelSet(request))).label_set

    async def get(self, label_set_id: str) -> LabelSet:
        """Returns a label set with the progress of its annotators and their agreement."""
        request = pb.GetLabelSetRequest(label_set_id=label_set_id)
        return (await answer(self._stub.GetLabelSet(request))).label_set

    def find(self) -> AsyncGenerator[LabelSet]:
        """Yields the label sets of the tenant, the newest first."""
        return pages(self._stub.ListLabelSets, pb.ListLabelSetsRequest(), "label_sets")

    def items(
        self, label_set_id: str, *, annotator: str = "", unlabelled_only: bool = False
    ) -> AsyncGenerator[LabelItem]:
        """Yields the items of a set in their order, with the labels of an annotator."""
        request = pb.ListLabelItemsRequest(
            label_set_id=label_set_id, annotator=annotator, unlabelled_only=unlabelled_only
        )
        return pages(self._stub.ListLabelItems, request, "items")

    async def write(
        self, label_set_id: str, annotator: str, position: int, label: str, *, note: str = ""
    ) -> None:
        """Stores the label of an annotator in place of an earlier one. An empty label withdraws it."""
        request = pb.WriteLabelRequest(
            label_set_id=label_set_id, annotator=annotator, position=position, label=label, note=note
        )
        await answer(self._stub.WriteLabel(request))

    async def export(
        self,
        label_set_id: str,
        sheet: LabelSheet.ValueType = LABEL_SHEET_LABELS,
        form: LabelFormat.ValueType = LABEL_FORMAT_JSONL,
    ) -> AsyncGenerator[bytes]:
        """Yields the labels as one file, in pieces."""
        request = pb.ExportLabelsRequest(label_set_id=label_set_id, sheet=sheet, format=form)
        async with aclosing(stream(self._stub.ExportLabels, request, math.inf)) as pieces:
            async for piece in pieces:
                yield piece.chunk

    async def delete(self, label_set_id: str) -> None:
        """Deletes a label set with its labels."""
        await answer(self._stub.DeleteLabelSet(pb.DeleteLabelSetRequest(label_set_id=label_set_id)))
