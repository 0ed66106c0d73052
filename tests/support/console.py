"""A gateway with the web console and labels, on a real store without an engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dramaturg.api.evaluation.v1 import (
    label_service_pb2,
    label_service_pb2_grpc,
    run_service_pb2,
    run_service_pb2_grpc,
)
from dramaturg.service.contract import Contract
from dramaturg.service.server import Server
from dramaturg.service.settings import ServerSettings
from dramaturg.service.threads import TenantThreads
from gateway.app import App
from gateway.http.server import HttpServer
from gateway.http.settings import HttpSettings
from gateway.judges.registry import open_registry
from gateway.runs.datasets import DatasetAccess
from gateway.runs.labels.servicer import LabelServicer
from gateway.runs.notifications import ChangeNotifier
from gateway.runs.servicer import RunServicer
from gateway.runs.settings import RunsSettings
from gateway.runs.store import RunStore, open_store
from gateway.settings import GatewaySettings, JudgeEntry
from tests.support.auth import Holder, token_settings


class IdleEngine:
    """Evaluates nothing."""

    async def submit(self, run_id: str) -> None:
        pass


@dataclass
class Consoled:
    """A gateway with the console."""

    url: str
    target: str
    store: RunStore


@asynccontextmanager
async def serve_console(
    folder: Path,
    judges: Sequence[JudgeEntry] = (),
    holders: Sequence[Holder] = (),
    host: str = "127.0.0.1",
    max_label_sets: int = 5,
    session_keys_file: Path | None = None,
    **server_settings: Any,
) -> AsyncIterator[Consoled]:
    """Serves it; without holders of tokens callers are not authenticated."""
    store = open_store(f"sqlite:///{folder}/runs.sqlite3")
    front = HttpServer(HttpSettings(host=host, session_keys_file=session_keys_file), 0, console=True)
    settings = GatewaySettings(judges=tuple(judges))
    async with open_registry(judges, 4) as registry, App(settings).open() as contracts:
        access, notifier = DatasetAccess([folder]), ChangeNotifier()
        threads = TenantThreads()
        runs = RunServicer(store, IdleEngine(), registry, access, notifier, threads=threads)
        label_sets = LabelServicer(store, registry, threads, max_label_sets=max_label_sets)
        added = [
            Contract.make(
                run_service_pb2.DESCRIPTOR.services_by_name["RunService"],
                run_service_pb2_grpc.add_RunServiceServicer_to_server,
                runs,
                name="gateway",
                version="1.0.0",
                description="Runs.",
            ),
            Contract.make(
                label_service_pb2.DESCRIPTOR.services_by_name["LabelService"],
                label_service_pb2_grpc.add_LabelServiceServicer_to_server,
                label_sets,
                name="gateway",
                version="1.0.0",
                description="Labels.",
            ),
        ]
        auth = token_settings(folder, *holders) if holders else None
        served = Server(
            [*contracts, *added],
            ServerSettings.loopback(drain_grace_seconds=0.2, **server_settings),
            auth,
            fronts=[front],
        )
        async with served as server:
            yield Consoled(front.url, server.target, store)
        runs.close()
        label_sets.close()
        threads.close()
    store.close()


@asynccontextmanager
async def serve_whole_console(
    folder: Path, judges: Sequence[JudgeEntry], **settings: Any
) -> AsyncIterator[str]:
    """Serves it with the gateway's own run engine; yields its address."""
    url = f"sqlite:///{folder}/runs.sqlite3"
    made = App(GatewaySettings(judges=tuple(judges), **settings), RunsSettings(enabled=True, url=url))
    front = HttpServer(HttpSettings(), 0, console=True)
    async with made.open() as contracts:
        loopback = ServerSettings.loopback(drain_grace_seconds=0.2)
        async with Server(contracts, loopback, fronts=[front]):
            yield front.url
