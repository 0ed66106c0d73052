"""Settings of services.

Sources, the strongest first: constructor arguments, environment variables ``DRAMATURG_<SECTION>_<FIELD>``
(nested with ``__``), the table ``[<section>]`` of the TOML file that ``DRAMATURG_CONFIG`` names, defaults.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

CONFIG_VARIABLE = "DRAMATURG_CONFIG"
"""The environment variable that names the TOML file."""
TARGET_VARIABLE = "DRAMATURG_TARGET"
"""The environment variable that names the gateway of clients."""


_RESERVED_HEADERS = frozenset(
    {
        "accept-encoding",
        "baggage",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "traceparent",
        "tracestate",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "x-request-id",
    }
)
_RESERVED_PREFIXES = ("grpc-", "x-dramaturg-")


def _check_address(address: str) -> str:
    found = re.fullmatch(r"(?!https?:).+:(\d{1,5})", address)
    # gRPC reads a port above 65535 as another one.
    is_port = found is not None and 0 < int(found[1]) < 1 << 16
    if address and not is_port and not address.startswith("unix:"):
        raise ValueError("is no address: use HOST:PORT, without http://")
    return address


Address = Annotated[str, AfterValidator(_check_address)]
"""The address of a service: HOST:PORT, or ``unix:`` and the path of a socket. Empty: none."""


def _free_header(name: str) -> str:
    if name.endswith("-bin"):
        raise ValueError(f"is {name!r}, a key of binary metadata (-bin); a token is text")
    if name in _RESERVED_HEADERS or name.startswith(_RESERVED_PREFIXES):
        raise ValueError(
            f"is {name!r}, which HTTP, gRPC or dramaturg uses itself; name another, such as 'x-api-key'"
        )
    return name


TokenHeader = Annotated[str, Field(pattern="^[a-z0-9][a-z0-9_.-]{0,99}$"), AfterValidator(_free_header)]
"""The metadata key of a token: text, and none that is in use."""


class SettingsError(ValueError):
    """Invalid settings. The message names the setting and its fault."""


class Settings(BaseSettings):
    """The base of every service's settings.

    A subclass names its ``section``. An unknown key of the table is an error, to report misspelt settings.
    ``check_names`` reports misspelt tables and variables.
    """

    section: ClassVar[str]
    """The TOML table and, in upper case with underscores, the part of the variables' names."""

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        hide_input_in_errors=True,
    )

    @classmethod
    def variable(cls, field: str) -> str:
        """The environment variable that sets ``field``."""
        return f"{cls._prefix()}{field.upper()}"

    @classmethod
    def _prefix(cls) -> str:
        return _prefix(cls.section)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Puts the sources in their order."""
        del env_settings, dotenv_settings, file_secret_settings
        variables = EnvSettingsSource(settings_cls, env_prefix=cls._prefix(), env_nested_delimiter="__")
        return init_settings, variables, InitSettingsSource(settings_cls, init_kwargs=_table(cls.section))


def _prefix(section: str) -> str:
    return f"{_COMMON}{section.upper().replace('-', '_')}_"


def _table(section: str) -> dict[str, Any]:
    table = _document().get(section, {})
    if not isinstance(table, dict):
        raise SettingsError(f"{CONFIG_VARIABLE}={os.environ[CONFIG_VARIABLE]}: [{section}] is not a table")
    return table


def _document() -> dict[str, Any]:
    file = os.environ.get(CONFIG_VARIABLE)
    if not file:
        return {}
    try:
        return tomllib.loads(Path(file).read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{CONFIG_VARIABLE}={file}: {error}") from error


_COMMON = "DRAMATURG_"
_SERVICE_LINK = re.compile(
    r"\w+_SERVICE_(HOST|PORT)(_\w+)?=.*|\w+_PORT(_\d+_(TCP|UDP|SCTP))?=\w+://.*|\w+_PORT_\d+_.*"
)
"""The variables that Kubernetes sets in pods for the Services beside them."""


def check_names(others: Collection[str]) -> None:
    """Finds misspelt tables of the configuration file and misspelt variables.

    A table is unknown where no settings of this process and no other section has its name. A variable of the
    settings of this process is unknown where they have no such field; another one is taken for misspelt where
    its name is close to that of a setting or a section. Variables of Kubernetes for its Services are ignored.

    Args:
        others: The sections of services that are not part of this process and read the same file.

    Raises:
        SettingsError: A table or a variable is unknown. The message names the nearest known one.
    """
    fields: dict[str, set[str]] = {}
    for kind in _kinds(Settings):
        fields.setdefault(kind.section, set()).update(kind.model_fields)
    sections = {*fields, *others}
    if unknown := sorted(_document().keys() - sections):
        raise SettingsError(
            f"{CONFIG_VARIABLE}={os.environ[CONFIG_VARIABLE]}: there is no section [{unknown[0]}]"
            + _nearest(unknown[0], sections)
        )
    prefixes = {_prefix(section): fields.get(section) for section in sections}
    known = {f"{prefix}{name.upper()}" for prefix, names in prefixes.items() for name in names or ()}
    known |= {CONFIG_VARIABLE, TARGET_VARIABLE}
    for name, value in sorted(os.environ.items()):
        variable = name.upper().partition("__")[0]
        is_link = _SERVICE_LINK.match(f"{variable}={value}")
        if is_link or not variable.startswith(_COMMON) or variable in known:
            continue
        own = max((prefix for prefix in prefixes if variable.startswith(prefix)), key=len, default=None)
        nearest = _nearest(variable.removeprefix(_COMMON), {name.removeprefix(_COMMON) for name in known})
        if nearest if own is None else prefixes[own] is not None:
            raise SettingsError(f"there is no variable {variable}" + nearest.replace("is ", f"is {_COMMON}"))


def _kinds(base: type[Settings]) -> Iterator[type[Settings]]:
    for kind in base.__subclasses__():
        if hasattr(kind, "section"):
            yield kind
        yield from _kinds(kind)


def _nearest(name: str, known: Iterable[str]) -> str:
    found = get_close_matches(name, list(known), n=1, cutoff=0.8)
    return f"; is {found[0]} meant?" if found else ""


def is_configured(section: str, field: str) -> bool:
    """Whether the environment or the configuration file sets a field, without importing its settings.

    Args:
        section: The section, for example "generation".
        field: The field.

    Raises:
        SettingsError: The configuration file cannot be read.
    """
    variable = f"{_prefix(section)}{field.upper()}"
    names = {name.upper() for name, value in os.environ.items() if value}
    return bool(_table(section).get(field)) or any(
        name == variable or name.startswith(f"{variable}__") for name in names
    )


def explain(error: ValidationError) -> str:
    """The problems of refused settings, one a line, without the values: they may be secrets."""
    lines = [f"{error.title}: {error.error_count()} of the settings cannot be used"]
    fields = next((kind.model_fields for kind in _kinds(Settings) if kind.__name__ == error.title), {})
    for problem in error.errors(include_input=False, include_url=False):
        place = ".".join(str(part) for part in problem["loc"]) or "together"
        words = problem["msg"]
        if problem["type"] == "extra_forbidden":
            words = "there is no such setting" + _nearest(place, fields)
        lines.append(f"  {place}: {words}")
    return "\n".join(lines)


class ServerSettings(Settings):
    """Settings of a server: address, certificates, limits and drain."""

    section: ClassVar[str] = "server"

    host: str = "127.0.0.1"
    """The address to listen on; "0.0.0.0" or "[::]" in a container."""
    port: int = Field(default=50051, ge=0, le=65535)
    """The port to listen on; 0 takes a free one."""
    probe_port: int = Field(default=0, ge=0, le=65535)
    """A port on which health alone is served, in plain text and without authentication: for probes without a
    certificate. The address is ``host``. 0: none. On Kubernetes: 50052.
    """
    tls_certificate_file: Path | None = None
    """The server's certificate chain (PEM). Read again when it changes. Absent: plain text."""
    tls_private_key_file: Path | None = None
    """The private key of the certificate (PEM)."""
    tls_client_ca_file: Path | None = None
    """The authorities (PEM) one of which must have signed the client's certificate. Absent: any client."""
    max_message_bytes: int = Field(default=16 << 20, ge=1024)
    """The largest request, in bytes. A larger one is refused with RESOURCE_EXHAUSTED before it is decoded;
    one above twice the size while it arrives, without details."""
    compressed_requests: bool = False
    """Whether compressed requests are read. A small one may inflate to the largest request; without this
    they are refused with UNIMPLEMENTED.
    """
    max_concurrent_calls: int = Field(default=4000, ge=1)
    """The most calls served at once, each item of a batch counted as one; more are refused with
    ERROR_REASON_OVERLOADED. Each waiting call takes about 25 kB.
    """
    overload_retry_seconds: float = Field(default=1.0, ge=0)
    """The retry delay of refused calls, in seconds."""
    default_deadline_seconds: float = Field(default=600.0, gt=0)
    """The time limit of a call without a deadline. A gateway requires more than
    ``gateway.judge_timeout_seconds``."""
    maximum_deadline_seconds: float = Field(default=600.0, gt=0)
    """The maximum duration of a call, regardless of its deadline. Streams of runs have none. A limit that the
    server sets is in the response metadata ``x-deadline-seconds``."""
    minimum_deadline_seconds: float = Field(default=0.05, ge=0)
    """The least time left of a call. With less it is refused before any work."""
    max_connection_age_seconds: float = Field(default=300.0, gt=0)
    """The age at which a connection is closed. Clients then resolve the name again and find new replicas."""
    keepalive_seconds: float = Field(default=60.0, ge=1)
    """The interval of keepalive probes of an idle connection, in seconds."""
    drain_delay_seconds: float = Field(default=0.0, ge=0)
    """The time for which a stopping server accepts calls. Probes see it as not serving at once, clients that
    watch its health in the last second. On Kubernetes: 5 s."""
    drain_grace_seconds: float = Field(default=60.0, ge=0)
    """The time limit of calls in progress after the drain delay."""
    log_level: str = Field(default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$")
    """The least severe level that is logged."""

    @classmethod
    def loopback(cls, **settings: Any) -> Self:
        """Settings of a server on a free loopback port, in plain text.

        Args:
            settings: Other settings. Those that are not given are read from the environment.
        """
        plain: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": 0,
            "probe_port": 0,
            "tls_certificate_file": None,
            "tls_private_key_file": None,
            "tls_client_ca_file": None,
            "drain_delay_seconds": 0,
            "drain_grace_seconds": 5,
        }
        return cls(**plain | settings)

    @model_validator(mode="after")
    def _consistent(self) -> ServerSettings:
        if (self.tls_certificate_file is None) != (self.tls_private_key_file is None):
            raise ValueError("tls_certificate_file and tls_private_key_file are set together or not at all")
        if self.tls_client_ca_file is not None and self.tls_certificate_file is None:
            raise ValueError("tls_client_ca_file needs tls_certificate_file")
        if self.probe_port and self.probe_port == self.port:
            raise ValueError("probe_port is the port of the contracts")
        if self.default_deadline_seconds > self.maximum_deadline_seconds:
            raise ValueError("default_deadline_seconds is above maximum_deadline_seconds")
        return self


class ChannelSettings(Settings):
    """Settings of a client's channel."""

    section: ClassVar[str] = "channel"

    tls: bool = False
    """Whether the connection is encrypted. Without ``tls_ca_file`` the system's authorities are trusted."""
    tls_ca_file: Path | None = None
    """The authorities (PEM) one of which must have signed the server's certificate. Implies ``tls``."""
    tls_certificate_file: Path | None = None
    """The client's certificate chain (PEM), for servers that require one. Implies ``tls``."""
    tls_private_key_file: Path | None = None
    """The private key of the client's certificate (PEM)."""
    tls_server_name: str | None = None
    """The name that the server's certificate must hold, where it is not the target's host."""
    token_file: Path | None = None
    """The file with the bearer token of the calls. Read again when it changes. It is sent to every server
    that is called."""
    token_header: TokenHeader = Field(default="authorization")
    """The metadata key of the token. "authorization" has "Bearer " before the token, other keys have the
    token alone."""
    token_over_plain_text: bool = False
    """Whether the token is also sent where the connection is not encrypted and leaves this machine."""
    max_message_bytes: int = Field(default=64 << 20, ge=1024)
    """The largest response, in bytes."""
    timeout_seconds: float = Field(default=600.0, gt=0)
    """The default timeout of a call. The caller or the call being served may set less."""
    deadline_reserve_seconds: float = Field(default=0.05, ge=0)
    """The time reserved before the deadline of the call being served for returning an error."""
    keepalive_seconds: float = Field(default=60.0, ge=1)
    """The interval of keepalive probes of an idle connection, in seconds."""
    http_proxy: bool = False
    """Whether calls go through the proxy that the environment names (``https_proxy`` and the like)."""

    @model_validator(mode="after")
    def _consistent(self) -> ChannelSettings:
        if (self.tls_certificate_file is None) != (self.tls_private_key_file is None):
            raise ValueError("tls_certificate_file and tls_private_key_file are set together or not at all")
        return self

    @property
    def tls_files(self) -> list[Path]:
        """The files that the connection's credentials are made of."""
        files = (self.tls_ca_file, self.tls_certificate_file, self.tls_private_key_file)
        return [file for file in files if file is not None]

    @property
    def encrypted(self) -> bool:
        """Whether the connection is encrypted."""
        return self.tls or bool(self.tls_files)
