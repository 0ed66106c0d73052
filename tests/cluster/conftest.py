"""The cluster that the tests of this folder share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.cluster.cluster import TWO_EACH, Cluster, Release
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


@pytest.fixture(scope="package")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Signs the certificate of the database."""
    return Authority(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="package")
def store(authority: Authority) -> Iterator[PostgresServer]:
    """A database server that proves its name."""
    with run_postgres(certificate=authority.issue("postgres")) as server:
        server.authority = authority.certificate
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory, store: PostgresServer) -> AsyncIterator[Cluster]:
    """The overlay ``production``, with two replicas of what an evaluation of scripts passes through."""
    release = Release(folder("overlays/production"))
    async for made in deployed(tmp_path_factory.mktemp("cluster"), store, release):
        yield made


async def deployed(place: Path, store: PostgresServer, release: Release) -> AsyncIterator[Cluster]:
    """The services of a release, with a database of their own."""
    need_namespaces()
    database = store.create_database()
    assert store.authority is not None
    secrets = {
        "store-app": {"uri": database},
        "store-ca": {"ca.crt": store.authority.read_text(), "ca.key": "not mounted"},
        "providers": {"openai": "key"},
    }
    async with OpenAIServer(approve, latency=MODEL_SECONDS, record=False) as model:
        provider = {"DRAMATURG_GENERATION_PROVIDERS__OPENAI__BASE_URL": model.base_url}
        made = Cluster(release, place, secrets=secrets, overrides={"generation": provider})
        try:
            await made.deploy(dict.fromkeys(TWO_EACH, 2))
            yield made
        finally:
            await made.kill()
            store.drop_database(database)
