"""The addresses at which judges may be registered at run time.

A registration makes the gateway connect to an address, which may be inside of its network. Addresses are
therefore permitted by patterns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_IPV6 = r"\[[0-9a-f:.]{2,45}\]"
_TARGET = re.compile(rf"(?P<host>{_LABEL}(?:\.{_LABEL}){{0,20}}|{_IPV6}):(?P<port>[1-9]\d{{0,4}})")
_PATTERN = re.compile(rf"(?:(?:\*|{_LABEL})(?:\.(?:\*|{_LABEL})){{0,20}}|{_IPV6}):(?:\*|[1-9]\d{{0,4}})")
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*")


def check_pattern(pattern: str) -> None:
    """Checks a pattern of addresses.

    Raises:
        ValueError: It is none.
    """
    if _PATTERN.fullmatch(pattern) is None:
        raise ValueError(
            f"{pattern!r} is no pattern: use HOST:PORT in lower case, with * for one label of the host or "
            "for the port, for example '*.judges.svc:50051'"
        )


def is_permitted(target: str, patterns: Sequence[str]) -> bool:
    """Whether an address matches a pattern.

    An address is "host:port" in lower case, without a scheme. ``*`` stands for one label of a name, or for
    any port. It stands for no part of an IP address, in any notation: such hosts match only as equal texts.
    """
    parsed = _TARGET.fullmatch(target)
    if parsed is None or int(parsed["port"]) > 65535:
        return False
    host, port = parsed["host"], parsed["port"]
    return any(
        _matches_host(host, pattern.rpartition(":")[0]) and pattern.rpartition(":")[2] in {"*", port}
        for pattern in patterns
    )


def _matches_host(host: str, pattern: str) -> bool:
    if host == pattern:
        return True
    labels, wanted = host.split("."), pattern.split(".")
    # The last label of a name is no number (RFC 3696, section 2): otherwise the host is an IPv4 address.
    if "[" in host or _NUMBER.fullmatch(labels[-1]) or len(labels) != len(wanted):
        return False
    return all(want in {"*", label} for want, label in zip(wanted, labels, strict=True))
