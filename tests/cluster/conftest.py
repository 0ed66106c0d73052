"""The cluster that the tests of this folder share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.cluster.cluster import TWO_EACH, Cluster
from tests.cluster.names import need_namespaces
from tests.k8s.rendered import folder
from tests.support.certificates import Authority
from tests.support.openai_server import OpenAIServer
from tests.support.postgres import PostgresServer, run_postgres
from tests.support.scripted_model import approve

HERE = Path(__file__).resolve().parent
MODEL_SECONDS = 0.2
"""How long the model takes: long enough that a drain finds calls under way."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """They start some twenty processes, and share them and the event loop."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.endurance)
            item.add_marker(pytest.mark.timeout(600))
            item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Cluster]:
    """The overlay ``production``, with two replicas of what an evaluation of scripts passes through."""
    need_namespaces()
    store = Authority(tmp_path_factory.mktemp("store"))
    with run_postgres(certificate=store.issue("postgres")) as postgres:
        async for made in deployed(tmp_path_factory.mktemp("cluster"), postgres, store):
            yield made


async def deployed(place: Path, postgres: PostgresServer, store: Authority) -> AsyncIterator[Cluster]:
    """The services of the overlay, with a database that proves its name."""
    database = postgres.create_database()
    async with OpenAIServer(approve, latency=MODEL_SECONDS, record=False) as model:
        made = Cluster(
            folder("overlays/production"),
            place,
            secrets={
                "store-app": {"uri": database},
                "store-ca": {"ca.crt": store.certificate.read_text(), "ca.key": "not mounted"},
                "providers": {"openai": "key"},
            },
            overrides={"generation": {"DRAMATURG_GENERATION_PROVIDERS__OPENAI__BASE_URL": model.base_url}},
        )
        try:
            await made.deploy(dict.fromkeys(TWO_EACH, 2))
            yield made
        finally:
            await made.kill()
