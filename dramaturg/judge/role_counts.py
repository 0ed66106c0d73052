"""Whether as many roles were generated as were asked for."""

from __future__ import annotations


def role_shortage(found: int, wanted: int) -> str:
    """States that roles are missing, as text. Empty: none is.

    Args:
        found: The number of usable roles.
        wanted: The number asked for.
    """
    return f"{found} of {wanted} roles were generated." if found < wanted else ""
