"""What names a span from hop to hop: W3C Trace Context, level 1 (https://www.w3.org/TR/trace-context-1/)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

_PARENT, _STATE = "traceparent", "tracestate"
# Section 3.2.2. Later versions may have more fields, which are passed over.
_HEADER = re.compile(
    r"(?P<version>(?!ff)[0-9a-f]{2})"
    r"-(?P<trace>(?!0{32})[0-9a-f]{32})"
    r"-(?P<span>(?!0{16})[0-9a-f]{16})"
    r"-(?P<flags>[0-9a-f]{2})"
    r"(?P<more>-.*)?"
)
_SAMPLED = 0x01


class TraceContext(NamedTuple):
    """Names a span, and says whether its trace is kept."""

    trace_id: str
    """32 hexadecimal digits."""
    span_id: str
    """16 hexadecimal digits."""
    flags: str
    """Two hexadecimal digits."""
    state: str = ""
    """What vendors carry along, as it came. Empty: nothing."""

    @property
    def sampled(self) -> bool:
        """Whether the spans of the trace are recorded."""
        return bool(int(self.flags, 16) & _SAMPLED)

    def headers(self) -> Mapping[str, str]:
        """The metadata that carries it."""
        parent = f"00-{self.trace_id}-{self.span_id}-{self.flags}"
        return {_PARENT: parent, _STATE: self.state} if self.state else {_PARENT: parent}


def read(metadata: Iterable[tuple[str, Any]]) -> TraceContext | None:
    """What the metadata of a call says of its caller's span; None where that is nothing, or no such thing."""
    parent, states = None, []
    for key, value in metadata:
        if key == _PARENT:
            parent = value
        elif key == _STATE and isinstance(value, str):
            states.append(value)
    found = _HEADER.fullmatch(parent.strip(" \t")) if isinstance(parent, str) else None
    if found is None or (found["version"] == "00" and found["more"]):
        return None
    return TraceContext(found["trace"], found["span"], found["flags"], ",".join(states))
