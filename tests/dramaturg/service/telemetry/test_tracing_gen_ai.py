"""Names of providers in the semantic conventions."""

from __future__ import annotations

import pytest

from dramaturg.service.telemetry.tracing import known_as


@pytest.mark.parametrize(
    ("base_url", "name"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://api.mistral.ai/v1", "mistral_ai"),
        ("https://api.x.ai/v1", "x_ai"),
        ("https://team.openai.azure.com/openai/v1", "azure.ai.openai"),
        ("https://europe-west4-aiplatform.googleapis.com/v1", "gcp.vertex_ai"),
        ("https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1", "aws.bedrock"),
        ("https://s3.amazonaws.com", ""),
        ("https://evil-api.openai.com.example/v1", ""),
        ("https://not-api.openai.com/v1", ""),
        ("http://localhost:8000/v1", ""),
    ],
)
def test_a_provider_has_the_name_of_the_conventions(base_url: str, name: str) -> None:
    assert known_as(base_url) == name
