"""A PostgreSQL server of the tests' own: started once, with one database for each test that asks."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.support.certificates import Certificate
from tests.support.ports import free_port

_NEEDED = ("initdb", "postgres")
# Nothing that the tests write has to outlive the machine; what a killed server must not lose is written all
# the same, since the operating system stays.
_FAST = {"fsync": "off", "full_page_writes": "off"}
_START_SECONDS = 30.0


class PostgresServer:
    """One server on a free port of 127.0.0.1, its data in a folder of its own, its only user trusted."""

    def __init__(
        self, folder: Path, *, durable: bool = False, certificate: Certificate | None = None
    ) -> None:
        """Creates the data folder, and starts nothing yet.

        Args:
            folder: An empty folder that belongs to whoever runs the server.
            durable: Whether commits reach the disk, as they do in production. Slower.
            certificate: The server's certificate. None: connections are in plain text.
        """
        self.port = free_port()
        self._folder = folder
        self.authority: Path | None = None
        """The authority of its certificate, for clients that verify it."""
        self._settings = {} if durable else dict(_FAST)
        if certificate is not None:
            self._settings |= {"ssl": "on"}
            for setting, source in (
                ("ssl_cert_file", certificate.certificate),
                ("ssl_key_file", certificate.private_key),
            ):
                self._settings[setting] = str(_own_copy(source, folder))
        self._process: subprocess.Popen[bytes] | None = None
        subprocess.run(
            [*_as_user(), _binary("initdb"), "--pgdata", str(folder / "data"), "--username=postgres",
             "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"],
            check=True, stdout=subprocess.DEVNULL, cwd=folder,
        )  # fmt: skip

    def url(self, database: str = "postgres") -> str:
        """The address of one of its databases."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def create_database(self, *, template: str = "template0") -> str:
        """Creates a database and returns its address.

        Args:
            template: The database that it is a copy of, by its address or name; an empty one.
        """
        name, original = f"test_{uuid.uuid4().hex}", template.rpartition("/")[2]
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{original}"'.encode())
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Drops a database, whoever is still connected to it."""
        name = url.rpartition("/")[2]
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'.encode())

    def start(self) -> None:
        """Starts it and waits until it takes connections."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self._folder),
            "max_connections": "200",
            **self._settings,
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*_as_user(), _binary("postgres"), "-D", str(self._folder / "data"), *options],
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )
        give_up = time.monotonic() + _START_SECONDS
        while True:
            try:
                psycopg.connect(self.url(), connect_timeout=2).close()
            except psycopg.OperationalError:
                if self._process.poll() is not None or time.monotonic() > give_up:
                    log_text = (self._folder / "log").read_text(errors="replace")
                    raise RuntimeError(f"PostgreSQL did not start:\n{log_text[-2000:]}") from None
                time.sleep(0.05)
            else:
                return

    def stop(self) -> None:
        """Stops it in order; sessions under way are cut (pg_ctl's mode "fast")."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Stops it as a crash would: nothing is written any more (mode "immediate")."""
        self._end(signal.SIGQUIT)

    def restart(self, *, crash: bool = False) -> None:
        """Stops and starts it; the port and the data stay."""
        self._end(signal.SIGQUIT if crash else signal.SIGINT)
        self.start()

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(timeout=_START_SECONDS)
            self._process = None


@contextmanager
def run_postgres(
    *, durable: bool = False, certificate: Certificate | None = None
) -> Iterator[PostgresServer]:
    """Runs a server while the block lasts; skips the test where PostgreSQL is not installed."""
    missing = [name for name in _NEEDED if _find(name) is None]
    if missing:
        pytest.skip(f"PostgreSQL is not installed: no {', '.join(missing)} on PATH or in /usr/lib/postgresql")
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("PostgreSQL does not run as root, and setpriv (util-linux) is not installed")
    folder = Path(tempfile.mkdtemp(prefix="dramaturg-postgres-"))
    try:
        if os.geteuid() == 0:
            user = _user()
            os.chown(folder, user.pw_uid, user.pw_gid)
        server = PostgresServer(folder, durable=durable, certificate=certificate)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The server that the tests share. A test that stops it starts it again."""
    with run_postgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The address of an empty database, dropped after the test."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


def _own_copy(file: Path, folder: Path) -> Path:
    """A copy that the server's user alone can read, as PostgreSQL requires of keys."""
    copy = folder / file.name
    shutil.copyfile(file, copy)
    copy.chmod(0o600)
    if os.geteuid() == 0:
        user = _user()
        os.chown(copy, user.pw_uid, user.pw_gid)
    return copy


def _find(name: str) -> str | None:
    found = shutil.which(name)
    if found is not None:
        return found
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: path.parts[-3])
    return str(installed[-1]) if installed else None


def _binary(name: str) -> str:
    found = _find(name)
    assert found is not None, f"{name} is not installed"
    return found


def _user() -> pwd.struct_passwd:
    """Who runs the server where we are root, as whom it refuses to run."""
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


def _as_user() -> list[str]:
    """What makes a command end with this process, and run as another user where this one is root."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        return []
    command = [setpriv, "--pdeathsig", "QUIT"]
    if os.geteuid() == 0:
        user = _user()
        command += [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    return [*command, "--"]
