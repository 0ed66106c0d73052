"""The client of a gateway: evaluations, runs and judges."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self

import grpc
from google.protobuf.field_mask_pb2 import FieldMask

from dramaturg.api.common.v1 import error_reason_pb2
from dramaturg.api.evaluation.v1.decisions_pb2 import EvaluateDecisionsRequest, EvaluateDecisionsResponse
from dramaturg.api.evaluation.v1.dialogues_pb2 import (
    EvaluateDialoguesRequest,
    EvaluateDialoguesResponse,
    SimulateDialogueRequest,
    SimulateDialogueResponse,
)
from dramaturg.api.evaluation.v1.estimate_pb2 import EstimateRunRequest, EstimateRunResponse
from dramaturg.api.evaluation.v1.evaluation_service_pb2 import SummarizeRequest
from dramaturg.api.evaluation.v1.evaluation_service_pb2_grpc import EvaluationServiceStub
from dramaturg.api.evaluation.v1.graphs_pb2 import EvaluateGraphsRequest, EvaluateGraphsResponse
from dramaturg.api.evaluation.v1.judge_certificate_pb2 import JudgeCertificate
from dramaturg.api.evaluation.v1.judge_directory_service_pb2 import (
    CertifyJudgeRequest,
    CheckJudgeRequest,
    Judge,
    JudgeRegistration,
    ListJudgesRequest,
    ListModelWaitsRequest,
    MonitorJudgeRequest,
    RegisterJudgeRequest,
    RemoveJudgeRequest,
    UpdateJudgeRequest,
)
from dramaturg.api.evaluation.v1.judge_directory_service_pb2_grpc import JudgeDirectoryServiceStub
from dramaturg.api.evaluation.v1.judge_monitor_pb2 import JudgeMonitor
from dramaturg.api.evaluation.v1.pairs_pb2 import EvaluatePairsRequest, EvaluatePairsResponse
from dramaturg.api.evaluation.v1.run_pb2 import RunSample, RunSpec
from dramaturg.api.evaluation.v1.scenarios_pb2 import WriteScenariosRequest, WriteScenariosResponse
from dramaturg.api.evaluation.v1.scripts_pb2 import EvaluateScriptsRequest, EvaluateScriptsResponse
from dramaturg.api.evaluation.v1.summary_pb2 import Summary, SummaryOptions
from dramaturg.api.evaluation.v1.texts_pb2 import EvaluateTextsRequest, EvaluateTextsResponse
from dramaturg.dataset_client import DatasetClient
from dramaturg.label_client import LabelClient
from dramaturg.run_client import RunClient, answer, stream
from dramaturg.service.channel import open_channel
from dramaturg.service.errors import ServiceError
from dramaturg.service.settings import ChannelSettings

__all__ = ["DramaturgClient", "ServiceError"]

DEFAULT_TARGET = "localhost:50051"
"""Where ``dramaturg up`` listens."""

_BATCH_SAMPLES = 200
_BATCH_BYTES = 1 << 20
"""A message of Summarize is sent once its samples reach either limit."""


class DramaturgClient:
    """A connection to a gateway.

    Methods raise ``ServiceError`` with the reason and, for a request that breaks limits, every violation. A
    client belongs to the event loop of its first use.

    Example:
        >>> async with DramaturgClient("localhost:50051") as client:
        ...     async for event in client.evaluate_scripts(request):
        ...         if event.WhichOneof("event") == "result":
        ...             for candidate in event.result.candidates:
        ...                 print(candidate.candidate_id, [verdict.outcome for verdict in candidate.verdicts])

    Args:
        target: The gateway's address, for example "gateway.example:50051".
        settings: TLS files and limits. Default: read from the environment
            (``DRAMATURG_CHANNEL_TLS_CA_FILE`` and others).
    """

    def __init__(self, target: str, settings: ChannelSettings | None = None) -> None:
        self._channel = open_channel(target, settings)
        self._evaluations = EvaluationServiceStub(self._channel)
        self._judges = JudgeDirectoryServiceStub(self._channel)
        self._runs = RunClient(self._channel)
        self._datasets = DatasetClient(self._channel)
        self._labels = LabelClient(self._channel)

    def evaluate_scripts(
        self, request: EvaluateScriptsRequest, *, timeout: float | None = None
    ) -> AsyncGenerator[EvaluateScriptsResponse]:
        """Evaluates the scripts of one task; yields each event as it comes, the result last.

        Closing the generator cancels the evaluation and its calls to judges.

        Args:
            request: The task and its candidates.
            timeout: The timeout of the whole evaluation, in seconds. Default: the channel's.

        Raises:
            ServiceError: The request was refused, or the gateway failed.
        """
        return stream(self._evaluations.EvaluateScripts, request, timeout)

    def evaluate_pairs(
        self, request: EvaluatePairsRequest, *, timeout: float | None = None
    ) -> AsyncGenerator[EvaluatePairsResponse]:
        """Compares two texts; yields each event as it comes, the result last.

        Args:
            request: The texts and their source.
            timeout: See ``evaluate_scripts``.

        Raises:
            ServiceError: The request was refused, or the gateway failed.
        """
        return stream(self._evaluations.EvaluatePairs, request, timeout)

    async def summarize(
        self,
        samples: Iterable[RunSample],
        options: SummaryOptions | None = None,
        *,
        timeout: float | None = None,
    ) -> Summary:
        """Computes the figures of results, as ``runs.summary`` does for a run.

        Args:
            samples: Finished samples of one kind, for example of ``dramaturg.results.files.read_results``.
            options: Groups and other choices.
            timeout: See ``evaluate_scripts``.

        Raises:
            ServiceError: The request was refused, or the gateway failed.
            Exception: What iterating over ``samples`` raises.
        """
        failures: list[Exception] = []

        def requests() -> Iterator[SummarizeRequest]:
            # grpc cancels a call whose requests raise, and drops the error.
            try:
                yield from _batches(samples, options)
            except Exception as error:
                failures.append(error)
                raise

        try:
            response = await answer(self._evaluations.Summarize(requests(), timeout=timeout))
        except asyncio.CancelledError:
            if failures:
                raise failures[0] from None
            raise
        return response.summary

    def evaluate_decisions(
        self, request: EvaluateDecisionsRequest, *, timeout: float | None = None
    ) -> AsyncGenerator[EvaluateDecisionsResponse]:
        """Has models take a decision; yields each choice as it comes, the result last.

        Args:
            request: The decision and the models.
            timeout: See ``evaluate_scripts``.

        Raises:
            ServiceError: The request was refused, or the gateway failed.
        """
        return stream(self._evaluations.EvaluateDecisions, request, timeout)

    def write_scenarios(
        self, request: WriteScenariosRequest, *, timeout: float | None = None
    ) -> AsyncGenerator[WriteScenariosResponse]:
        """Has models write scenarios for a decision; yields each scenario as it comes, the result last.

        Args:
            request: The decision, the models and the number of scenarios.
            timeout: See ``evaluate_scripts``.

        Raises:
            ServiceError: The request was refused, or the gateway failed.
        """
        return stream(self._evaluations.WriteScenarios, request, timeout)

    def simulate_dialogue(
        self, request: SimulateDialogueRequest, *, timeout: float | None = None
    ) -> AsyncGenerator[SimulateDialogueResponse]:
        """Simulates a dialogue of a user agent with a simulator; yields each utterance, the dialogue last.

        Args:
            request: The task to simulate.
            timeout: See ``evaluate_scripts``.

        Raises:
            ServiceError: The request was refused, or the gateway failed.
        """
        return stream(self._evaluations.SimulateDialogue, request, timeout)

    def evaluate_dialogues(
        self, request: EvaluateDialoguesRequest, *, timeout: float | None = None
    ) -> AsyncGenerator[EvaluateDialoguesResponse]:
        """Has models continue a test script; yields replies, ratings and comparisons, the result last.

        Args:
            request: The script and the models.
            timeout: See ``evaluate_scripts``.

        Raises:
            ServiceError: The request was refused, or the gateway failed.
        """
        return stream(self._evaluations.EvaluateDialogues, request, timeout)

    def evaluate_graphs(
        self, request: EvaluateGraphsRequest, *, timeout: float | None = None
    ) -> AsyncGenerator[EvaluateGraphsResponse]:
        """Has models order or write a script graph and measures it; yields each graph, the result last.

        Args:
            request: The reference and the models.
            timeout: See ``evaluate_scripts``.

        Raises:
            ServiceError: The request was refused, or the gateway failed.
        """
        return stream(self._evaluations.EvaluateGraphs, request, timeout)

    def evaluate_texts(
        self, request: EvaluateTextsRequest, *, timeout: float | None = None
    ) -> AsyncGenerator[EvaluateTextsResponse]:
        """Judges texts by a rubric; yields each judge's assessment as it comes, the result last.

        Args:
            request: The task, its texts and the rubric.
            timeout: See ``evaluate_scripts``.

        Raises:
            ServiceError: The request was refused, or the gateway failed.
        """
        return stream(self._evaluations.EvaluateTexts, request, timeout)

    async def estimate_run(
        self, spec: RunSpec, *, pilot_sample_count: int = 0, timeout: float | None = None
    ) -> EstimateRunResponse:
        """Estimates the calls, tokens, cost and duration of a run.

        Args:
            spec: The specification of the run.
            pilot_sample_count: The number of samples to evaluate, which are bought and whose usage is
                measured. 0: nothing is bought.
            timeout: The timeout of the call, in seconds.

        Raises:
            ServiceError: The run cannot be evaluated; or, before a pilot, it exceeds its budget
                (ERROR_REASON_BUDGET_EXHAUSTED).
        """
        request = EstimateRunRequest(spec=spec, pilot_sample_count=pilot_sample_count)
        return await answer(self._evaluations.EstimateRun(request, timeout=timeout))

    @property
    def runs(self) -> RunClient:
        """The client of runs: evaluations of many samples, independent of the caller's connection."""
        return self._runs

    @property
    def datasets(self) -> DatasetClient:
        """The client of datasets: uploads for runs."""
        return self._datasets

    @property
    def labels(self) -> LabelClient:
        """The client of label sets: samples of runs that people label."""
        return self._labels

    @property
    def channel(self) -> grpc.aio.Channel:
        """The channel to the gateway, for stubs of the services that it forwards calls to."""
        return self._channel

    async def list_judges(
        self, role: str = "", *, model_checked: bool = False, timeout: float | None = None
    ) -> Sequence[Judge]:
        """Lists the registered judges of a role, or of all roles, with their health.

        Args:
            role: The role. Empty: all roles.
            model_checked: Whether each judge checks its model. Buys nothing.
            timeout: The timeout of the call, in seconds.

        Raises:
            ServiceError: The gateway failed.
        """
        request = ListJudgesRequest(role=role, model_checked=model_checked)
        response = await answer(self._judges.ListJudges(request, timeout=timeout))
        return response.judges

    async def check_judge(self, role: str, judge: str, *, timeout: float | None = None) -> Judge:
        """Reads the identity and health of one judge.

        Args:
            role: The role of the judge.
            judge: Its registered name.
            timeout: The timeout of the call, in seconds.

        Raises:
            ServiceError: The judge is not registered (ERROR_REASON_JUDGE_UNKNOWN), or the gateway failed.
        """
        request = CheckJudgeRequest(role=role, judge=judge)
        response = await answer(self._judges.CheckJudge(request, timeout=timeout))
        return response.judge

    async def register_judge(self, judge: JudgeRegistration, *, timeout: float | None = None) -> Judge:
        """Registers a judge for the caller's tenant; returns it with its identity and health.

        Args:
            judge: The judge. Files of its connection are named: they are on the gateway.
            timeout: The timeout of the call, in seconds.

        Raises:
            ServiceError: INVALID_ARGUMENT with every violation; ALREADY_EXISTS (ERROR_REASON_JUDGE_EXISTS);
                the maximum of judges is reached; the gateway keeps none; or the gateway failed.
        """
        request = RegisterJudgeRequest(judge=judge)
        response = await answer(self._judges.RegisterJudge(request, timeout=timeout))
        return response.judge

    async def update_judge(
        self, judge: JudgeRegistration, fields: Sequence[str] = (), *, timeout: float | None = None
    ) -> Judge:
        """Changes a judge that was registered; returns it with its identity and health.

        Args:
            judge: The role and the name of the judge, and the new values.
            fields: The fields to change, for example "target" or "connection.ca_file". One that is absent in
                ``judge`` is cleared. Empty: those that ``judge`` has.
            timeout: The timeout of the call, in seconds.

        Raises:
            ServiceError: As of ``register_judge``; NOT_FOUND if the tenant has no such judge.
        """
        request = UpdateJudgeRequest(judge=judge, update_mask=FieldMask(paths=fields))
        response = await answer(self._judges.UpdateJudge(request, timeout=timeout))
        return response.judge

    async def remove_judge(self, role: str, judge: str, *, timeout: float | None = None) -> None:
        """Removes a judge that was registered.

        Args:
            role: The role of the judge.
            judge: Its name.
            timeout: The timeout of the call, in seconds.

        Raises:
            ServiceError: NOT_FOUND if the tenant has no such judge, or the gateway failed.
        """
        request = RemoveJudgeRequest(role=role, judge=judge)
        await answer(self._judges.RemoveJudge(request, timeout=timeout))

    async def certify_judge(
        self, role: str, judge: str, certificate: JudgeCertificate, *, timeout: float | None = None
    ) -> Judge:
        """Stores the certificate of a judge; returns the judge with it.

        Args:
            role: The role of the judge.
            judge: Its registered name.
            certificate: The certificate (``dramaturg.conformance.Certificate.to_message``).
            timeout: The timeout of the call, in seconds.

        Raises:
            ServiceError: INVALID_ARGUMENT with every violation, e.g. of another version than the judge
                states; the judge does not answer; the gateway has no store; or the gateway failed.
        """
        request = CertifyJudgeRequest(role=role, judge=judge, certificate=certificate)
        response = await answer(self._judges.CertifyJudge(request, timeout=timeout))
        return response.judge

    async def monitor_judge(
        self, role: str, judge: str, monitor: JudgeMonitor | None, *, timeout: float | None = None
    ) -> Judge:
        """Begins to monitor a judge for drift, or ends it; returns the judge with the monitor.

        Args:
            role: The role of the judge.
            judge: Its registered name.
            monitor: The run whose candidates are judged again, the interval and the policy. None: the
                monitoring ends.
            timeout: The timeout of the call, in seconds.

        Raises:
            ServiceError: INVALID_ARGUMENT with every violation; NOT_FOUND if the tenant has no such run;
                FAILED_PRECONDITION if it has not ended; or the gateway failed.
        """
        request = MonitorJudgeRequest(role=role, judge=judge, monitor=monitor)
        response = await answer(self._judges.MonitorJudge(request, timeout=timeout))
        return response.judge

    async def model_waits(self, *, timeout: float | None = None) -> Sequence[str]:
        """Returns the rate limits that model calls of judges wait for, as text.

        Args:
            timeout: The timeout of the call, in seconds.

        Raises:
            ServiceError: The gateway failed.
        """
        response = await answer(self._judges.ListModelWaits(ListModelWaitsRequest(), timeout=timeout))
        return response.waits

    async def close(self) -> None:
        """Closes the connection and cancels running calls."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def final_result(events: AsyncGenerator[Any], happened: Callable[[Any], object] | None = None) -> Any:
    """The result of an evaluation.

    Args:
        events: The events of an ``evaluate`` method.
        happened: Receives each event before the result.

    Raises:
        ServiceError: The evaluation failed, or ended without a result.
    """
    result: Any = None
    async with aclosing(events):
        # To the very end: a call that is left before it is over is a cancelled one.
        async for event in events:
            if event.HasField("result"):
                result = event.result
            elif happened is not None:
                happened(event)
    if result is not None:
        return result
    raise ServiceError(
        grpc.StatusCode.INTERNAL,
        error_reason_pb2.ERROR_REASON_UNSPECIFIED,
        "the gateway ended the evaluation without a result",
    )


def _batches(samples: Iterable[RunSample], options: SummaryOptions | None) -> Iterator[SummarizeRequest]:
    """The messages of Summarize: the options, then samples in messages of limited size."""
    yield SummarizeRequest(options=options or SummaryOptions())
    batch, size = SummarizeRequest(), 0
    for sample in samples:
        if batch.samples and (len(batch.samples) == _BATCH_SAMPLES or size >= _BATCH_BYTES):
            yield batch
            batch, size = SummarizeRequest(), 0
        batch.samples.append(sample)
        size += sample.ByteSize()
    if batch.samples:
        yield batch
