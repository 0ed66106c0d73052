"""Datasets in an object store: a real client against a local server of S3."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from dramaturg.api.evaluation.v1.run_pb2 import Dataset, RunSpec
from dramaturg.datasets import DatasetError, Format
from dramaturg.service.errors import ServiceError
from gateway.processes.process import ProcessLimits
from gateway.runs.dataset_access import DatasetAccess
from gateway.runs.dataset_process import IsolatedSampleReader
from gateway.runs.records import NewSample
from gateway.runs.settings import RunsSettings
from tests.support.datasets import written
from tests.support.engines import script_rows

boto3 = pytest.importorskip("boto3")
moto_server = pytest.importorskip("moto.server")
pytest.importorskip("s3fs")

LIMITS = ProcessLimits(256 << 20)
TEMPLATE = DatasetAccess(prefixes=["s3://data/{tenant}/", "s3://shared/public"])


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The address of a server with a bucket that two tenants share."""
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    client = boto3.client(
        "s3",
        endpoint_url=address,
        aws_access_key_id="k",
        aws_secret_access_key="s",
        region_name="us-east-1",
    )
    for bucket in ("data", "shared"):
        client.create_bucket(Bucket=bucket)
    for key in ("team-a/rows", "team-b/rows", "team-ab/rows"):
        for form in Format:
            client.put_object(Bucket="data", Key=f"{key}.{form}", Body=written(script_rows(3), form))
    client.put_object(Bucket="shared", Key="public/rows.jsonl", Body=written(script_rows(2), Format.JSONL))
    yield address
    server.stop()


@pytest.fixture
def credentials(s3: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": s3,
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
    }.items():
        monkeypatch.setenv(name, value)


def read(address: str, access: DatasetAccess, limits: ProcessLimits = LIMITS) -> list[NewSample]:
    spec = RunSpec(dataset=Dataset(uri=address))
    spec.scripts.SetInParent()
    return list(IsolatedSampleReader(spec, b"", access, limits))


@pytest.mark.usefixtures("credentials")
@pytest.mark.parametrize("form", Format)
def test_a_tenant_reads_its_own_objects(form: Format) -> None:
    assert len(read(f"s3://data/team-a/rows.{form}", TEMPLATE.of("team-a"))) == 3


@pytest.mark.usefixtures("credentials")
def test_an_object_that_does_not_exist_is_said_so() -> None:
    with pytest.raises(DatasetError, match="cannot be read: the object does not exist"):
        read("s3://data/team-a/none.jsonl", TEMPLATE.of("team-a"))


@pytest.mark.usefixtures("credentials")
def test_a_prefix_without_a_tenant_is_shared_by_all() -> None:
    for tenant in ("team-a", "team-b", ""):
        assert len(read("s3://shared/public/rows.jsonl", TEMPLATE.of(tenant))) == 2


@pytest.mark.parametrize("root", ["gs://data/", "gcs://data/", "abfs://c@account.dfs.example/", "az://c/"])
@pytest.mark.parametrize(
    "key",
    ["team-b/r.jsonl", "team-ab/r.jsonl", "team-a/../team-b/r.jsonl", "team-a//r.jsonl", "team-a/%2e%2e/r"],
)
def test_addresses_of_other_stores_are_checked_alike(root: str, key: str) -> None:
    access = DatasetAccess(prefixes=[f"{root}{{tenant}}"]).of("team-a")
    access.check(f"{root}team-a/r.jsonl")
    with pytest.raises(ServiceError):
        access.check(f"{root}{key}")


@pytest.mark.parametrize(
    "address",
    [
        "s3://data/team-b/rows.jsonl",
        "s3://data/team-ab/rows.jsonl",
        "s3://data/team-a/../team-b/rows.jsonl",
        "s3://data/team-a/./../team-b/rows.jsonl",
        "s3://data/team-a//../team-b/rows.jsonl",
        "s3://data/team-a\\..\\team-b/rows.jsonl",
        "s3://data/team-a/%2e%2E/team-b/rows.jsonl",
        "s3://data/team-a/..%2Fteam-b/rows.jsonl",
        "s3://data/team-a",
        "s3://data/team-a/",
        "s3://data/team-a/rows.jsonl?versionId=1",
        "s3://data/team-a/rows.jsonl#1",
        "s3://data",
        "S3://data/team-a/rows.jsonl",
        "s3a://data/team-a/rows.jsonl",
        "s3://shared/publicly/rows.jsonl",
        "s3://data@evil.example/team-a/rows.jsonl",
        "s3://169.254.169.254/latest/meta-data/rows.jsonl",
        "abfs://c@169.254.169.254/rows.jsonl",
        "gs://metadata.google.internal/computeMetadata/rows.jsonl",
    ],
)
def test_a_tenant_reaches_nothing_else(address: str) -> None:
    with pytest.raises(ServiceError) as caught:
        TEMPLATE.of("team-a").check(address)
    assert caught.value.violations[0].field == "spec.dataset.uri"
    assert "team-b" not in caught.value.message


def test_without_prefixes_tenants_read_no_objects_and_callers_without_one_do() -> None:
    DatasetAccess().of("").check("s3://bucket/rows.jsonl")
    with pytest.raises(ServiceError, match="outside of the prefixes"):
        DatasetAccess().of("team-a").check("s3://bucket/rows.jsonl")
    with pytest.raises(ServiceError, match="plain name"):
        DatasetAccess().of("").check("abfs://c@account.example/rows.jsonl")
    DatasetAccess(prefixes=["abfs://c@account.example/"]).of("a").check("abfs://c@account.example/r.jsonl")


def test_folders_may_be_those_of_tenants(tmp_path: Path) -> None:
    for tenant in ("team-a", "team-b"):
        (tmp_path / tenant).mkdir()
        (tmp_path / tenant / "rows.jsonl").write_bytes(b"{}\n")
    access = RunsSettings(dataset_folders=(tmp_path / "{tenant}",)).dataset_access
    access.of("team-a").check(f"{tmp_path}/team-a/rows.jsonl")
    for other, address in (("team-a", "team-b"), ("", "team-b"), ("", "{tenant}")):
        with pytest.raises(ServiceError, match="outside of the folders"):
            access.of(other).check(f"{tmp_path}/{address}/rows.jsonl")


@pytest.mark.usefixtures("credentials")
def test_an_object_that_is_absent_or_forbidden_is_a_failed_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DatasetError, match="cannot be read"):
        read("s3://data/team-a/absent.jsonl", TEMPLATE.of("team-a"))
    with socket.create_server(("127.0.0.1", 0)) as closed:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{closed.getsockname()[1]}")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(DatasetError, match="cannot be read"):
        read("s3://data/team-a/rows.jsonl", TEMPLATE.of("team-a"))


@pytest.mark.usefixtures("credentials")
def test_an_object_is_copied_up_to_a_number_of_bytes() -> None:
    access = DatasetAccess(prefixes=["s3://data/team-a/"], max_bytes=100)
    with pytest.raises(DatasetError, match="more than 100 bytes"):
        read("s3://data/team-a/rows.jsonl", access)


class _Metadata(BaseHTTPRequestHandler):
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_error(404)

    def do_PUT(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


@pytest.mark.usefixtures("credentials")
@pytest.mark.parametrize("allowed", [False, True])
def test_the_metadata_address_of_the_node_is_asked_only_if_allowed(
    monkeypatch: pytest.MonkeyPatch, *, allowed: bool
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    _Metadata.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Metadata) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://127.0.0.1:{server.server_port}/")
        with pytest.raises(DatasetError):
            read(
                "s3://data/team-a/rows.jsonl",
                TEMPLATE.of("team-a"),
                ProcessLimits(256 << 20, node_credentials=allowed),
            )
        server.shutdown()
    assert bool(_Metadata.asked) is allowed
