"""Checks a service of any language against its contract.

The checks call a running server over gRPC, as csi-sanity and the Connect conformance suite do. On the command
line: ``dramaturg conformance ROLE --target HOST:PORT``; in a test suite, :func:`run` returns one
:class:`Outcome` for each check.

The checks are about the form of answers. Whether verdicts are right is measured by ``dramaturg align``.
"""

from dramaturg.conformance.junit import junit_xml
from dramaturg.conformance.kit import Check, Outcome, Subject
from dramaturg.conformance.suites import CHECKED_ROLES, checked_role, checks_of, run

__all__ = ["CHECKED_ROLES", "Check", "Outcome", "Subject", "checked_role", "checks_of", "junit_xml", "run"]
