"""Assembles runs: the store, the engine and the service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from importlib.metadata import version

import sqlalchemy as sa

from dramaturg.api.evaluation.v1 import (
    dataset_service_pb2,
    dataset_service_pb2_grpc,
    label_service_pb2,
    label_service_pb2_grpc,
    run_service_pb2,
    run_service_pb2_grpc,
)
from dramaturg.database import StoreError
from dramaturg.service.contract import Contract
from dramaturg.service.settings import SettingsError
from dramaturg.service.threads import TenantThreads
from gateway.evaluations.kinds import Evaluations
from gateway.judges.monitors import JudgeMonitors
from gateway.judges.registrations import JudgeRegistrations
from gateway.quotas.gate import Quotas
from gateway.runs.engine import workflows
from gateway.runs.engine.engine import RunEngine
from gateway.runs.engine.parts import SamplePacer
from gateway.runs.estimator import Estimator
from gateway.runs.labels.servicer import LabelServicer
from gateway.runs.notifications import ChangeNotifier
from gateway.runs.service.datasets import DatasetServicer
from gateway.runs.service.preflight import Preflight
from gateway.runs.servicer import RunServicer
from gateway.runs.settings import RunsSettings
from gateway.runs.store import open_store


def migrate(settings: RunsSettings) -> bool:
    """Creates and upgrades the tables of runs and of their engine on PostgreSQL.

    Returns:
        Whether the settings name such a database.

    Raises:
        StoreError: The database is unavailable, or a newer release wrote the tables.
    """
    url = sa.make_url(settings.url)
    if url.get_backend_name() == "sqlite":
        return False
    open_store(settings.url).close()
    try:
        workflows.migrate(settings)
    except Exception as error:  # DBOS raises errors of several libraries
        reason = " ".join(str(error).split()).replace(url.password or "\0", "***")
        raise StoreError(f"the tables of the run engine could not be migrated: {reason}") from error
    return True


@asynccontextmanager
async def serve_runs(
    settings: RunsSettings,
    evaluations: Evaluations,
    quotas: Quotas,
    registrations: JudgeRegistrations,
    monitors: JudgeMonitors,
    estimator: Estimator,
) -> AsyncIterator[Sequence[Contract]]:
    """Opens the store and the engine, yields the contracts, and closes them in reverse order.

    Raises:
        SettingsError: The store is unavailable, for example on a full disk.
    """
    try:
        store = await asyncio.to_thread(open_store, settings.url)
    except StoreError as error:
        raise SettingsError(f"runs.url: {error}") from error
    estimator.store = store
    notifier = ChangeNotifier()

    def divide(gateways: int) -> None:
        quotas.gateways = gateways

    pacer = SamplePacer(quotas.calls.has_others)
    engine = RunEngine(settings, store, evaluations, notifier, pacer, divide)
    preflight = Preflight(evaluations.context, settings.dataset_access, settings.dataset_limits, store)

    async def waits() -> Sequence[str]:
        return await evaluations.context.directory.model_waits(evaluations.registry.all())

    threads = TenantThreads()
    servicer = RunServicer(
        store,
        engine,
        evaluations.registry,
        settings.dataset_access,
        notifier,
        preflight,
        waits,
        threads,
        evaluations.processes,
        quotas.calls.has_others,
    )
    uploads = DatasetServicer(
        store,
        threads,
        max_bytes=settings.max_upload_bytes,
        expiry_seconds=settings.upload_expiry_seconds,
        quota=quotas.dataset_bytes,
    )
    label_sets = LabelServicer(
        store, evaluations.registry, threads, evaluations.processes, max_label_sets=settings.max_label_sets
    )
    try:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(quotas.spending.persisted(store))
            try:
                await stack.enter_async_context(registrations.persisted(store))
            except StoreError as error:
                raise SettingsError(f"runs.url: {error}") from error
            try:
                await stack.enter_async_context(engine.open())
            except (StoreError, sa.exc.SQLAlchemyError, OSError) as error:
                reason = getattr(error, "orig", None) or error
                raise SettingsError(f"runs.url: the workflow engine cannot start: {reason}") from error
            await stack.enter_async_context(monitors.running(store, engine, notifier, quotas))
            contract = Contract.make(
                run_service_pb2.DESCRIPTOR.services_by_name["RunService"],
                run_service_pb2_grpc.add_RunServiceServicer_to_server,
                servicer,
                name="gateway",
                version=version("dramaturg"),
                description="Evaluates datasets of any size as durable runs.",
            )
            dataset_contract = Contract.make(
                dataset_service_pb2.DESCRIPTOR.services_by_name["DatasetService"],
                dataset_service_pb2_grpc.add_DatasetServiceServicer_to_server,
                uploads,
                name="gateway",
                version=version("dramaturg"),
                description="Keeps datasets for runs.",
            )
            label_contract = Contract.make(
                label_service_pb2.DESCRIPTOR.services_by_name["LabelService"],
                label_service_pb2_grpc.add_LabelServiceServicer_to_server,
                label_sets,
                name="gateway",
                version=version("dramaturg"),
                description="Keeps labels of people.",
            )
            yield [
                replace(
                    contract,
                    unlimited=frozenset({"WatchRun", "ExportResults", "GetReport"}),
                    large=frozenset({"ListRuns", "ListSamples", "ListResults"}),
                ),
                dataset_contract,
                replace(
                    label_contract,
                    unlimited=frozenset({"ExportLabels"}),
                    large=frozenset({"ListLabelItems"}),
                ),
            ]
    finally:
        servicer.close()
        uploads.close()
        label_sets.close()
        threads.close()
        store.close()
