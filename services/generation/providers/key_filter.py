"""Removes the keys of a provider from what it answers: an endpoint may echo the headers of a request."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from dramaturg.service.redaction import REDACTED, redact, secrets_of
from services.generation.calls import Answer

_REDACTED = REDACTED.encode()


class KeyFilter:
    """Replaces keys by ``[key]``: as they are, in base64, URL-encoded, and with the escapes of JSON.

    A response is filtered before anything of it is read or cut. What is put together from its parts later,
    the text of a streamed answer and the tokens of an answer, is filtered again.

    Args:
        keys: The keys. Those of fewer than ``LEAST_SECRET_LENGTH`` characters are left.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._add(keys)

    def add(self, key: str) -> None:
        """Replaces another key as well: responses to requests with an earlier one may still come."""
        if key not in self.keys:
            self._add([*self.keys, key])

    def _add(self, keys: Iterable[str]) -> None:
        self.keys = secrets_of(keys)
        self._forms = secrets_of({form for key in self.keys for form in _forms(key)})
        self._encoded = [form.encode() for form in self._forms]

    def content(self, content: bytes) -> bytes:
        """The body of a response without keys."""
        for form in self._encoded:
            if form in content:
                content = content.replace(form, _REDACTED)
        return content

    def text(self, text: str) -> str:
        """A text without keys."""
        return redact(text, self._forms)

    def clean(self, answer: Answer) -> None:
        """Removes the keys from an answer. Log-probabilities of tokens that spell a key are left out."""
        answer.text = self.text(answer.text)
        answer.model = self.text(answer.model)
        if answer.refusal:
            answer.refusal = self.text(answer.refusal)
        if answer.reasoning:
            answer.reasoning = self.text(answer.reasoning)
        if answer.detail:
            answer.detail = self.text(answer.detail)
        if answer.notes:
            answer.notes = tuple(map(self.text, answer.notes))
        if answer.tokens:
            spelt = "".join([token.text for token in answer.tokens])
            if self.text(spelt) != spelt:
                answer.tokens = ()
                answer.notes = (*answer.notes, "log-probabilities left out: the tokens spell a key")


def _forms(key: str) -> Iterator[str]:
    for form in (key, *_base64(key.encode())):
        yield form
        quoted = quote(form, safe="")
        yield quoted
        yield quote(form, safe="").replace("%2B", "%2b").replace("%2F", "%2f").replace("%3D", "%3d")
        # Serializers of JSON escape these two, some of them.
        yield form.replace("/", "\\/")
        yield form.replace("+", "\\u002B")
        yield form.replace("+", "\\u002b")


def _base64(key: bytes) -> Iterator[str]:
    """The parts of a base64 text that show a key, wherever it begins in the text that is encoded."""
    for before in range(3):
        bits = 8 * (before + len(key))
        # A character of six bits that the key shares with its neighbours depends on them.
        part = b64encode(bytes(before) + key).decode()[-(-8 * before // 6) : bits // 6]
        yield part
        yield part.replace("+", "-").replace("/", "_")
