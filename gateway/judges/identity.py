"""The identity of a judge as the gateway fetches it, and whether its version is the expected one.

An expected version is one version ("1.4.2"), or comparisons separated by commas that all hold (">=1.4,<2").
The operators are ``==``, ``!=``, ``>=``, ``>``, ``<=`` and ``<``. Missing parts of a version are 0. A
pre-release is lower than its release (Semantic Versioning 2.0.0, section 11). Build metadata after ``+`` does
not count. Versions that are not semantic, for example a commit, match only as equal texts.
"""

from __future__ import annotations

import asyncio
import operator
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import Any

import grpc

from dramaturg.api.identity.v1.identity_service_pb2 import GetIdentityRequest, GetIdentityResponse, Identity
from dramaturg.api.identity.v1.identity_service_pb2_grpc import IdentityServiceStub

_VERSION = re.compile(
    r"v?(?P<release>\d{1,9}(?:\.\d{1,9}){0,3})(?:-(?P<pre>[0-9A-Za-z.-]{1,60}))?(?:\+[0-9A-Za-z.-]{1,60})?"
)
_COMPARISON = re.compile(r"(?P<operator>==|!=|>=|<=|>|<)?\s*(?P<version>[^\s,<>=!]{1,100})")
_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
    "<": operator.lt,
}

_Key = tuple[tuple[int, ...], tuple[tuple[int, int, str], ...]]


@dataclass(frozen=True)
class VersionRange:
    """A parsed requirement. ``parse`` makes it."""

    comparisons: tuple[tuple[str, str], ...]
    """Operators and versions."""

    @classmethod
    def parse(cls, text: str) -> VersionRange:
        """Parses a requirement.

        Raises:
            ValueError: It is no requirement, or a range has a version that is not semantic.
        """
        comparisons = []
        for part in text.split(","):
            match = _COMPARISON.fullmatch(part.strip())
            if match is None:
                raise ValueError(
                    f"{part.strip()!r} is no version and no comparison like '>=1.4'; a range is "
                    "comparisons separated by commas, for example '>=1.4,<2'"
                )
            sign = match["operator"] or "=="
            if sign not in {"==", "!="} and _key(match["version"]) is None:
                raise ValueError(f"{match['version']!r} is no semantic version, which {sign!r} needs")
            comparisons.append((sign, match["version"]))
        return cls(tuple(comparisons))

    def contains(self, version: str) -> bool:
        """Whether a version meets all comparisons."""
        return all(_holds(sign, version, wanted) for sign, wanted in self.comparisons)


def _holds(sign: str, version: str, wanted: str) -> bool:
    left, right = _key(version), _key(wanted)
    if left is None or right is None:
        return (version == wanted) if sign == "==" else (sign == "!=" and version != wanted)
    return _OPERATORS[sign](left, right)


def _key(version: str) -> _Key | None:
    """A value that orders versions; None for versions that are not semantic."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return None
    release = tuple(int(part) for part in match["release"].split("."))
    release = (*release, *(0 for _ in range(4 - len(release))))
    if match["pre"] is None:
        return release, ((2, 0, ""),)
    # Numbers are lower than texts, and a release is higher than each of its pre-releases.
    return release, tuple(
        (0, int(part), "") if part.isdigit() else (1, 0, part) for part in match["pre"].split(".")
    )


DOUBT_SECONDS = 1.0
"""The least age of an identity that an answer can put in doubt: a judge that misstates its name with each
answer is asked at most this often."""


MAX_CRITERIA = 50
"""The most criteria and capabilities of an identity that count, as in ``JudgeRequest.criteria``."""
MAX_NAME_CHARACTERS = 100
"""The most characters of a criterion or capability. Longer ones do not count."""
MAX_PROMPT_TOKENS = 1_000_000
"""The most tokens of a prompt that an identity states."""
MAX_PROMPT_CHARACTERS = 50_000
"""The most characters of the text of a prompt. Longer ones are left out."""
MAX_TEXT_CHARACTERS = 500
"""The most characters of the other texts of an identity; the rest is cut."""


class JudgeIdentity:
    """Fetches and caches the identity of one judge. Failures are not cached.

    Args:
        channel: The channel to the judge.
        contract: The contract whose identity is fetched.
        ttl: The lifetime of a fetched identity, in seconds.
        timeout: The timeout of a call, in seconds.
    """

    def __init__(
        self, channel: grpc.aio.Channel, contract: str, *, ttl: float = 60.0, timeout: float = 5.0
    ) -> None:
        self._channel = channel
        self._contract = contract
        self._ttl = ttl
        self._timeout = timeout
        self._identity: Identity | None = None
        self._fetched = 0.0
        self.prompt_texts: Mapping[str, str] = {}
        """The texts of the prompts that the judge last stated, by their SHA-256."""
        self._asking: asyncio.Task[Identity | None] | None = None

    @property
    def known(self) -> Identity | None:
        """The cached identity; None without one."""
        return self._identity if time.monotonic() < self._fetched + self._ttl else None

    async def current(self) -> Identity | None:
        """The identity; None where the call fails. Concurrent requests share a call."""
        if (known := self.known) is not None:
            return known
        if self._asking is None:
            self._asking = asyncio.create_task(self._try())
            self._asking.add_done_callback(self._answered)
        # Cancelling one caller must not cancel the shared call.
        return await asyncio.shield(self._asking)

    async def fetch(self) -> Identity | None:
        """Asks the judge, also where its identity is cached. None: its answer does not parse.

        Raises:
            grpc.aio.AioRpcError: The call failed.
        """
        stub = IdentityServiceStub(self._channel)
        request = GetIdentityRequest(contract=self._contract)
        response: GetIdentityResponse | None = await stub.GetIdentity(request, timeout=self._timeout)
        # gRPC returns None where the bytes do not parse as the response.
        if response is None:
            return None
        self._identity, self._fetched = limited(response.identity), time.monotonic()
        self.prompt_texts = stated_texts(response.identity)
        return self._identity

    def doubt(self) -> None:
        """Drops the cached identity, unless it was just fetched: an answer states another one."""
        if time.monotonic() - self._fetched >= DOUBT_SECONDS:
            self._identity = None

    async def _try(self) -> Identity | None:
        try:
            return await self.fetch()
        except grpc.aio.AioRpcError:
            return None

    def _answered(self, _: object) -> None:
        self._asking = None


def stated_texts(identity: Identity) -> Mapping[str, str]:
    """The texts of prompts that an identity states, by their SHA-256, without those that are too long."""
    texts = (identity.prompt_texts[name] for name in _names(identity.prompt_texts))
    encoded = (text.encode() for text in texts if len(text) <= MAX_PROMPT_CHARACTERS)
    return {sha256(text).hexdigest(): text.decode() for text in encoded}


def limited(identity: Identity) -> Identity:
    """An identity within the limits of this module: every result of the judge depends on its length.

    The texts of its prompts are left out (``JudgeIdentity.prompt_texts``).
    """
    kept = Identity(
        name=identity.name[:MAX_TEXT_CHARACTERS],
        version=identity.version[:MAX_TEXT_CHARACTERS],
        contract=identity.contract[:MAX_TEXT_CHARACTERS],
        description=identity.description[:MAX_TEXT_CHARACTERS],
        criteria=_names(identity.criteria),
        capabilities=_names(identity.capabilities),
    )
    for name in _names(identity.limits):
        kept.limits[name] = identity.limits[name]
    for name in _names(identity.prompt_token_counts):
        kept.prompt_token_counts[name] = min(identity.prompt_token_counts[name], MAX_PROMPT_TOKENS)
    for name in _names(identity.prompts):
        kept.prompts[name] = identity.prompts[name][:MAX_NAME_CHARACTERS]
    return kept


def _names(names: Iterable[str]) -> Iterator[str]:
    distinct = dict.fromkeys(name for name in names if 0 < len(name) <= MAX_NAME_CHARACTERS)
    return islice(distinct, MAX_CRITERIA)


def deviation(expected: str, identity: Identity) -> str:
    """How the version of an identity deviates from the expected one, as a predicate. Empty: it does not.

    Args:
        expected: The expected version or range. Empty: any.
        identity: The identity of the judge.
    """
    if not expected or VersionRange.parse(expected).contains(identity.version):
        return ""
    stated = repr(identity.version) if identity.version else "none"
    return f"states the version {stated}; expect_version is {expected!r}"
