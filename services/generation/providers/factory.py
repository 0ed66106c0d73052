"""Makes providers from settings, with their keys, limits, retries and prices.

Every call is recorded in the ledger before it is sent. Tokens of cloud identities are renewed before they
end.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC
from importlib import import_module
from typing import Literal, get_args
from urllib.parse import parse_qsl, urlsplit

from dramaturg.service.files import ReloadingFile
from dramaturg.service.settings import SettingsError
from services.generation.calls import FailureKind, ProviderError
from services.generation.ledger import Ledger
from services.generation.limits.concurrency import ConcurrencyBounds
from services.generation.limits.limiter import CallLimiter, Rates
from services.generation.metrics import watch_limiter
from services.generation.pricing import ListPrices, Price, PriceTable
from services.generation.providers.base import InstrumentedProvider, KeyFilter, Provider
from services.generation.providers.model_file import ModelFileProvider
from services.generation.providers.openai_compatible import OPENAI_HOST, OpenAICompatibleProvider
from services.generation.providers.packages import Api, Connection, PackageProvider
from services.generation.providers.parameters import Dialect, Parameter, TokenParameter
from services.generation.providers.replay import RecordingError, ReplayProvider
from services.generation.providers.stepping import SteppingProvider
from services.generation.providers.transport import Access
from services.generation.registry import ENVIRONMENT_PROVIDER, ConfiguredProvider
from services.generation.retries import RetryingProvider, RetryPolicy
from services.generation.settings import (
    EndpointSettings,
    FileSettings,
    GenerationSettings,
    ModelSettings,
    ProviderSettings,
    ReplaySettings,
)

RENEW_SECONDS = 300.0
"""How long before its end a token is renewed."""

_SCOPES = {
    "azure": "https://cognitiveservices.azure.com/.default",
    "google": "https://www.googleapis.com/auth/cloud-platform",
}


_OPENAI_HEADERS = {"OpenAI-Organization": "OPENAI_ORG_ID", "OpenAI-Project": "OPENAI_PROJECT_ID"}
"""Headers for OpenAI itself, by the environment variables that hold them."""


class CloudIdentity:
    """The identity of the process in a cloud: of a workload, of a machine, or of a developer's login."""

    def __init__(self, name: str, cloud: Literal["azure", "google"], scope: str, keys: KeyFilter) -> None:
        """Finds the package.

        Args:
            name: The provider's name.
            cloud: The cloud.
            scope: The scope of tokens. Empty: that of its model services.
            keys: Learns the tokens.

        Raises:
            ImportError: the package is not installed.
        """
        self._name = name
        self._fetch: Callable[[], tuple[str, float]]
        self._fetch = (_azure if cloud == "azure" else _google)(scope or _SCOPES[cloud])
        self._keys = keys
        self._lock = asyncio.Lock()
        self._token = ""
        self._ends = 0.0

    async def headers(self) -> Mapping[str, str]:
        """The header with a token that is valid.

        Raises:
            ProviderError: there is none.
        """
        if time.time() > self._ends - RENEW_SECONDS:
            async with self._lock:
                if time.time() > self._ends - RENEW_SECONDS:
                    await self._renew()
        return {"Authorization": f"Bearer {self._token}"}

    async def _renew(self) -> None:
        try:
            token, ends = await asyncio.to_thread(self._fetch)
        except Exception as error:
            if time.time() < self._ends:
                return
            message = f"no token of the cloud identity: {self._keys.text(str(error))[:500]}"
            raise ProviderError(FailureKind.UNAUTHENTICATED, self._name, message, settled=True) from None
        self._keys.add(token)
        self._token, self._ends = token, ends


def _azure(scope: str) -> Callable[[], tuple[str, float]]:
    from azure.identity import DefaultAzureCredential

    credential = DefaultAzureCredential()

    def fetch() -> tuple[str, float]:
        token = credential.get_token(scope)
        return token.token, float(token.expires_on)

    return fetch


def _google(scope: str) -> Callable[[], tuple[str, float]]:
    import google.auth
    from google.auth.transport.requests import Request

    def fetch() -> tuple[str, float]:
        credentials, _ = google.auth.default(scopes=[scope])
        credentials.refresh(Request())
        ends = credentials.expiry
        # An hour where the credentials do not say.
        return credentials.token, time.time() + 3600 if ends is None else ends.replace(tzinfo=UTC).timestamp()

    return fetch


def open_providers(
    settings: GenerationSettings, environment: Mapping[str, str], ledger: Ledger | None = None
) -> list[ConfiguredProvider]:
    """Opens every configured provider, in order. Needs a running event loop.

    Args:
        settings: Which they are.
        environment: Where keys are found.
        ledger: Where calls to endpoints are noted before they are sent. None: nowhere.

    Raises:
        SettingsError: a key, a recording or a price table is missing or cannot be used.
    """
    files = {name: table for name, table in settings.providers.items() if isinstance(table, FileSettings)}
    others = {name: table for name, table in settings.providers.items() if name not in files}
    tables: Mapping[str, ProviderSettings] = {**(others or _from_environment(environment)), **files}
    opened: dict[str, ConfiguredProvider] = {}
    for name, table in tables.items():
        if isinstance(table, EndpointSettings):
            opened[name] = _open_endpoint(name, table, environment, ledger)
        elif isinstance(table, FileSettings):
            opened[name] = _open_file(name, table, ledger)
    for name, table in tables.items():
        if isinstance(table, ReplaySettings):
            opened[name] = _open_recording(name, table, opened)
    return [opened[name] for name in tables]


def _from_environment(environment: Mapping[str, str]) -> dict[str, ProviderSettings]:
    """The provider that OPENAI_API_KEY, OPENAI_BASE_URL and MODEL describe, if any."""
    if not environment.get("OPENAI_API_KEY") and not environment.get("OPENAI_BASE_URL"):
        return {}
    address = environment.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
    if not address.startswith(("http://", "https://")):
        raise SettingsError("OPENAI_BASE_URL: must start with http:// or https://")
    table = EndpointSettings(
        base_url=address,
        api_key_env="OPENAI_API_KEY" if environment.get("OPENAI_API_KEY") else "",
        default_model=environment.get("MODEL", ""),
    )
    return {ENVIRONMENT_PROVIDER: table}


def _open_endpoint(
    name: str, table: EndpointSettings, environment: Mapping[str, str], ledger: Ledger | None
) -> ConfiguredProvider:
    concurrency, retries = table.concurrency, table.retries
    prices = _prices(name, table)
    endpoint = _endpoint(name, table, environment)
    checked = InstrumentedProvider(endpoint, table.address)
    limiter = CallLimiter(
        ConcurrencyBounds(
            concurrency.minimum, min(concurrency.start, concurrency.maximum), concurrency.maximum
        ),
        lambda model: _rates(table.for_model(model)),
        period=table.rate_period_seconds,
        attempt_timeout=retries.attempt_timeout_seconds,
    )
    policy = RetryPolicy(
        attempt_timeout=math.inf if _streams(table) else retries.attempt_timeout_seconds,
        transient_attempts=retries.transient_attempts,
        request_failures=retries.request_failures,
        first_wait=retries.first_wait_seconds,
        longest_wait=retries.longest_wait_seconds,
    )
    configured = _configured(checked, limiter, policy, prices, ledger)
    return replace(configured, batches=endpoint.batches if isinstance(endpoint, PackageProvider) else None)


def _open_file(name: str, table: FileSettings, ledger: Ledger | None) -> ConfiguredProvider:
    provider = ModelFileProvider(name, table.path, context_tokens=table.context_tokens, slots=table.slots)
    limiter = CallLimiter(ConcurrencyBounds(1, table.slots, table.slots), is_shared=False)
    prices = PriceTable({"*": Price(prompt=0, completion=0)}, "a model of this machine")
    return _configured(InstrumentedProvider(provider, ""), limiter, RetryPolicy(), prices, ledger)


def _configured(
    checked: Provider, limiter: CallLimiter, policy: RetryPolicy, prices: PriceTable, ledger: Ledger | None
) -> ConfiguredProvider:
    watch_limiter(checked.name, limiter)
    return ConfiguredProvider(RetryingProvider(checked, limiter, policy, ledger), prices, checked)


def _endpoint(name: str, table: EndpointSettings, environment: Mapping[str, str]) -> SteppingProvider:
    keys = KeyFilter(())
    headers = _headers(name, table, environment)
    for header in table.extra_headers_env:
        keys.add(headers[header])

    def read_key() -> Mapping[str, str]:
        key = _key(name, table, environment)
        keys.add(key)
        if not key or table.key_header.lower() in map(str.lower, table.extra_headers_env):
            return {}
        bearer = table.key_header.lower() == "authorization"
        return {table.key_header: f"Bearer {key}" if bearer else key}

    changing: Callable[[], Mapping[str, str]] = dict
    renew = None
    if table.identity:
        renew = _identity(name, table, keys).headers
    elif table.api_key_file is not None:
        changing = ReloadingFile([table.api_key_file], read_key).current
    else:
        headers = {**headers, **read_key()}
    access = Access(
        headers,
        changing,
        renew,
        table.extra_query,
        table.ca_file,
        table.client_certificate,
        table.client_key,
        table.stream_idle_seconds,
    )
    at_openai = urlsplit(table.address).hostname == OPENAI_HOST

    def dialect(model: str) -> Dialect:
        return _dialect(table.for_model(model), table.kind, at_openai=at_openai)

    try:
        if table.kind != "chat":
            return PackageProvider(
                name,
                _address(table),
                _api(name, table, access),
                default_model=table.default_model,
                dialect=dialect,
                remember_seconds=table.remember_seconds,
                keys=keys,
            )
        return OpenAICompatibleProvider(
            name,
            table.address,
            access,
            address=_address(table),
            default_model=table.default_model,
            dialect=dialect,
            remember_seconds=table.remember_seconds,
            keys=keys,
            unstreamed_seconds=table.retries.attempt_timeout_seconds if _streams(table) else None,
            max_connections=table.concurrency.maximum,
        )
    except OSError as error:
        raise SettingsError(
            f"generation.providers.{name}: ca_file, client_certificate or client_key cannot be used: {error}"
        ) from error


_APIS = {
    "openai": ("responses_api", "ResponsesApi"),
    "anthropic": ("messages_api", "MessagesApi"),
    "google": ("gemini_api", "GeminiApi"),
    "bedrock": ("converse_api", "ConverseApi"),
}
"""The module and the class of each kind. A module imports its package: it is imported when it is needed."""


def _api(name: str, table: EndpointSettings, access: Access) -> Api:
    module, made = _APIS[table.kind]

    async def credentials() -> Mapping[str, str]:
        renewed = {} if access.renew is None else await access.renew()
        return {**access.headers, **access.changing(), **renewed}

    connection = Connection(
        table.base_url.partition("?")[0],
        credentials,
        {**dict(parse_qsl(urlsplit(table.base_url).query)), **access.query},
        access.ssl_context(),
        str(table.ca_file or ""),
        table.retries.attempt_timeout_seconds,
        table.concurrency.maximum,
        table.project,
        table.region,
    )
    try:
        found = getattr(import_module(f"services.generation.providers.{module}"), made)
    except ImportError as error:
        raise _missing(name, f'kind = "{table.kind}"', table.kind, error) from error
    try:
        api: Api = found(connection)
    except OSError:
        raise
    except Exception as error:
        raise SettingsError(f"generation.providers.{name}: {error}") from error
    return api


def _identity(name: str, table: EndpointSettings, keys: KeyFilter) -> CloudIdentity:
    assert table.identity
    try:
        return CloudIdentity(name, table.identity, table.identity_scope, keys)
    except ImportError as error:
        raise _missing(name, f'identity = "{table.identity}"', table.identity, error) from error


def _missing(name: str, setting: str, extra: str, error: ImportError) -> SettingsError:
    return SettingsError(
        f"generation.providers.{name}: {setting} needs the extra {extra}: "
        f"pip install 'dramaturg[{extra}]' ({error})"
    )


def _rates(settings: ModelSettings) -> Rates:
    return Rates(settings.requests_per_minute, settings.tokens_per_minute)


def _streams(table: EndpointSettings) -> bool:
    return bool(table.stream) or any(model.stream for model in table.models.values())


def _dialect(settings: ModelSettings, kind: str, *, at_openai: bool) -> Dialect:
    return Dialect(
        omit=settings.omit | {Parameter.JSON_SCHEMA_LENGTHS} if at_openai else settings.omit,
        token_parameter=settings.token_parameter or ("max_completion_tokens" if at_openai else "max_tokens"),
        default_output_tokens=settings.max_output_tokens,
        most_output_tokens=settings.max_output_tokens_limit,
        stream=bool(settings.stream),
        reasoning_effort=settings.reasoning_effort,
        extra_body=settings.extra_body,
        # Other APIs have one name for the cap.
        token_parameters_refused=frozenset() if kind == "chat" else frozenset(get_args(TokenParameter)),
        marks_prompt=kind in {"anthropic", "bedrock"},
    )


def _address(table: EndpointSettings) -> str:
    """What tells the endpoint's answers from others: its address, and what the settings add to requests."""
    base = table.address.partition("?")[0].rstrip("/")
    added = {
        pattern: {
            name: sorted(value) if isinstance(value, frozenset) else value
            for name in ModelSettings.model_fields
            if name not in {"stream", "token_parameter"} and (value := getattr(settings, name))
        }
        for pattern, settings in [("", table), *table.models.items()]
    }
    said: dict[str, object] = {pattern: members for pattern, members in sorted(added.items()) if members}
    if table.kind != "chat":
        said["kind"] = {"kind": table.kind, "project": table.project, "region": table.region}
    return f"{base} {json.dumps(said, sort_keys=True)}" if said else base


def _headers(name: str, table: EndpointSettings, environment: Mapping[str, str]) -> Mapping[str, str]:
    headers = dict(table.extra_headers)
    if urlsplit(table.address).hostname == OPENAI_HOST:
        for header, variable in _OPENAI_HEADERS.items():
            if environment.get(variable):
                headers.setdefault(header, environment[variable])
    for header, variable in table.extra_headers_env.items():
        value = environment.get(variable, "").strip()
        if not value:
            raise SettingsError(
                f"generation.providers.{name}.extra_headers_env: the variable {variable} is not set"
            )
        headers[header] = value
    return headers


def _open_recording(
    name: str, table: ReplaySettings, endpoints: Mapping[str, ConfiguredProvider]
) -> ConfiguredProvider:
    source: Provider | None = None
    prices = PriceTable({"*": Price(prompt=0, completion=0)}, "a recording")
    if table.record_from:
        if table.record_from not in endpoints:
            raise SettingsError(
                f"generation.providers.{name}.record_from: there is no endpoint {table.record_from!r}"
            )
        source, prices = endpoints[table.record_from].provider, endpoints[table.record_from].prices
    try:
        provider = ReplayProvider(name, table.path, source=source, default_model=table.default_model)
    except RecordingError as error:
        raise SettingsError(f"generation.providers.{name}.path: {error}") from error
    return ConfiguredProvider(provider, prices)


def _key(name: str, table: EndpointSettings, environment: Mapping[str, str]) -> str:
    if table.api_key_env:
        key = environment.get(table.api_key_env, "").strip()
        if not key:
            raise SettingsError(
                f"generation.providers.{name}.api_key_env: the variable {table.api_key_env} is not set"
            )
        return key
    if table.api_key_file is None:
        return ""
    try:
        return table.api_key_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"generation.providers.{name}.api_key_file: {error}") from error


def _prices(name: str, table: EndpointSettings) -> PriceTable:
    listed = ListPrices(table.address)
    try:
        return listed if table.prices is None else PriceTable.read(table.prices, listed)
    except ValueError as error:
        raise SettingsError(f"generation.providers.{name}.prices: {error}") from error
