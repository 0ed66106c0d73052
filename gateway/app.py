"""Assembles the gateway from its settings: judges, evaluations, runs and quotas."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from importlib.metadata import version

from dramaturg.api.evaluation.v1 import (
    evaluation_service_pb2,
    evaluation_service_pb2_grpc,
    judge_directory_service_pb2,
    judge_directory_service_pb2_grpc,
)
from dramaturg.service.contract import Contract, Front
from dramaturg.service.health import ContractHealth
from dramaturg.service.settings import ServerSettings, SettingsError
from gateway.evaluations.contract_checks import ContractChecks
from gateway.evaluations.kinds import Evaluations
from gateway.evaluations.scope import Timeouts
from gateway.evaluations.scripts.reading import PARSER_LIMITS, PARSER_PROCESSES
from gateway.judges.directory import IdentityChecks, JudgeDirectory
from gateway.judges.files import JudgeFiles
from gateway.judges.quarantine import QuarantineRules
from gateway.judges.registrations import JudgeRegistrations
from gateway.judges.registry import open_registry
from gateway.processes.pool import ProcessPool
from gateway.processes.process import ProcessLimits
from gateway.proxy import proxy_contracts
from gateway.quotas.gate import Quotas, with_items
from gateway.quotas.settings import QuotaSettings
from gateway.runs.estimator import Estimator
from gateway.runs.settings import RunsSettings
from gateway.servicer import JudgeDirectoryServicer, evaluation_servicer
from gateway.settings import GatewaySettings

WORKER_MODULES = (
    "gateway.runs.service.comparison",
    "dramaturg.database.database",
    *(f"gateway.runs.store.{name}" for name in ("attempts", "datasets", "judges", "labels", "results")),
)
"""The modules that processes load before their memory is limited."""


class App:
    """The gateway as a service."""

    name = "gateway"
    public = True
    """Whether its callers are outside of the platform. It requires authentication unless it listens on
    loopback alone."""

    def __init__(
        self,
        settings: GatewaySettings | None = None,
        runs: RunsSettings | None = None,
        quotas: QuotaSettings | None = None,
    ) -> None:
        self._quotas = quotas or QuotaSettings()
        self._settings = settings or GatewaySettings()
        self._runs = runs or RunsSettings()

    def fronts(self, server: ServerSettings) -> Sequence[Front]:
        """The API over HTTP, if it has a port."""
        del server
        http = self._settings.http
        if not http.port:
            return ()
        # Imported here: it takes a moment that a gateway without HTTP does not need.
        from gateway.http.server import HttpServer

        return [HttpServer(http, http.port, console=bool(self._settings.console))]

    @staticmethod
    def migrate() -> bool:
        """Creates and upgrades the tables of runs and of their engine on PostgreSQL.

        Returns:
            Whether the settings name such a database.

        Raises:
            StoreError: The database is unavailable, or a newer release wrote the tables.
        """
        from gateway.runs.app import migrate

        return migrate(RunsSettings())

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Sequence[Contract]]:
        """Opens the channels to the judges and the run store, yields the contracts, and closes them.

        Raises:
            SettingsError: A member of a panel is no judge; or the run store, the folder of judges, or a file
                of a judge's connection is unavailable.
        """
        settings = self._settings
        directory = JudgeDirectory(timeout=settings.identity_timeout_seconds)
        timeouts = Timeouts(
            judge=settings.judge_timeout_seconds,
            gold_answer=settings.gold_answer_timeout_seconds,
            reserve=settings.deadline_reserve_seconds,
        )
        files = None if settings.judges_dir is None else JudgeFiles(settings, settings.judges_dir)
        tables = settings if files is None else files.tables
        try:
            # Not earlier: the platform adds its own judges to the configured ones.
            tables.check_members()
        except ValueError as error:
            raise SettingsError(f"gateway: judges {error}") from error
        async with (
            open_registry(
                tables.judges,
                settings.calls_per_judge,
                [entry.role() for entry in tables.roles],
                files=files,
                poll_seconds=settings.judges_poll_seconds,
                identity_ttl=settings.identity_ttl_seconds,
                identity_timeout=settings.identity_timeout_seconds,
                quarantine=QuarantineRules(
                    settings.quarantine_breaches,
                    settings.quarantine_window_seconds,
                    settings.quarantine_check_seconds,
                ),
            ) as registry,
            AsyncExitStack() as stack,
        ):
            processes = ProcessPool(
                settings.worker_processes, ProcessLimits(settings.worker_memory_bytes, modules=WORKER_MODULES)
            )
            stack.callback(processes.close)
            parsers = ProcessPool(min(settings.worker_processes, PARSER_PROCESSES), PARSER_LIMITS)
            stack.callback(parsers.close)
            evaluations = Evaluations(registry, directory, timeouts, processes, parsers)
            quotas = Quotas(self._quotas)
            registrations = JudgeRegistrations(registry, settings)
            estimator = Estimator(evaluations.context, self._runs.dataset_access, self._runs.dataset_limits)
            runs: Sequence[Contract] = ()
            monitors = None
            if self._runs.enabled:
                # Imported here: loading the engine takes longer than most commands.
                from gateway.judges.monitors import JudgeMonitors
                from gateway.runs.app import serve_runs

                monitors = JudgeMonitors(registry, registrations, processes)
                serving = serve_runs(self._runs, evaluations, quotas, registrations, monitors, estimator)
                runs = await stack.enter_async_context(serving)
            health = ContractHealth()
            checks = IdentityChecks(registry, directory, health)
            await stack.enter_async_context(checks.repeated(settings.identity_check_seconds))
            await stack.enter_async_context(ContractChecks(registry, directory, timeouts.judge).repeated())
            evaluation = Contract.make(
                evaluation_service_pb2.DESCRIPTOR.services_by_name["EvaluationService"],
                evaluation_service_pb2_grpc.add_EvaluationServiceServicer_to_server,
                evaluation_servicer(evaluations, estimator.estimate, quotas.answers),
                name="gateway",
                version=version("dramaturg"),
                description="Evaluates the output of language models through registered judges.",
            )
            contracts = [
                replace(evaluation, health=health, minimum_default_seconds=timeouts.judge),
                Contract.make(
                    judge_directory_service_pb2.DESCRIPTOR.services_by_name["JudgeDirectoryService"],
                    judge_directory_service_pb2_grpc.add_JudgeDirectoryServiceServicer_to_server,
                    JudgeDirectoryServicer(registry, directory, registrations, monitors),
                    name="gateway",
                    version=version("dramaturg"),
                    description="Lists and registers judges.",
                ),
                *runs,
                *proxy_contracts(registry, settings.judge_timeout_seconds),
            ]
            quotas.set_large(
                f"/{contract.full_name}/{method}" for contract in contracts for method in contract.large
            )
            yield [replace(with_items(contract), gate=quotas) for contract in contracts]
