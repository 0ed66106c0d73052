"""Excludes judges that break their contract repeatedly, or that drifted."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict, defaultdict
from dataclasses import dataclass

logger = logging.getLogger(__name__)

MAX_CHECK_SECONDS = 3600.0
"""The longest time between two checks of a judge in quarantine."""
_FOR_ALL = 2
"""The tenants whose quarantine is that of all."""


@dataclass(frozen=True)
class QuarantineRules:
    """When a judge is put into quarantine, and how often it is checked there."""

    breaches: int = 10
    """The least number of answers within the window that break the contract. 0: no quarantine."""
    window_seconds: float = 60.0
    check_seconds: float = 30.0
    """The time to the first check; doubled by each check that fails, up to ``MAX_CHECK_SECONDS``."""


@dataclass
class _Second:
    answers: int = 0
    breaches: int = 0


class Quarantine:
    """The state of one judge.

    A judge is put into quarantine for a tenant when at least ``breaches`` of its answers to that tenant
    within the window, and more than half of all, break its contract: texts of a tenant may be what a judge
    fails at. It is in quarantine for all tenants once it is for two, or a check has failed. Calls are then
    refused until a check succeeds, or the judge is changed.

    Args:
        judge: The judge, for the log.
        rules: The rules.
    """

    def __init__(self, judge: str = "", rules: QuarantineRules | None = None) -> None:
        self._judge = judge
        self._rules = rules or QuarantineRules()
        self._seconds: OrderedDict[int, defaultdict[str, _Second]] = OrderedDict()
        self._reasons: dict[str, str] = {}
        """Why it is in quarantine, by tenant."""
        self._for_all = ""
        self._drift = ""
        self._wait = 0.0
        self._check_at = 0.0

    def reason(self, tenant: str) -> str:
        """Why the judge is in quarantine for a tenant. Empty: it is not."""
        return self._reasons.get(tenant, "") or self._for_all or self._drift

    @property
    def is_due(self) -> bool:
        """Whether the judge is in quarantine and to be checked now."""
        return bool(self._reasons) and time.monotonic() >= self._check_at

    def record(self, breach: str, tenant: str) -> None:
        """Records an answer.

        Args:
            breach: The rule of the contract that it breaks, without words of the request or of the answer,
                for the log. Empty: none.
            tenant: The tenant that it was given to.
        """
        if not self._rules.breaches or self.reason(tenant):
            return
        now = time.monotonic()
        second = self._seconds.setdefault(int(now), defaultdict(_Second))[tenant]
        second.answers += 1
        while next(iter(self._seconds)) < now - self._rules.window_seconds:
            self._seconds.popitem(last=False)
        if not breach:
            return
        second.breaches += 1
        mine = [one[tenant] for one in self._seconds.values() if tenant in one]
        answers, breaches = sum(one.answers for one in mine), sum(one.breaches for one in mine)
        if breaches < self._rules.breaches or 2 * breaches <= answers:
            return
        if not self._reasons:
            self._wait = self._rules.check_seconds
            self._check_at = now + self._wait
        reason = f"{breaches} of its last {answers} answers broke the contract, the last one: {breach}"
        self._reasons[tenant] = reason
        if len(self._reasons) == _FOR_ALL:
            self._for_all = "its answers to several tenants broke the contract"
        whose = f" for the tenant {tenant}" if tenant and not self._for_all else ""
        logger.error("the judge %s is in quarantine%s: %s", self._judge, whose, reason)

    def fail_check(self, fault: str) -> None:
        """Records a check that failed: the judge stays in quarantine, for all tenants.

        Args:
            fault: Why, for the log alone: it may have words of the judge.
        """
        self._for_all = "it does not pass the check of its contract"
        self._wait = min(2 * self._wait, MAX_CHECK_SECONDS)
        self._check_at = time.monotonic() + self._wait
        logger.warning("the judge %s stays in quarantine: %s", self._judge, fault)

    def hold(self, drift: str) -> None:
        """Keeps a judge that drifted in quarantine; checks of its contract do not end this.

        Args:
            drift: The reason. Empty: it did not drift.
        """
        if drift and not self._drift:
            logger.error("the judge %s is in quarantine: %s", self._judge, drift)
        elif self._drift and not drift:
            logger.warning("the judge %s is no longer in quarantine for drift", self._judge)
        self._drift = drift

    def release(self) -> None:
        """Ends the quarantine for breaches of the contract."""
        if self._reasons:
            logger.warning("the judge %s is no longer in quarantine", self._judge)
        self._reasons.clear()
        self._for_all = ""
        self._seconds.clear()
