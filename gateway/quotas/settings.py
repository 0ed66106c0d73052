"""Settings of quotas."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, field_validator

from dramaturg.service.auth.caller import TENANT_PATTERN
from dramaturg.service.settings import Settings


class Quota(BaseModel):
    """The limits of a tenant. An absent member is unlimited."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    requests_per_minute: int | None = Field(default=None, ge=1)
    """Calls per minute; all of them may come at once. Live gateways have equal parts."""
    max_concurrent_calls: int | None = Field(default=None, ge=1)
    """Calls in progress at once. Live gateways have equal parts, of at least one call."""
    max_active_runs: int | None = Field(default=None, ge=0)
    """Runs that have not ended, paused ones included."""
    tokens_per_day: int | None = Field(default=None, ge=0)
    """Tokens sent to and received from providers per day (UTC)."""
    usd_per_day: float | None = Field(default=None, ge=0)
    """Their cost in US dollars per day, as far as prices are known."""

    dataset_bytes: int | None = Field(default=None, ge=0)
    """The sizes of uploaded datasets together, incomplete uploads included."""

    @property
    def limits_nothing(self) -> bool:
        """Whether no member is set."""
        return all(limit is None for limit in self.__dict__.values())


class QuotaSettings(Settings):
    """Section ``quotas``."""

    section: ClassVar[str] = "quotas"

    default: Quota = Quota()
    """The quota of tenants without their own, and of callers without a tenant."""
    tenants: Mapping[str, Quota] = Field(default_factory=dict)
    """The quotas of tenants, each in place of the whole default."""

    @field_validator("tenants")
    @classmethod
    def _names(cls, tenants: Mapping[str, Quota]) -> Mapping[str, Quota]:
        if wrong := [name for name in tenants if not re.fullmatch(TENANT_PATTERN, name)]:
            raise ValueError(f"{wrong[0]!r} is not a tenant name")
        return tenants

    def of(self, tenant: str) -> Quota:
        return self.tenants.get(tenant, self.default)
