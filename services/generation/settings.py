"""What the generation service can be told."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    SecretStr,
    Tag,
    field_validator,
    model_validator,
)

from dramaturg.service.settings import Settings
from services.generation.ledger import IN_MEMORY, is_ledger_url
from services.generation.providers.parameters import Parameter, TokenParameter


def _data_folder() -> Path:
    """The folder in the user's data folder (XDG Base Directory Specification)."""
    home = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(home) / "dramaturg"


def default_ledger() -> str:
    """The ledger's file."""
    return str(_data_folder() / "completions.sqlite3")


def default_spool_dir() -> Path:
    """The folder of what is bought and not in PostgreSQL yet."""
    return _data_folder() / "spool"


class _Part(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True
    )


class ConcurrencySettings(_Part):
    """How many calls a provider gets at once. The number is learned, between these bounds."""

    minimum: int = Field(default=1, ge=1)
    """The lower bound."""
    start: int = Field(default=32, ge=1)
    """The first number, at most the maximum. It grows until the provider refuses calls."""
    maximum: int = Field(default=256, ge=1, le=1000)
    """The upper bound."""

    @model_validator(mode="after")
    def _consistent(self) -> ConcurrencySettings:
        if self.minimum > min(self.start, self.maximum):
            raise ValueError("minimum must not be above start or maximum")
        return self


class RetrySettings(_Part):
    """How long to try."""

    attempt_timeout_seconds: float = Field(default=600.0, gt=0)
    """The time limit of an attempt until 20 answers are known. From then on it is four times the longest of
    the latest 50, at least a tenth of this and at most this. Time in the queue does not count.
    """
    transient_attempts: int = Field(default=6, ge=1)
    """The most attempts that end in a passing failure other than a rate limit."""
    first_wait_seconds: float = Field(default=0.5, ge=0)
    """The longest first wait; it doubles with every failure. Waits are drawn at random from 0."""
    longest_wait_seconds: float = Field(default=30.0, ge=0)
    """Up to this, unless the provider asks for more."""


class ModelSettings(_Part):
    """How models are called. A member that is absent in the table of a model is that of its provider."""

    omit: frozenset[Parameter] = frozenset()
    """What is never sent: ``temperature``, ``top_p``, ``seed``, ``stop``, ``max_output_tokens``,
    ``reasoning_effort``, ``logprobs``, ``top_logprobs``, ``json_schema``, ``json_object``, ``system_role``
    (the instructions begin the user's message) and ``stream_options``. What a model refuses need not be
    listed: it is left out and remembered.
    """
    token_parameter: TokenParameter | None = None
    """The name of the cap on an answer's tokens: ``max_tokens`` or ``max_completion_tokens``. Absent:
    ``max_completion_tokens`` at OpenAI itself, ``max_tokens`` elsewhere; the other one where it is refused.
    """
    max_output_tokens: int | None = Field(default=None, ge=1)
    """The cap where a request sets none. Absent: none is sent."""
    max_output_tokens_limit: int | None = Field(default=None, ge=1)
    """The maximum cap that is sent, regardless of the request. Absent: any."""
    reasoning_effort: str = Field(default="", pattern="^[a-z]*$")
    """The reasoning effort where a request sets none. Empty: none is sent."""
    requests_per_minute: float | None = Field(default=None, gt=0)
    """The most requests to a model in any minute. Absent: as the provider states it in its headers
    (``x-ratelimit-*`` and the like), or as learned from refusals.
    """
    tokens_per_minute: float | None = Field(default=None, gt=0)
    """The most prompt and completion tokens of a model in any minute. Absent: likewise."""
    stream: bool | None = None
    """Whether answers are streamed, for endpoints that do nothing else. An answer then fails after a pause of
    ``stream_idle_seconds`` and has no other time limit than its request's.
    """
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Further members of every request's body, in place of those of the same name."""

    @field_validator("extra_body")
    @classmethod
    def _is_extra(cls, body: dict[str, Any]) -> dict[str, Any]:
        taken = sorted({"model", "messages", "stream"} & body.keys())
        if taken:
            raise ValueError(f"must not have {', '.join(taken)}")
        return body


class OpenAISettings(ModelSettings):
    """An endpoint that speaks the OpenAI protocol."""

    kind: Literal["openai"] = "openai"
    """What the provider is."""
    base_url: str = Field(default="https://api.openai.com/v1", pattern="^https?://")
    """Its address, version included. A query is sent with every request."""
    api_key_env: str = ""
    """The environment variable that holds its key."""
    api_key_file: Path | None = None
    """The file that holds its key. Without either, calls carry no credentials."""
    api_key_header: str = Field(default="Authorization", pattern="^[A-Za-z0-9-]+$")
    """The header that carries the key: as ``Bearer KEY`` in ``Authorization``, as it is in any other."""
    extra_headers: dict[str, str] = Field(default_factory=dict)
    """Further headers of every request."""
    extra_headers_env: dict[str, str] = Field(default_factory=dict)
    """Further headers whose values are in environment variables, by the variables' names."""
    extra_query: dict[str, str] = Field(default_factory=dict)
    """Further parameters of every request's query."""
    ca_file: Path | None = None
    """The certificates that are trusted in place of the system's, as PEM."""
    client_certificate: Path | None = None
    """The client's certificate for mutual TLS, as PEM."""
    client_key: Path | None = None
    """The key of ``client_certificate``. Absent: it is in the same file."""
    models: dict[str, ModelSettings] = Field(default_factory=dict)
    """Tables of single models, by name or pattern (``*``, ``?``, ``[...]``). The longest pattern decides."""
    stream_idle_seconds: float = Field(default=60.0, gt=0)
    """The longest that a streamed answer may pause."""
    remember_seconds: float = Field(default=86_400.0, ge=0)
    """How long it is remembered what a model refused."""
    default_model: str = ""
    """The model where a request names none."""
    prices: Path | None = None
    """The price table: a TOML or JSON file with a table for each model name or pattern, of ``prompt``,
    ``completion`` and optionally ``cached``, in US dollars per million tokens. Absent: costs are unknown.
    """
    rate_period_seconds: float = Field(default=60.0, gt=0)
    """The length of the minute of the rates; benchmarks and tests shorten it."""
    concurrency: ConcurrencySettings = ConcurrencySettings()
    """How many calls at once."""
    retries: RetrySettings = RetrySettings()
    """How long to try."""

    @model_validator(mode="after")
    def _consistent(self) -> OpenAISettings:
        if self.api_key_env and self.api_key_file is not None:
            raise ValueError("api_key_env and api_key_file exclude each other")
        if self.client_key is not None and self.client_certificate is None:
            raise ValueError("client_key needs client_certificate")
        return self

    def for_model(self, model: str) -> ModelSettings:
        """The settings of one model."""
        patterns = [pattern for pattern in self.models if fnmatchcase(model, pattern)]
        if not patterns:
            return self
        table = self.models[max(patterns, key=lambda pattern: (pattern == model, len(pattern)))]
        stated = {name: getattr(table, name) for name in table.model_fields_set}
        inherited = {name: getattr(self, name) for name in ModelSettings.model_fields}
        if "extra_body" in stated:
            stated["extra_body"] = {**self.extra_body, **table.extra_body}
        return ModelSettings.model_construct(**{**inherited, **stated})


class ReplaySettings(_Part):
    """A recording that is played back."""

    kind: Literal["replay"]
    """What the provider is."""
    path: Path
    """The recording, a JSON Lines file."""
    record_from: str = ""
    """The provider from which a missing completion is bought, to be recorded. Empty: it is an error."""
    default_model: str = ""
    """The model where a request names none. Empty: that of ``record_from``."""


def _kind(table: Any) -> str:
    """The kind of a provider's table; "openai" where it states none."""
    kind = table.get("kind", "openai") if isinstance(table, dict) else getattr(table, "kind", "openai")
    return str(kind)


ProviderSettings = Annotated[
    Annotated[OpenAISettings, Tag("openai")] | Annotated[ReplaySettings, Tag("replay")], Discriminator(_kind)
]


class GenerationSettings(Settings):
    """The generation service."""

    section: ClassVar[str] = "generation"

    providers: dict[Annotated[str, Field(pattern="^[a-z0-9][a-z0-9_.-]{0,62}$")], ProviderSettings] = Field(
        default_factory=dict
    )
    """The providers by name, in order; the first is the default. None at all: one named "environment" is
    made of OPENAI_API_KEY, OPENAI_BASE_URL and MODEL, where the environment has one of the first two.
    """
    default_model: str = ""
    """What a request that names no model gets, as "provider/model" or a model of the first provider. Empty:
    the first provider's own default.
    """
    ledger: str = Field(default_factory=default_ledger, min_length=1)
    """The file of kept completions; ":memory:" forgets them with the process. See ``ledger_url``."""
    ledger_url: SecretStr = SecretStr("")
    """Where completions are kept, in place of ``ledger``: ``sqlite:///PATH`` (four slashes for an absolute
    one), ``sqlite://`` (in memory), or, for several processes,
    ``postgresql://USER:PASSWORD@HOST:PORT/DATABASE`` with any parameter that libpq knows. Empty: the file
    that ``ledger`` names.
    """
    ledger_spool_dir: Path = Field(default_factory=default_spool_dir)
    """With PostgreSQL, the folder in which this machine's processes hold what the database does not have
    yet. It must outlive a process, and be on a local disk.
    """
    share_completions: bool = False
    """Whether tenants are given each other's completions. It saves what two of them ask alike, and tells each
    by the time and by ``cached`` that another asked it before. Without tenants there is nothing to share.
    """
    doubled_default_tokens: int = Field(default=8192, ge=1)
    """The cap of the second request after an answer without a cap was truncated."""
    prompts_dir: Path | None = None
    """A folder whose prompt files replace the service's own ones of the same name."""
    deadline_reserve_seconds: float = Field(default=0.05, ge=0)
    """What is kept of a request's time to still answer it with the reason why it failed."""
    maximum_seconds: float = Field(default=600.0, gt=0)
    """The longest that a request without a deadline may take."""

    max_batch_requests: int = Field(default=4000, ge=200)
    """The most requests under way of all ``GenerateBatch`` calls. A batch that does not fit is refused
    with ``ERROR_REASON_OVERLOADED``.
    """

    @field_validator("ledger_url")
    @classmethod
    def _is_ledger_url(cls, url: SecretStr) -> SecretStr:
        if url.get_secret_value() and not is_ledger_url(url.get_secret_value()):
            raise ValueError("must begin with sqlite:/// or postgresql://, or be sqlite://")
        return url

    def ledger_setting(self) -> str:
        """The name of the setting that says where the ledger is."""
        return "ledger_url" if self.ledger_url.get_secret_value() else "ledger"

    def ledger_address(self) -> str:
        """The ledger's URL, from either setting."""
        file = "sqlite://" if self.ledger == IN_MEMORY else f"sqlite:///{self.ledger}"
        return self.ledger_url.get_secret_value() or file
