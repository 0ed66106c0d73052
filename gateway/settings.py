"""What can be configured of the gateway."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field, field_validator

from dramaturg.judge.roles import ROLES
from dramaturg.service.settings import Settings


class JudgeEntry(BaseModel):
    """One ``[[gateway.judges]]`` table: a judge under a name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: str
    """The role it serves, such as "critic"."""
    name: str = Field(min_length=1, max_length=100)
    """The name it is registered under, unique within its role."""
    target: str = Field(min_length=1)
    """Where it is reached, such as "critic.dramaturg.svc:50051"."""
    default: bool = False
    """Whether it serves the role where a request names no judge. A role's only judge always does."""

    @field_validator("role")
    @classmethod
    def _known(cls, role: str) -> str:
        if role not in ROLES:
            raise ValueError(f"is none of the roles {', '.join(ROLES)}")
        return role


class GatewaySettings(Settings):
    """Section ``gateway``."""

    section: ClassVar[str] = "gateway"

    judges: tuple[JudgeEntry, ...] = ()
    """The registered judges. A panel's judges may stand at one target or at many."""
    judge_timeout_seconds: float = Field(default=300, gt=0)
    """The longest wait for one judge's answer on one candidate. The call's own deadline may cut it."""
    gold_answer_timeout_seconds: float = Field(default=300, gt=0)
    """The longest wait for the gold answer. Never more than half of the time left, so that the judges
    that compare with it keep the other half."""
    deadline_reserve_seconds: float = Field(default=0.5, ge=0)
    """The time before the call's deadline that is kept to send the result."""
    calls_per_judge: int = Field(default=64, ge=1)
    """How many calls one judge gets at once, of all evaluations together; further ones wait their turn, and
    tenants take turns."""
    identity_ttl_seconds: float = Field(default=60, ge=0)
    """For how long a judge's identity is believed before it is asked again."""
    identity_timeout_seconds: float = Field(default=5, gt=0)
    """The longest wait for a judge's identity or health."""

    @field_validator("judges")
    @classmethod
    def _unambiguous(cls, judges: tuple[JudgeEntry, ...]) -> tuple[JudgeEntry, ...]:
        names = Counter((judge.role, judge.name) for judge in judges)
        defaults = Counter(judge.role for judge in judges if judge.default)
        if repeated := [f"{role}={name}" for (role, name), count in names.items() if count > 1]:
            raise ValueError(f"registers a judge more than once: {', '.join(repeated)}")
        if several := [role for role, count in defaults.items() if count > 1]:
            raise ValueError(f"has more than one default for a role: {', '.join(several)}")
        return judges
