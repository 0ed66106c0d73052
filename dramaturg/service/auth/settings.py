"""Settings of authentication."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from dramaturg.service.auth.caller import TENANT_PATTERN
from dramaturg.service.auth.permissions import JUDGES_READ, ROLES, SERVICE
from dramaturg.service.settings import Settings


def _known(role: str) -> str:
    if role not in ROLES:
        raise ValueError(f"{role!r} is none of the roles {', '.join(ROLES)}")
    return role


Role = Annotated[str, AfterValidator(_known)]
"""The name of a role."""


class Grant(BaseModel):
    """The tenant and the roles of a caller."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    tenant: str = Field(default="", pattern=f"^({TENANT_PATTERN})?$")
    """The tenant. Empty for services alone."""
    roles: tuple[Role, ...] = Field(min_length=1)
    """The roles."""

    @model_validator(mode="after")
    def _has_tenant(self) -> Grant:
        if not self.tenant and not self.is_placeless:
            raise ValueError(f"has no tenant; only the role {SERVICE!r} goes without")
        return self

    @property
    def is_placeless(self) -> bool:
        """Whether the tenant is not needed, or comes from elsewhere."""
        return set(self.roles) <= {SERVICE}


class IdentityGrant(Grant):
    """One ``[[auth.identities]]`` table: the tenant and roles of a SPIFFE id, or of the subject of a JWT."""

    pattern: str = Field(min_length=1, max_length=2048, pattern=r"^[^\s]+$")
    """The identity. ``*`` matches one part between slashes (in a JWT's subject: between slashes and
    colons), ``{tenant}`` the part that names the tenant.

    For example: spiffe://example.org/ns/dramaturg/sa/*"""

    @property
    def is_placeless(self) -> bool:
        """Whether the tenant is not needed, or is part of the pattern."""
        return super().is_placeless or "{tenant}" in self.pattern

    @model_validator(mode="after")
    def _one_tenant(self) -> IdentityGrant:
        if self.pattern.count("{tenant}") + bool(self.tenant) > 1:
            raise ValueError("names the tenant more than once")
        return self


class AuthSettings(Settings):
    """Section ``auth``. Without a source of identities, callers are not authenticated."""

    section: ClassVar[str] = "auth"

    tokens_file: Path | None = None
    """Bearer tokens, by their SHA-256 (TOML, or JSON where the name ends in ".json"). Read again when it
    changes."""
    jwks_file: Path | None = None
    """The keys that sign JSON Web Tokens (RFC 7517). Read again when it changes."""
    jwt_issuer: str = ""
    """The required issuer (``iss``) of JWTs. Needed with ``jwks_file``."""
    jwt_audience: str = ""
    """The required audience (``aud``) of JWTs. Needed with ``jwks_file``."""
    jwt_algorithms: tuple[Literal["RS256", "ES256", "EdDSA"], ...] = ("RS256", "ES256", "EdDSA")
    """The signatures that are accepted."""
    jwt_leeway_seconds: float = Field(default=30.0, ge=0, le=300)
    """The tolerated difference of the clocks of issuer and server, in seconds."""
    jwt_principal_claim: str = Field(default="sub", min_length=1)
    """The claim with the principal."""
    jwt_tenant_claim: str = Field(default="tenant", min_length=1)
    """The claim that names the tenant."""
    jwt_roles_claim: str = Field(default="roles", min_length=1)
    """The claim that lists the roles. Unknown ones are ignored. A token without the claim has the roles that
    ``identities`` give to its principal."""
    identities: tuple[IdentityGrant, ...] = ()
    """Tenants and roles of the SPIFFE ids of client certificates, and of JWTs without the claims. The first
    pattern that matches counts."""
    reflection_permission: Literal["judges.read", "open"] = JUDGES_READ
    """The permission that reflection needs."""
    allow_anonymous: bool = False
    """Whether a gateway without a source of identities may listen on another address than loopback. Every
    caller may then call everything."""
    audit: str = ""
    """The destination of the audit log: "stdout", or a file. Empty: none."""

    @model_validator(mode="after")
    def _consistent(self) -> AuthSettings:
        if self.jwks_file is not None and not (self.jwt_issuer and self.jwt_audience):
            raise ValueError("jwks_file needs jwt_issuer and jwt_audience")
        if (self.jwt_issuer or self.jwt_audience) and self.jwks_file is None:
            raise ValueError("jwt_issuer and jwt_audience need jwks_file")
        if not self.jwt_algorithms:
            raise ValueError("jwt_algorithms is empty")
        return self

    @property
    def enabled(self) -> bool:
        """Whether callers are authenticated: a source of identities is configured."""
        return self.tokens_file is not None or self.jwks_file is not None or bool(self.identities)
