"""Settings of the generation service."""

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
    """The folder for application data of the user (XDG Base Directory Specification)."""
    home = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(home) / "dramaturg"


def default_ledger() -> str:
    """The ledger's file."""
    return str(_data_folder() / "completions.sqlite3")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class ConcurrencySettings(_Part):
    """The number of concurrent calls to a provider. It adapts between these bounds."""

    minimum: int = Field(default=1, ge=1)
    """The lower bound."""
    start: int = Field(default=32, ge=1)
    """The initial number. It grows until the provider refuses calls."""
    maximum: int = Field(default=256, ge=1, le=1000)
    """The upper bound."""

    @model_validator(mode="after")
    def _consistent(self) -> ConcurrencySettings:
        if self.minimum > min(self.start, self.maximum):
            raise ValueError("minimum must not be above start or maximum")
        return self


class RetrySettings(_Part):
    """Retries of calls."""

    attempt_timeout_seconds: float = Field(default=600.0, gt=0)
    """The time limit of an attempt, in seconds, until 20 answers are known. Afterwards it is four times the
    longest of the latest 50, at least a tenth of this value and at most this value. Time in the queue does
    not count.
    """
    transient_attempts: int = Field(default=6, ge=1)
    """The maximum number of attempts that end in a transient failure other than a rate limit."""
    request_failures: int = Field(default=12, ge=1)
    """The maximum number of attempts that end in such a failure, over all calls of a tenant with one request
    id: those of all judges of a sample, and of all attempts at it. Every two answers allow one more.
    """
    first_wait_seconds: float = Field(default=0.5, ge=0)
    """The upper bound of the first wait, in seconds; it doubles with every failure. Waits are random."""
    longest_wait_seconds: float = Field(default=30.0, ge=0)
    """The upper bound of any wait, in seconds, unless the provider requests a longer one."""


class ModelSettings(_Part):
    """Settings of calls to models. Members that the table of a model lacks are those of its provider."""

    omit: frozenset[Parameter] = frozenset()
    """The parameters that are never sent: ``temperature``, ``top_p``, ``seed``, ``stop``,
    ``max_output_tokens``, ``reasoning_effort``, ``logprobs``, ``top_logprobs``, ``json_schema``,
    ``json_schema_ranges`` and ``json_schema_lengths`` (the schema goes without the bounds of numbers and
    lists, and of texts), ``json_object``, ``system_role`` (the instructions begin the user's message),
    ``stream_options`` and ``prompt_cache``.
    Parameters that a model refuses need not be listed: they are dropped and remembered.
    """
    token_parameter: TokenParameter | None = None
    """The name of the cap on an answer's tokens: ``max_tokens`` or ``max_completion_tokens``. Absent:
    ``max_completion_tokens`` for OpenAI, ``max_tokens`` for other endpoints; the other name where the first
    is refused.
    """
    max_output_tokens: int | None = Field(default=None, ge=1)
    """The default token cap. Absent: none is sent."""
    max_output_tokens_limit: int | None = Field(default=None, ge=1)
    """The maximum token cap, regardless of the request. Absent: no maximum."""
    reasoning_effort: str = Field(default="", pattern="^[a-z]*$")
    """The default reasoning effort. Empty: none is sent."""
    requests_per_minute: float | None = Field(default=None, gt=0)
    """The maximum number of requests to a model per minute. Absent: the limit in the headers of the provider
    (``x-ratelimit-*`` and similar), or the limit learned from refusals.
    """
    tokens_per_minute: float | None = Field(default=None, gt=0)
    """The maximum number of prompt and completion tokens of a model per minute. Absent: as for requests."""
    stream: bool | None = None
    """Whether answers are streamed, for endpoints that only stream. An answer then fails after a pause of
    ``stream_idle_seconds``; its only other time limit is the deadline of its request.
    """
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Additional members of every request body. They replace members of the same name."""

    @field_validator("extra_body")
    @classmethod
    def _is_extra(cls, body: dict[str, Any]) -> dict[str, Any]:
        taken = sorted({"model", "messages", "stream"} & body.keys())
        if taken:
            raise ValueError(f"must not have {', '.join(taken)}")
        return body


_ADDRESSES = {
    "chat": "https://api.openai.com/v1",
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "google": "https://generativelanguage.googleapis.com",
    "bedrock": "https://bedrock-runtime.amazonaws.com",
}
_KEY_HEADERS = {"anthropic": "X-Api-Key", "google": "X-Goog-Api-Key"}


class EndpointSettings(ModelSettings):
    """An endpoint."""

    kind: Literal["chat", "openai", "anthropic", "google", "bedrock"] = "chat"
    """The API: ``chat`` is that of chat completions, which most servers speak; ``openai`` that of OpenAI's
    responses, ``anthropic`` Anthropic's messages, ``google`` Gemini and Vertex AI, ``bedrock`` Converse of
    Amazon Bedrock. The last three need the extra of that name.
    """
    base_url: str = Field(default="", pattern="^(https?://.+)?$")
    """The base URL, including the version where the API has one in it. Its query is sent with every request.
    Empty: the vendor's; of ``chat`` and ``openai`` that is ``https://api.openai.com/v1``.
    """
    identity: Literal["", "azure", "google"] = ""
    """The cloud whose identity is the credential, by tokens that are renewed: ``azure`` (Entra, by the extra
    of that name) or ``google`` (application default credentials). Empty: the key. Vertex AI and Bedrock have
    the identity of their cloud anyway.
    """
    identity_scope: str = ""
    """The scope of the tokens. Empty: ``https://cognitiveservices.azure.com/.default`` and
    ``https://www.googleapis.com/auth/cloud-platform``.
    """
    project: str = ""
    """The project in Google Cloud, of ``google``: models of Vertex AI. Empty: the Gemini API, by key."""
    region: str = ""
    """The region of Vertex AI or Bedrock. Empty: that of the environment."""
    api_key_env: str = ""
    """The environment variable with the API key."""
    api_key_file: Path | None = None
    """The file with the API key. Without key, calls carry no credentials. A key of fewer than 8 characters is
    a placeholder: it is not removed from the words of the provider that callers and logs show."""
    api_key_header: str = Field(default="", pattern="^[A-Za-z0-9-]*$")
    """The header of the key: ``Bearer KEY`` in ``Authorization``, the bare key in any other. Empty: that of
    the kind, which is ``Authorization`` for ``chat`` and ``openai``.
    """
    extra_headers: dict[str, str] = Field(default_factory=dict)
    """Additional headers of every request."""
    extra_headers_env: dict[str, str] = Field(default_factory=dict)
    """Additional headers by the names of the environment variables with their values."""
    extra_query: dict[str, str] = Field(default_factory=dict)
    """Additional query parameters of every request."""
    ca_file: Path | None = None
    """The trusted certificates, as PEM, in place of the system's."""
    client_certificate: Path | None = None
    """The client's certificate for mutual TLS, as PEM."""
    client_key: Path | None = None
    """The key of ``client_certificate``. Absent: it is in the same file."""
    models: dict[str, ModelSettings] = Field(default_factory=dict)
    """Settings of single models, by name or pattern (``*``, ``?``, ``[...]``). The longest match applies."""
    stream_idle_seconds: float = Field(default=60.0, gt=0)
    """The maximum pause of a streamed answer, in seconds."""
    remember_seconds: float = Field(default=86_400.0, ge=0)
    """How long refused parameters of a model are remembered, in seconds. 0: they are not."""
    default_model: str = ""
    """The model of requests that name none."""
    prices: Path | None = None
    """The price table: a TOML or JSON file with a table for each model name or pattern, of ``prompt``,
    ``completion`` and optionally ``cached`` and ``reasoning``, in US dollars per million tokens. Models that
    it lacks have the list prices of the package genai-prices at addresses that it knows, else unknown costs.
    """
    rate_period_seconds: float = Field(default=60.0, gt=0)
    """The length of the window of the rates, in seconds; benchmarks and tests shorten it."""
    concurrency: ConcurrencySettings = ConcurrencySettings()
    """Concurrent calls."""
    retries: RetrySettings = RetrySettings()
    """Retries of calls."""

    @model_validator(mode="after")
    def _consistent(self) -> EndpointSettings:
        if self.api_key_env and self.api_key_file is not None:
            raise ValueError("api_key_env and api_key_file exclude each other")
        if self.client_key is not None and self.client_certificate is None:
            raise ValueError("client_key needs client_certificate")
        keyed = bool(self.api_key_env or self.api_key_file)
        if self.identity and keyed:
            raise ValueError("identity and a key exclude each other")
        if self.identity and self.kind in {"google", "bedrock"}:
            raise ValueError(f"kind {self.kind} has the identity of its cloud: leave identity out")
        if keyed and (self.kind == "bedrock" or self.project):
            raise ValueError("Bedrock and Vertex AI take no key: leave api_key_env and api_key_file out")
        if self.project and self.kind != "google":
            raise ValueError("project belongs to kind google")
        if self.region and not (self.project or self.kind == "bedrock"):
            raise ValueError("region belongs to kind bedrock, and to kind google with a project")
        if self.kind != "chat" and any(table.stream for table in (self, *self.models.values())):
            raise ValueError("stream belongs to kind chat")
        return self

    @property
    def address(self) -> str:
        """The base URL, or that of the vendor."""
        if self.kind == "bedrock" and self.region:
            return self.base_url or f"https://bedrock-runtime.{self.region}.amazonaws.com"
        return self.base_url or _ADDRESSES[self.kind]

    @property
    def key_header(self) -> str:
        """The header of the key."""
        return self.api_key_header or _KEY_HEADERS.get(self.kind, "Authorization")

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


class FileSettings(_Part):
    """A model file, served by llama.cpp in a process of the platform. Needs the extra ``local``."""

    kind: Literal["file"]
    """The kind of the provider."""
    path: Path
    """The file, in the GGUF format. Its name without the ending is the model's."""
    context_tokens: int = Field(default=8192, ge=256)
    """The tokens of a prompt and its answer together. Memory grows with them."""
    slots: int = Field(default=1, ge=1, le=64)
    """The calls at once, each with its own context."""


class ReplaySettings(_Part):
    """A recording that is replayed."""

    kind: Literal["replay"]
    """The kind of the provider."""
    path: Path
    """The recording, a JSON Lines file."""
    record_from: str = ""
    """The provider that answers missing calls, whose answers are recorded. Empty: missing calls fail."""
    default_model: str = ""
    """The model of requests that name none. Empty: that of ``record_from``."""


def _kind(table: Any) -> str:
    """The tag of a provider's table."""
    kind = table.get("kind") if isinstance(table, dict) else getattr(table, "kind", None)
    return kind if kind in {"replay", "file"} else "endpoint"


ProviderSettings = Annotated[
    Annotated[EndpointSettings, Tag("endpoint")]
    | Annotated[FileSettings, Tag("file")]
    | Annotated[ReplaySettings, Tag("replay")],
    Discriminator(_kind),
]


class BatchSettings(_Part):
    """Calls that wait for batches of their providers."""

    gather_seconds: float = Field(default=120.0, ge=0)
    """How long a batch gathers calls before it is sent. A call that is not asked for again meanwhile is not
    sent."""
    poll_seconds: float = Field(default=60.0, gt=0)
    """The time between two looks at a batch, and between two looks for calls to send."""
    max_requests: int = Field(default=10_000, ge=1, le=50_000)
    """The maximum number of calls in a batch."""


class GenerationSettings(Settings):
    """The generation service."""

    section: ClassVar[str] = "generation"

    providers: dict[Annotated[str, Field(pattern="^[a-z0-9][a-z0-9_.-]{0,62}$")], ProviderSettings] = Field(
        default_factory=dict
    )
    """The providers by name, in order, model files last; the first is the default. With none but model
    files, "environment" is configured from OPENAI_API_KEY, OPENAI_BASE_URL and MODEL, if one of the
    first two is set.
    """
    default_model: str = ""
    """The model of requests that name none, as "provider/model" or a model of the first provider. Empty: the
    default of the first provider.
    """
    ledger: str = Field(default_factory=default_ledger, min_length=1)
    """The file of stored completions, or ":memory:". See ``ledger_url``."""
    ledger_url: SecretStr = SecretStr("")
    """The store of completions, in place of ``ledger``: ``sqlite:///PATH`` (four slashes for an absolute
    one), ``sqlite://`` (in memory), or, for several processes,
    ``postgresql://USER:PASSWORD@HOST:PORT/DATABASE`` with any parameter of libpq. Empty: the file
    that ``ledger`` names.
    """
    share_completions: bool = False
    """Whether tenants share completions. Sharing saves repeated calls, and reveals by latency and ``cached``
    that another tenant sent the same request. Without tenants it has no effect.
    """
    doubled_default_tokens: int = Field(default=8192, ge=1)
    """The token cap of the second request after a truncated answer to a request without cap."""
    prompts_dir: Path | None = None
    """A folder of prompt files that replace the service's and the shared files of the same name. Files in its
    subfolder ``generation`` take precedence.
    """
    deadline_reserve_seconds: float = Field(default=0.05, ge=0)
    """The part of a request's time, in seconds, that is reserved for reporting its failure."""
    maximum_seconds: float = Field(default=600.0, gt=0)
    """The deadline of requests without one, in seconds."""

    max_batch_requests: int = Field(default=4000, ge=200)
    """The maximum number of requests in flight of all ``GenerateBatch`` calls. A batch that exceeds it is
    refused with ``ERROR_REASON_OVERLOADED``.
    """

    batches: BatchSettings = BatchSettings()
    """Calls that wait for batches."""

    @field_validator("ledger_url")
    @classmethod
    def _is_ledger_url(cls, url: SecretStr) -> SecretStr:
        if url.get_secret_value() and not is_ledger_url(url.get_secret_value()):
            raise ValueError("must begin with sqlite:/// or postgresql://, or be sqlite://")
        return url

    def ledger_setting(self) -> str:
        """The name of the setting that defines the ledger."""
        return "ledger_url" if self.ledger_url.get_secret_value() else "ledger"

    def ledger_address(self) -> str:
        """The ledger's URL, from either setting."""
        file = "sqlite://" if self.ledger == IN_MEMORY else f"sqlite:///{self.ledger}"
        return self.ledger_url.get_secret_value() or file
