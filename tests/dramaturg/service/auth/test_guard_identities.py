from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from dramaturg.service.auth.guard import Identities, UnauthenticatedError
from dramaturg.service.auth.settings import AuthSettings, IdentityGrant

SERVICES = IdentityGrant(pattern="spiffe://example.org/ns/dramaturg/sa/*", roles=("service",))
TENANTS = IdentityGrant(pattern="spiffe://example.org/tenant/{tenant}/*", roles=("evaluator",))


def test_the_first_pattern_that_matches_counts() -> None:
    first = IdentityGrant(pattern="spiffe://example.org/ns/dramaturg/sa/web", tenant="web", roles=("viewer",))
    known = Identities([first, SERVICES, TENANTS])
    assert known.find("spiffe://example.org/ns/dramaturg/sa/web").tenant == "web"
    gateway = known.find("spiffe://example.org/ns/dramaturg/sa/gateway")
    assert (gateway.principal, gateway.tenant, set(gateway.roles)) == (
        "spiffe://example.org/ns/dramaturg/sa/gateway",
        "",
        {"service"},
    )
    assert known.find("spiffe://example.org/tenant/team-a/ci").tenant == "team-a"


@pytest.mark.parametrize(
    "identity",
    [
        "spiffe://example.org/ns/dramaturg/sa/",
        "spiffe://example.org/ns/dramaturg/sa/gateway/extra",
        "spiffe://evil.org/spiffe://example.org/ns/dramaturg/sa/gateway",
        "spiffe://exampleXorg/ns/dramaturg/sa/gateway",
        "spiffe://example.org/tenant//ci",
        "spiffe://example.org/tenant/Team-A/ci",
        "spiffe://example.org/tenant/team-a",
        "",
    ],
)
def test_a_pattern_matches_as_a_whole_and_part_by_part(identity: str) -> None:
    with pytest.raises(UnauthenticatedError):
        Identities([SERVICES, TENANTS]).find(identity)


@given(st.text(max_size=60))
def test_a_part_in_a_pattern_that_is_no_hole_stands_for_itself(text: str) -> None:
    literal = "".join(character for character in text if character not in "*{}" and not character.isspace())
    grant = IdentityGrant(pattern=f"id:{literal}", tenant="t", roles=("viewer",))
    assert Identities([grant]).find(f"id:{literal}").tenant == "t"
    with pytest.raises(UnauthenticatedError):
        Identities([grant]).find(f"id:{literal}x")


@pytest.mark.parametrize(
    "entry",
    [
        {"pattern": "spiffe://example.org/*", "roles": ["evaluator"]},
        {"pattern": "spiffe://example.org/{tenant}/{tenant}", "roles": ["evaluator"]},
        {"pattern": "spiffe://example.org/{tenant}", "tenant": "a", "roles": ["evaluator"]},
        {"pattern": "spiffe://example.org/a", "tenant": "a", "roles": ["root"]},
        {"pattern": "", "tenant": "a", "roles": ["viewer"]},
    ],
)
def test_a_grant_names_one_tenant_and_known_roles(entry: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        AuthSettings.model_validate({"identities": [entry]})


@pytest.mark.parametrize(
    "settings",
    [
        {"jwks_file": "keys.json"},
        {"jwks_file": "keys.json", "jwt_issuer": "a"},
        {"jwt_issuer": "a", "jwt_audience": "b"},
        {"jwks_file": "keys.json", "jwt_issuer": "a", "jwt_audience": "b", "jwt_algorithms": ["HS256"]},
        {"jwks_file": "keys.json", "jwt_issuer": "a", "jwt_audience": "b", "jwt_algorithms": []},
        {"reflection_permission": "serve"},
    ],
)
def test_settings_that_would_not_hold_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        AuthSettings(**settings)


def test_callers_are_authenticated_as_soon_as_a_source_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not AuthSettings().enabled
    monkeypatch.setenv(
        "DRAMATURG_AUTH_IDENTITIES", '[{"pattern": "spiffe://example.org/*", "roles": ["service"]}]'
    )
    assert AuthSettings().enabled
    monkeypatch.setenv("DRAMATURG_AUTH_TOKENS_FILE", "/nowhere")
    assert str(AuthSettings().tokens_file) == "/nowhere"
