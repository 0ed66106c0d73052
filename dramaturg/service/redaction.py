"""Removes secrets from texts that callers and logs show."""

from __future__ import annotations

import re
from collections.abc import Iterable

LEAST_SECRET_LENGTH = 8
"""The length of the shortest secret that is removed, in characters. Shorter ones are no secrets but
placeholders, such as "none", and their letters are part of other words."""
REDACTED = "[key]"
"""What stands in place of a secret."""


def secrets_of(values: Iterable[str]) -> list[str]:
    """The values that are removed from texts, the longest first: one may be a part of another."""
    return sorted({value for value in values if len(value) >= LEAST_SECRET_LENGTH}, key=len, reverse=True)


def redact(text: str, secrets: Iterable[str]) -> str:
    """A text without secrets.

    Args:
        text: The text.
        secrets: The secrets, as ``secrets_of`` returns them.
    """
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    return text


_START = r"(?:(?<![\w-])|(?<=\\[rnt]))"
_ESCAPED_END = r"\\{1,4}[rn]"
_SIGNS = ("authorization", "bearer", "cookie", "token", "secret", "password", "key", "eyj", "://")
"""What a text with credentials has in lower case. Most texts have none of it, which is found out in less time
than the patterns take."""
_HEADER = re.compile(
    rf"{_START}((?:proxy-)?authorization|(?:set-)?cookie|api-?key|x-[a-z0-9-]*(?:key|token|secret))"
    r"(?=\W{0,6}[:=,])"
    # To the end of the line, be it escaped, and on a line that continues it.
    rf"(?:(?!{_ESCAPED_END})[^\r\n]|(?:\r?\n|(?:\\{{1,4}}r)?\\{{1,4}}n)[ \t])*",
    re.IGNORECASE,
)
_BEARER = re.compile(rf"{_START}(bearer)(?:{_ESCAPED_END}|[\s:=,'\"-])+[^\s'\",;)\\]{{8,}}", re.IGNORECASE)
_FIELD = re.compile(
    rf"{_START}([\w-]*(?:token|password|secret|api_?key)\\?['\"]?)\s*(?:=|(?<=['\"])\s*:)\s*"
    r"\\?['\"]?[^\s&;,'\")]+",
    re.IGNORECASE,
)
_WEB_TOKEN = re.compile(rf"{_START}eyJ[\w-]{{5,}}\.[\w-]{{5,}}\.[\w-]*")
_PASSWORD = re.compile(r"(?<=://)[^\s/@:]{0,200}:[^\s/@]+(?=@)")


def without_credentials(text: str) -> str:
    """A text without what looks like credentials of any caller or service.

    Removed are the values of the headers and metadata that carry credentials, bearer tokens, JSON Web Tokens,
    fields such as ``token=...`` and ``"password": "..."``, and passwords in addresses. A secret without such
    a form is not recognized: what is known to be one is removed by ``redact``.

    Args:
        text: The text. Lines may be escaped, as ``repr`` writes them.
    """
    lower = text.lower()
    for sign in _SIGNS:
        if sign in lower:
            break
    else:
        return text
    text = _HEADER.sub(rf"\1: {REDACTED}", text)
    text = _FIELD.sub(rf"\1={REDACTED}", text)
    text = _BEARER.sub(rf"\1 {REDACTED}", text)
    text = _WEB_TOKEN.sub(REDACTED, text)
    return _PASSWORD.sub(REDACTED, text)
