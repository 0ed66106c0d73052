"""The token of the calls that a service makes."""

from __future__ import annotations

from pathlib import Path

from dramaturg.service.files import ReloadingFile, read
from dramaturg.service.settings import ChannelSettings, SettingsError

AUTHORIZATION_METADATA = "authorization"
"""The metadata key of the bearer token (RFC 6750, section 2.1)."""
MAX_TOKEN_CHARACTERS = 7_000
"""The longest token of a call. Servers refuse metadata above 8 KiB."""


def token_value(target: str, settings: ChannelSettings) -> ReloadingFile[str] | None:
    """The value of ``token_header`` in calls to a target; ``None`` where the settings name no token.

    Raises:
        SettingsError: The token cannot be read, or would pass a network in plain text.
    """
    file = settings.token_file
    if file is None:
        return None
    if not settings.encrypted and not settings.token_over_plain_text and not is_loopback(target):
        raise SettingsError(
            f"the token of {ChannelSettings.variable('token_file')} would pass the network in plain text to "
            f"{target}: encrypt the connection, or set {ChannelSettings.variable('token_over_plain_text')}"
        )
    scheme = "Bearer " if settings.token_header == AUTHORIZATION_METADATA else ""
    return ReloadingFile([file], lambda: scheme + _token(file))


def is_loopback(target: str) -> bool:
    """Whether a target is on this machine, so that no data passes a network."""
    address = target.removeprefix("dns:///").removeprefix("ipv4:").removeprefix("ipv6:")
    if target.startswith("unix:"):
        return True
    return all(
        one.rpartition(":")[0].strip("[]") in {"localhost", "127.0.0.1", "::1"} for one in address.split(",")
    )


def _token(file: Path) -> str:
    token = read(file).decode("ascii", errors="replace").strip()
    if not token or not token.isprintable() or " " in token or not token.isascii():
        raise SettingsError(f"{file} holds no token: one line of ASCII characters without blanks")
    if len(token) > MAX_TOKEN_CHARACTERS:
        raise SettingsError(f"{file} holds more than {MAX_TOKEN_CHARACTERS} characters, the longest token")
    return token
