"""Checks that a service keeps its contract, whoever wrote it and in whatever language.

In the manner of csi-sanity and the Connect conformance suite: the kit talks to a running server over gRPC
and knows nothing else of it. On the command line it is ``dramaturg conformance ROLE --target HOST:PORT``;
in a test suite, :func:`run` gives one :class:`Outcome` a check.

The checks are about form, never about taste: whether a verdict is right is for
``dramaturg align`` and people to say.
"""

from dramaturg.conformance.kit import Check, Outcome, Subject
from dramaturg.conformance.suites import CHECKED_ROLES, checks_of, run

__all__ = ["CHECKED_ROLES", "Check", "Outcome", "Subject", "checks_of", "run"]
