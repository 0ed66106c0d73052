"""Checks that a service keeps its contract, in whatever language it is written.

The checks call a running server over gRPC, as csi-sanity and the Connect conformance suite do. On the command
line: ``dramaturg conformance ROLE --target HOST:PORT``; in a test suite, :func:`run` returns one
:class:`Outcome` for each check.

The checks are about the form of answers. Whether verdicts are right is measured by ``dramaturg align``.
"""

from dramaturg.conformance.kit import Check, Outcome, Subject
from dramaturg.conformance.suites import CHECKED_ROLES, checked_role, checks_of, run

__all__ = ["CHECKED_ROLES", "Check", "Outcome", "Subject", "checked_role", "checks_of", "run"]
