"""What an endpoint says when it does not answer, in the forms that the common servers give it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.generation.errors import FailureKind
from services.generation.providers.retry_after import retry_after
from services.generation.providers.transport import Response

_BAD_REQUEST = 400
_TRANSIENT_STATUSES = frozenset({408, 409, 425})
_GATEWAY_STATUSES = frozenset(
    {408, 502, 504, 524}
)  # something in between gave up; the model may have gone on
_RATE_LIMIT_STATUSES = frozenset({429, 529})
_OUT_OF_CREDIT = "insufficient_quota"
_FILTERED = "content_filter"
_FORM_WORDS = ("response_format", "json_schema", "json_object", "structured output")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A response that is no answer."""

    status: int
    """The HTTP status."""
    code: str
    """The endpoint's own name for what is wrong. Empty: it gives none."""
    param: str
    """The member of the request that is at fault. Empty: it names none."""
    said: str
    """Its own words."""
    retry_after: float | None
    """How many seconds it asks to wait, if it says."""

    @classmethod
    def read(cls, response: Response) -> Refusal:
        """Reads a response, whatever it holds."""
        body = _error(response.content)
        said = body.get("message") or body.get("detail") or response.content.decode(errors="replace")
        return cls(
            response.status,
            str(body.get("code") or ""),
            str(body.get("param") or ""),
            str(said or "nothing said"),
            retry_after(response.headers),
        )

    @property
    def kind(self) -> FailureKind:
        """What it means for the next attempt."""
        if self.status in _RATE_LIMIT_STATUSES and self.code != _OUT_OF_CREDIT:
            return FailureKind.RATE_LIMITED
        if self.status in _TRANSIENT_STATUSES or self.status >= 500:
            return FailureKind.TRANSIENT
        if self.status in {401, 403}:
            return FailureKind.UNAUTHENTICATED
        if self.status == 404 and self.code == "model_not_found":
            return FailureKind.MODEL_UNKNOWN
        return FailureKind.REJECTED

    @property
    def settled(self) -> bool:
        """Whether it is certain that nothing is charged."""
        return self.status not in _GATEWAY_STATUSES

    @property
    def filtered(self) -> bool:
        """Whether the endpoint's filter refused the request, as a model would."""
        return self.status == _BAD_REQUEST and self.code == _FILTERED

    @property
    def blames_form(self) -> bool:
        """Whether the endpoint cannot enforce the form that was asked for."""
        said = f"{self.param} {self.said}".lower()
        return self.status == _BAD_REQUEST and any(word in said for word in _FORM_WORDS)


def _error(content: bytes) -> Mapping[str, Any]:
    """The members that say what is wrong: those of ``error``, where the common servers put them, or all."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    inner = body.get("error", body) if isinstance(body, dict) else body
    return inner if isinstance(inner, dict) else {}
