"""The configured providers, and the resolution of model names."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dramaturg.service.threads import gather_all
from services.generation.calls import ModelUnknownError, ProviderError
from services.generation.limits.limiter import RateStatus
from services.generation.pricing import PriceTable
from services.generation.providers.base import BatchProvider, Provider
from services.generation.retries import RetryingProvider

ENVIRONMENT_PROVIDER = "environment"
"""The provider of the environment variables. It is no vendor's name, so that "openai/..." is a model."""
HOW_TO_CONFIGURE = (
    "name one in the table [generation.providers.<name>] of the file that DRAMATURG_CONFIG names, or set "
    "OPENAI_API_KEY or OPENAI_BASE_URL, and MODEL, in the environment of the generation service"
)


@dataclass(frozen=True, slots=True)
class ConfiguredProvider:
    """A provider, and what its tokens cost."""

    provider: Provider
    prices: PriceTable
    checked: Provider | None = None
    """The provider without retries and limits, for checks. None: ``provider`` itself."""
    states_usage: dict[str, bool] = field(default_factory=dict)
    """Whether the last answer of each model stated token counts."""
    batches: BatchProvider | None = None
    """The batches of the provider. None: it has none here."""
    usage_check: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a call is made to find that out."""


@dataclass(frozen=True, slots=True)
class ListedModels:
    """The models of one provider, or why they could not be listed."""

    provider: str
    models: tuple[str, ...] = ()
    error: str = ""
    limits: tuple[RateStatus, ...] = ()


class Registry:
    """The configured providers, in their order; the first is the default unless another is named."""

    def __init__(self, providers: Sequence[ConfiguredProvider], default_model: str = "") -> None:
        """Checks the default model.

        Args:
            providers: The providers, by distinct names.
            default_model: The meaning of an empty name, as "provider/model" or a model of the first
                provider. Empty: the first provider's own default.
        """
        self._providers: Mapping[str, ConfiguredProvider] = {
            configured.provider.name: configured for configured in providers
        }
        self._default_model = default_model

    def resolve(self, name: str) -> tuple[ConfiguredProvider, str]:
        """Finds the provider and the model, as the provider names it.

        Raises:
            ModelUnknownError: there is no provider, or no model was named and there is no default.
        """
        if not self._providers:
            raise ModelUnknownError(name, f"no model provider is configured; {HOW_TO_CONFIGURE}")
        prefix, slash, rest = (name or self._default_model).partition("/")
        if slash and prefix in self._providers:
            configured, model = self._providers[prefix], rest
        else:
            configured, model = next(iter(self._providers.values())), name or self._default_model
        model = model or configured.provider.default_model
        if not model:
            provider = configured.provider.name
            remedy = f"default_model in the table [generation] or [generation.providers.{provider}]"
            if provider == ENVIRONMENT_PROVIDER:
                remedy = "MODEL in the environment of the generation service"
            raise ModelUnknownError(name, f"the request names no model and there is no default; set {remedy}")
        return configured, model

    @property
    def configured(self) -> Sequence[ConfiguredProvider]:
        """The providers, in the order configured."""
        return tuple(self._providers.values())

    @property
    def default_model(self) -> str:
        """The meaning of an empty name, as "provider/model". Empty: nothing."""
        try:
            configured, model = self.resolve("")
        except ModelUnknownError:
            return ""
        return f"{configured.provider.name}/{model}"

    def limits(self) -> list[tuple[str, Sequence[RateStatus]]]:
        """The limits of each provider that has any, by its name, in the order configured."""
        return [(name, _limits(configured.provider)) for name, configured in self._providers.items()]

    async def list_models(self) -> list[ListedModels]:
        """Asks every provider at once, in the order configured."""
        providers = [configured.provider for configured in self._providers.values()]
        return await gather_all([_list_models(provider) for provider in providers])


def _limits(provider: Provider) -> Sequence[RateStatus]:
    return provider.limiter.status() if isinstance(provider, RetryingProvider) else ()


async def _list_models(provider: Provider) -> ListedModels:
    limits = tuple(_limits(provider))
    try:
        return ListedModels(provider.name, tuple(await provider.models()), limits=limits)
    except ProviderError as fault:
        return ListedModels(provider.name, error=str(fault), limits=limits)
