"""Names of OpenTelemetry's semantic conventions for generative AI."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

_PROVIDERS: Mapping[str, str] = {
    "api.openai.com": "openai",
    "api.anthropic.com": "anthropic",
    "api.cohere.com": "cohere",
    "api.cohere.ai": "cohere",
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral_ai",
    "api.perplexity.ai": "perplexity",
    "api.x.ai": "x_ai",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "aiplatform.googleapis.com": "gcp.vertex_ai",
    "openai.azure.com": "azure.ai.openai",
    "services.ai.azure.com": "azure.ai.inference",
    "models.ai.azure.com": "azure.ai.inference",
    "ml.cloud.ibm.com": "ibm.watsonx.ai",
}
"""The well-known values of ``gen_ai.provider.name`` by the host, or the domain, of the provider's address."""


def server_attributes(base_url: str) -> Mapping[str, str | int]:
    """The attributes of the address that a provider is called at. An empty address has none."""
    parts = urlsplit(base_url)
    if not parts.hostname:
        return {}
    return {
        "server.address": parts.hostname,
        "server.port": parts.port or {"http": 80}.get(parts.scheme, 443),
    }


def known_as(base_url: str) -> str:
    """The provider's name in the conventions. Empty: they do not know it."""
    host = urlsplit(base_url).hostname or ""
    # A region stands before the name of Vertex AI: "europe-west4-aiplatform.googleapis.com".
    if host.startswith("bedrock-runtime") and host.endswith(".amazonaws.com"):
        return "aws.bedrock"
    host = host if not host.endswith("-aiplatform.googleapis.com") else "aiplatform.googleapis.com"
    return next(
        (name for domain, name in _PROVIDERS.items() if host == domain or host.endswith(f".{domain}")), ""
    )
