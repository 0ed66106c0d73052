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
# "tracestate Limits": so much is to be passed on, and of what is more the long members go first.
_LONGEST_STATE, _LONG_MEMBER = 512, 128


class TraceContext(NamedTuple):
    """Names a span, and says whether its trace is kept."""

    trace_id: str
    """32 hexadecimal digits."""
    span_id: str
    """16 hexadecimal digits."""
    flags: str
    """Two hexadecimal digits."""
    state: str = ""
    """What vendors carry along. Empty: nothing."""

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
    state = _passed_on(",".join(states)) if states else ""
    return TraceContext(found["trace"], found["span"], found["flags"], state)


def _passed_on(state: str) -> str:
    """What of it goes along with the calls that are made: what fits, and nothing that gRPC refuses."""
    if not (state.isascii() and state.isprintable()):
        return ""
    if len(state) <= _LONGEST_STATE:
        return state
    kept = ",".join(member for member in state.split(",") if len(member) <= _LONG_MEMBER)
    return kept if len(kept) <= _LONGEST_STATE else kept[: _LONGEST_STATE + 1].rpartition(",")[0]
