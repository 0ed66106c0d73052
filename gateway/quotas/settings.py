"""What can be configured of quotas."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, field_validator

from dramaturg.service.auth.caller import TENANT_PATTERN
from dramaturg.service.settings import Settings


class Quota(BaseModel):
    """What a tenant may do. A member that is absent is not limited."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    requests_per_minute: int | None = Field(default=None, ge=1)
    """Calls begun in a minute; as many may come at once. Each gateway counts its own."""
    max_concurrent_calls: int | None = Field(default=None, ge=1)
    """Calls under way at once. Each gateway counts its own."""
    max_active_runs: int | None = Field(default=None, ge=0)
    """Runs that have not ended, paused ones included."""
    tokens_per_day: int | None = Field(default=None, ge=0)
    """Tokens sent to and received from providers on a day (UTC)."""
    usd_per_day: float | None = Field(default=None, ge=0)
    """What that costs in US dollars, as far as prices are known."""

    @property
    def limits_nothing(self) -> bool:
        """Whether everything is absent."""
        return all(limit is None for limit in self.__dict__.values())


class QuotaSettings(Settings):
    """Section ``quotas``."""

    section: ClassVar[str] = "quotas"

    default: Quota = Quota()
    """The quota of each tenant that has none of its own, and of callers that are not told apart."""
    tenants: Mapping[str, Quota] = Field(default_factory=dict)
    """Tenants with quotas of their own, which take the place of the default as a whole."""

    @field_validator("tenants")
    @classmethod
    def _names(cls, tenants: Mapping[str, Quota]) -> Mapping[str, Quota]:
        if wrong := [name for name in tenants if not re.fullmatch(TENANT_PATTERN, name)]:
            raise ValueError(f"{wrong[0]!r} is no name of a tenant")
        return tenants

    def of(self, tenant: str) -> Quota:
        """The quota of a tenant."""
        return self.tenants.get(tenant, self.default)
