"""Providers out of settings, with their keys, limits, retries and prices."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from dramaturg.service.settings import SettingsError
from services.generation.ledger import Ledger
from services.generation.limiter import AdaptiveLimiter, ConcurrencyBounds
from services.generation.metrics import watch_limiter
from services.generation.pricing import PriceTable
from services.generation.providers.base import Provider
from services.generation.providers.instrumentation import InstrumentedProvider
from services.generation.providers.openai_compatible import OPENAI_HOST, OpenAICompatibleProvider
from services.generation.providers.recording import RecordingProvider
from services.generation.providers.replay import RecordingError, ReplayProvider
from services.generation.registry import ConfiguredProvider
from services.generation.retries import RetryingProvider, RetryPolicy
from services.generation.settings import GenerationSettings, OpenAISettings, ProviderSettings, ReplaySettings

ENVIRONMENT_PROVIDER = "openai"


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
    tables: Mapping[str, ProviderSettings] = settings.providers or _from_environment(environment)
    opened: dict[str, ConfiguredProvider] = {}
    for name, table in tables.items():
        if isinstance(table, OpenAISettings):
            opened[name] = _open_endpoint(name, table, environment, ledger)
    for name, table in tables.items():
        if isinstance(table, ReplaySettings):
            opened[name] = _open_recording(name, table, opened)
    return [opened[name] for name in tables]


def _from_environment(environment: Mapping[str, str]) -> dict[str, ProviderSettings]:
    """The provider that the variables of the ``openai`` package describe, if any."""
    if not environment.get("OPENAI_API_KEY") and not environment.get("OPENAI_BASE_URL"):
        return {}
    table = OpenAISettings(
        base_url=environment.get("OPENAI_BASE_URL") or "https://api.openai.com/v1",
        api_key_env="OPENAI_API_KEY" if environment.get("OPENAI_API_KEY") else "",
        default_model=environment.get("MODEL", ""),
    )
    return {ENVIRONMENT_PROVIDER: table}


def _open_endpoint(
    name: str, table: OpenAISettings, environment: Mapping[str, str], ledger: Ledger | None
) -> ConfiguredProvider:
    at_openai = urlsplit(table.base_url).hostname == OPENAI_HOST
    concurrency, retries = table.concurrency, table.retries
    prices = _prices(name, table.prices)
    endpoint: Provider = InstrumentedProvider(
        OpenAICompatibleProvider(
            name,
            table.base_url,
            _key(name, table, environment),
            default_model=table.default_model,
            structured_output=table.structured_output,
            token_cap=table.token_cap or ("max_completion_tokens" if at_openai else "max_tokens"),
            max_connections=concurrency.maximum,
        )
    )
    if ledger is not None:
        endpoint = RecordingProvider(endpoint, ledger)
    limiter = AdaptiveLimiter(
        ConcurrencyBounds(
            concurrency.minimum,
            min(concurrency.start, concurrency.maximum),
            concurrency.maximum,
            cooldown=concurrency.cooldown_seconds,
        )
    )
    watch_limiter(name, limiter)
    policy = RetryPolicy(
        retries.attempt_timeout_seconds,
        retries.transient_attempts,
        retries.first_wait_seconds,
        retries.longest_wait_seconds,
    )
    return ConfiguredProvider(RetryingProvider(endpoint, limiter, policy), prices)


def _open_recording(
    name: str, table: ReplaySettings, endpoints: Mapping[str, ConfiguredProvider]
) -> ConfiguredProvider:
    source: Provider | None = None
    prices = PriceTable()
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


def _key(name: str, table: OpenAISettings, environment: Mapping[str, str]) -> str:
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


def _prices(name: str, path: Path | None) -> PriceTable:
    try:
        return PriceTable() if path is None else PriceTable.read(path)
    except ValueError as error:
        raise SettingsError(f"generation.providers.{name}.prices: {error}") from error
