"""Checks a service of any language against its contract.

The checks call a running server over gRPC, as csi-sanity and the Connect conformance suite do. On the command
line: ``dramaturg judges check ROLE HOST:PORT``, or in place of the address the command that starts the
server; in a test suite, :func:`run` returns one :class:`Outcome` for each check.

The checks are about the form of answers. :func:`certify` tests which of a judge's properties hold within a
tolerance, for example how many planted faults it misses.
"""

from dramaturg.conformance.certificate import (
    MAY_REPLACE,
    NOT_APPLICABLE,
    SELF_PREFERENCE,
    TOLERANCES,
    Certificate,
    Property,
    certify,
    changes_since,
    self_preference,
)
from dramaturg.conformance.junit import junit_xml
from dramaturg.conformance.kit import BURST, Check, Outcome, Subject
from dramaturg.conformance.processes import StartError
from dramaturg.conformance.suites import CHECKED_ROLES, GENERATION, JUDGE, checked_role, checks_of, run
from dramaturg.results.equivalence import NOT_SHOWN, OUTSIDE, WITHIN

__all__ = [
    "BURST",
    "CHECKED_ROLES",
    "GENERATION",
    "JUDGE",
    "MAY_REPLACE",
    "NOT_APPLICABLE",
    "NOT_SHOWN",
    "OUTSIDE",
    "SELF_PREFERENCE",
    "TOLERANCES",
    "WITHIN",
    "Certificate",
    "Check",
    "Outcome",
    "Property",
    "StartError",
    "Subject",
    "certify",
    "changes_since",
    "checked_role",
    "checks_of",
    "junit_xml",
    "run",
    "self_preference",
]
