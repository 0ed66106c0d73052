"""What of a call an endpoint takes, and how a request is reduced to it, one parameter at a time."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal

from services.generation.calls import Call, FailureKind, Role
from services.generation.providers.refusals import Refusal

TokenParameter = Literal["max_tokens", "max_completion_tokens"]
"""The names of the cap on an answer's tokens."""

_OTHER_TOKEN_PARAMETER: Mapping[str, TokenParameter] = {
    "max_tokens": "max_completion_tokens",
    "max_completion_tokens": "max_tokens",
}


class Parameter(StrEnum):
    """A parameter or feature that an endpoint may refuse, by the name that settings and provenance use."""

    TEMPERATURE = "temperature"
    TOP_P = "top_p"
    SEED = "seed"
    STOP = "stop"
    MAX_OUTPUT_TOKENS = "max_output_tokens"
    REASONING_EFFORT = "reasoning_effort"
    LOGPROBS = "logprobs"
    TOP_LOGPROBS = "top_logprobs"
    JSON_SCHEMA = "json_schema"
    """A JSON Schema that the endpoint enforces; ``json_object`` takes its place."""
    JSON_SCHEMA_LENGTHS = "json_schema_lengths"
    """The bounds of texts in a schema; the rest of the schema is sent without them."""
    JSON_SCHEMA_RANGES = "json_schema_ranges"
    """The bounds of numbers and lists in a schema; the rest of the schema is sent without them."""
    JSON_OBJECT = "json_object"
    """JSON of any form that the endpoint enforces; the schema in the instructions takes its place."""
    SYSTEM_ROLE = "system_role"
    """Instructions as a message of their own; without it they begin the user's message."""
    STREAM_OPTIONS = "stream_options"
    """The token counts of a streamed answer."""
    PROMPT_CACHE = "prompt_cache"
    """The mark after the instructions, for APIs that cache prompts at marks alone."""


SCHEMA_BOUNDS: Mapping[Parameter, frozenset[str]] = {
    Parameter.JSON_SCHEMA_LENGTHS: frozenset({"minLength", "maxLength"}),
    Parameter.JSON_SCHEMA_RANGES: frozenset(
        {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems"}
    ),
}
"""The keywords of JSON Schema that an endpoint may refuse while it enforces the rest of a schema."""
_UNSEEN = frozenset({Parameter.STREAM_OPTIONS, Parameter.PROMPT_CACHE, *SCHEMA_BOUNDS})
"""What is left out without an effect on which answers are accepted."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How calls are put to one model of one endpoint."""

    omit: frozenset[Parameter] = frozenset()
    """What is not sent."""
    token_parameter: TokenParameter = "max_tokens"  # noqa: S105 - a field's name
    token_parameters_refused: frozenset[str] = frozenset()
    default_output_tokens: int | None = None
    """The cap where a call sets none."""
    most_output_tokens: int | None = None
    """The highest cap that is sent."""
    most_top_logprobs: int | None = None
    """The most alternatives that are requested at each token."""
    stream: bool = False
    marks_prompt: bool = False
    """Whether the API caches prompts at marks alone."""
    reasoning_effort: str = ""
    """The reasoning effort where a call sets none."""
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    """Members of every body. None takes a member out."""

    def without(self, names: Collection[str]) -> Dialect:
        """The same, without the parameters of these names."""
        return replace(self, omit=self.omit.union(map(Parameter, names))) if names else self

    def output_tokens(self, call: Call) -> int | None:
        """The cap that is sent. None: none."""
        if Parameter.MAX_OUTPUT_TOKENS in self.omit:
            return None
        cap = call.sampling.max_output_tokens or self.default_output_tokens
        if cap is None or self.most_output_tokens is None:
            return cap
        return min(cap, self.most_output_tokens)

    def schema(self, call: Call) -> str:
        """The schema of a call with a form, without the keywords that are not sent; compact JSON."""
        assert call.json_form is not None
        refused = [SCHEMA_BOUNDS[parameter] for parameter in SCHEMA_BOUNDS if parameter in self.omit]
        return call.json_form.text_without(frozenset().union(*refused))

    def sends(self, call: Call) -> list[Parameter]:
        """What of ``call`` is sent, in the order of ``Parameter``."""
        return [parameter for parameter in requested(call, self) if parameter not in self.omit]

    def omitted(self, call: Call) -> tuple[str, ...]:
        """What ``call`` asks for and is not sent, by name, ascending."""
        if not self.omit:
            return ()
        omitted = {parameter for parameter in requested(call, self) if parameter in self.omit}
        omitted -= _UNSEEN
        if Parameter.JSON_SCHEMA not in omitted:
            omitted.discard(Parameter.JSON_OBJECT)
        return tuple(sorted(omitted)) if omitted else ()


def requested(call: Call, dialect: Dialect) -> Sequence[Parameter]:
    """What ``call`` asks for, with the defaults of ``dialect``, in the order of ``Parameter``."""
    sampling, asked = call.sampling, list[Parameter]()
    if sampling.temperature is not None:
        asked.append(Parameter.TEMPERATURE)
    if sampling.top_p is not None:
        asked.append(Parameter.TOP_P)
    if sampling.seed is not None:
        asked.append(Parameter.SEED)
    if sampling.stop:
        asked.append(Parameter.STOP)
    if sampling.max_output_tokens is not None or dialect.default_output_tokens is not None:
        asked.append(Parameter.MAX_OUTPUT_TOKENS)
    if sampling.reasoning_effort or dialect.reasoning_effort:
        asked.append(Parameter.REASONING_EFFORT)
    if call.logprobs:
        asked.append(Parameter.LOGPROBS)
        if call.top_logprobs:
            asked.append(Parameter.TOP_LOGPROBS)
    if call.json_form is not None:
        asked.append(Parameter.JSON_SCHEMA)
        if Parameter.JSON_SCHEMA not in dialect.omit:
            asked += [one for one in SCHEMA_BOUNDS if SCHEMA_BOUNDS[one] & call.json_form.keywords]
        asked.append(Parameter.JSON_OBJECT)
    if any(message.role is Role.SYSTEM for message in call.messages):
        asked.append(Parameter.SYSTEM_ROLE)
    if dialect.stream:
        asked.append(Parameter.STREAM_OPTIONS)
    if dialect.marks_prompt:
        asked.append(Parameter.PROMPT_CACHE)
    return asked


_FORMS = (Parameter.JSON_SCHEMA, Parameter.JSON_OBJECT)
FORM_PARAMETERS = frozenset((*_FORMS, *SCHEMA_BOUNDS))
"""What may be refused for one schema and taken for another."""


@dataclass(frozen=True, slots=True)
class StepDown:
    """A request reduced by what an endpoint refused."""

    dialect: Dialect
    parameter: Parameter | Literal["stream"]
    lasting: bool = True
    """Whether it holds for later calls, too."""


def step_down(dialect: Dialect, call: Call, refusal: Refusal) -> StepDown | None:
    """Reduces the request by the one parameter that ``refusal`` names. None: it names none that is sent."""
    if refusal.kind is FailureKind.CONTEXT_LENGTH:
        return _fit_context(dialect, call, refusal)
    if not refusal.may_name_parameter:
        return None
    if not dialect.stream and _STREAM_ONLY.search(refusal.said):
        return StepDown(replace(dialect, stream=True), "stream")
    sent = dialect.sends(call)
    parameter = refused_parameter(refusal, sent)
    if parameter is Parameter.MAX_OUTPUT_TOKENS:
        return StepDown(_fewer_tokens(dialect, call, refusal), parameter)
    if parameter is Parameter.TOP_LOGPROBS:
        return StepDown(_fewer_alternatives(dialect, call, refusal), parameter)
    if parameter is None:
        return None
    # A form that was refused once for what the model wrote is taken the next time.
    lasting = not _FAILED_GENERATION.search(f"{refusal.code} {refusal.said}")
    return StepDown(replace(dialect, omit=dialect.omit | {parameter}), parameter, lasting)


_NAMES: Mapping[Parameter, str] = {
    Parameter.TEMPERATURE: r"temperature",
    Parameter.TOP_P: r"top[_-]?p",
    Parameter.SEED: r"(?:random_)?seed",
    Parameter.STOP: r"stop(?:[_ -]?(?:sequences?|words?|strings?))?",
    Parameter.MAX_OUTPUT_TOKENS: (
        r"max(?:imum)?[_-]?(?:(?:completion|output|new)[_-]?)?tokens?(?:[_-]?to[_-]?sample)?"
    ),
    Parameter.REASONING_EFFORT: (
        r"(?:output_?config\.)?effort|reasoning[_. -]?effort|reasoning|thinking(?:[_. -]?\w+)?"
    ),
    Parameter.TOP_LOGPROBS: r"top[_-]?log[_ ]?probs|top[_ ]log[_ ]?probabilities",
    Parameter.LOGPROBS: r"(?:response[_-]?)?log[_ ]?probs|log[_ -]probabilities",
    Parameter.JSON_SCHEMA: (
        r"response[_ ]?(?:json[_ ]?)?(?:format|schema)(?:[_. ]?(?:type|json_schema))?|json[_ ]?schema"
        r"|text[_.]format(?:\.\w+)*"
        r"|structured[_ ]outputs?"
        r"|guided[_ ](?:json|decoding|grammar)|xgrammar|outlines|grammar|schema"
        r"|output_?config(?:\.(?:text_?)?format(?:\.\w+)*)?"
    ),
    Parameter.JSON_OBJECT: (
        r"response[_ ]?(?:format|mime_?type)(?:[_. ]?type)?|json[_ ]?object|json[_ ]mode|grammar|outlines"
        r"|structured[_ ]outputs?|text[_.]format(?:\.\w+)*|tool[_ ]?(?:choice|config|use)"
    ),
    Parameter.SYSTEM_ROLE: (
        r"system(?:[_ ](?:role|messages?|prompts?|instructions?))?|developer instructions?"
        r"|messages\W+\d+\W+role"
        r"|roles? must alternate|only user and assistant roles|roles"
    ),
    Parameter.STREAM_OPTIONS: r"stream[_-]?options|include_usage",
    Parameter.PROMPT_CACHE: r"cache[_ -]?(?:point|control)s?|prompt[_ -]?cach(?:e|ing)",
}
_PATTERNS = {
    parameter: re.compile(rf"(?<![a-z0-9_])(?:{names})(?![a-z0-9_])", re.IGNORECASE)
    for parameter, names in _NAMES.items()
}
_REFUSES = re.compile(
    r"support|unknown|unrecogni[sz]ed|unexpected|not (?:permitted|allowed|enabled|available|valid|implemented"
    r"|accepted|compatible|applicable)|extra(?:neous|_forbidden)?\b|deprecated|invalid|cannot|can'?t\b|must "
    r"|should be|forbidden|no longer|incompatible|conflict|does ?n[o']t (?:accept|allow|take)|reject|failed"
    r"|requires|required|too (?:large|long|many|high|big|small|low)|exceed|at most|less than|greater than"
    r"|out of range|in range|not in range|between|remove |cannot find field|is not |restricted|only |>|<"
    r"|error|maximum|strictly",
    re.IGNORECASE,
)
_TOO_MUCH = r"features? not supported|(?:parse|compile|invalid|build) (?:the )?grammar|repetition"
"""A part of a schema is refused, and not said which."""
_KEYWORDS = {
    Parameter.JSON_SCHEMA_LENGTHS: re.compile(
        rf"(?<![A-Za-z])(?:min|max)Length(?![A-Za-z])|(?i:{_TOO_MUCH})"
    ),
    Parameter.JSON_SCHEMA_RANGES: re.compile(
        r"(?<![A-Za-z])(?:(?:min|max)Items|exclusiveM(?:in|ax)imum|multipleOf)(?![A-Za-z])"
        rf"|['\"`]m(?:in|ax)imum['\"`]|propert(?:y|ies):? [^.]*\bm(?:in|ax)imum\b|(?i:{_TOO_MUCH})"
    ),
}
_EITHER = re.compile(
    r"temperature\W+(?:and|or)\W+top_?p|top_?p\W+(?:and|or)\W+temperature|only one", re.IGNORECASE
)
_STREAM_ONLY = re.compile(
    r"only support(?:s|ed)? stream|stream(?:ing)?(?: mode)? (?:is )?required|must be (?:set to )?stream"
    r"|enable the stream|non-?stream(?:ing)?(?: \w+)* (?:is |are )?not supported"
    r"|`?stream`? must be (?:set to )?true|set stream ?[=:to]* ?true",
    re.IGNORECASE,
)
_FAILED_GENERATION = re.compile(r"json_validate_failed|failed to (?:generate|validate) json", re.IGNORECASE)
_UNNAMED = re.compile(
    r"no endpoints found that (?:can handle|support) the requested param"
    r"|unsupported parameters? in (?:the )?request\b",
    re.IGNORECASE,
)
_UNNAMED_ORDER = (
    Parameter.JSON_SCHEMA,
    Parameter.LOGPROBS,
    Parameter.REASONING_EFFORT,
    Parameter.SEED,
    Parameter.JSON_OBJECT,
    Parameter.TOP_P,
    Parameter.STOP,
    Parameter.TEMPERATURE,
    Parameter.MAX_OUTPUT_TOKENS,
)


def refused_parameter(refusal: Refusal, sent: Collection[Parameter]) -> Parameter | None:
    """The parameter of those ``sent`` that ``refusal`` names. None: none."""
    if not sent:
        return None
    if Parameter.TOP_P in sent and Parameter.TEMPERATURE in sent and _EITHER.search(refusal.said):
        return Parameter.TOP_P
    if _FAILED_GENERATION.search(f"{refusal.code} {refusal.said}"):
        return next((parameter for parameter in _FORMS if parameter in sent), None)
    for parameter, keyword in _KEYWORDS.items():
        if parameter in sent and keyword.search(refusal.said):
            return parameter
    for name in refusal.params:
        found = _earliest(name, sent)
        if found is not None:
            return found
    if not _REFUSES.search(f"{refusal.code} {refusal.said}"):
        return None
    found = _earliest(f"{refusal.said} {refusal.code}", sent)
    if found is None and _UNNAMED.search(refusal.said):
        return next((parameter for parameter in _UNNAMED_ORDER if parameter in sent), None)
    return found


def _earliest(text: str, sent: Collection[Parameter]) -> Parameter | None:
    """The parameter that ``text`` names first; of two at one place, the one that comes first in a request."""
    places = [
        (found.start(), -(found.end()), rank, parameter)
        for rank, parameter in enumerate(_NAMES)
        if parameter in sent and (found := _PATTERNS[parameter].search(text)) is not None
    ]
    return min(places)[3] if places else None


_NUMBER = re.compile(r"(?<![\w.-])\d{1,3}(?:,\d{3})+(?![\w.-])|(?<![\w.])\d+(?![\w-])(?!\.\d)")
_BOUND = re.compile(
    r"at most|maximum|max(?:imum)? allowed|less than|<=|>|exceed|too (?:large|high|big)|range|between|up to"
    r"|limit|within|cannot be greater|not be greater|smaller",
    re.IGNORECASE,
)
_LEAST_CAP = 16


def _fewer_tokens(dialect: Dialect, call: Call, refusal: Refusal) -> Dialect:
    """The cap lowered to the limit that is stated, else under its other name, else left out."""
    asked = dialect.output_tokens(call) or 0
    limit = _limit_below(asked, refusal.said, _LEAST_CAP)
    if limit is not None:
        return replace(dialect, most_output_tokens=limit)
    refused = dialect.token_parameters_refused | {dialect.token_parameter}
    other = _OTHER_TOKEN_PARAMETER[dialect.token_parameter]
    if other in refused:
        return replace(dialect, omit=dialect.omit | {Parameter.MAX_OUTPUT_TOKENS})
    return replace(dialect, token_parameter=other, token_parameters_refused=refused)


def _fewer_alternatives(dialect: Dialect, call: Call, refusal: Refusal) -> Dialect:
    asked = min(call.top_logprobs, dialect.most_top_logprobs or call.top_logprobs)
    limit = _limit_below(asked, refusal.said, 1)
    if limit is not None:
        return replace(dialect, most_top_logprobs=limit)
    return replace(dialect, omit=dialect.omit | {Parameter.TOP_LOGPROBS})


def _limit_below(asked: int, said: str, least: int) -> int | None:
    """The limit that a refusal states: the largest number in it below what was asked for."""
    if not _BOUND.search(said):
        return None
    numbers = [int(found.replace(",", "")) for found in _NUMBER.findall(said)]
    exclusive = "exclusive" in said
    limits = [number - exclusive for number in numbers if least <= number < asked]
    return max(limits, default=None)


_ROOM = re.compile(
    r"(?:maximum context length|context (?:length|window|limit|size))(?: of| is|:)?\D{0,20}(?P<window>[\d,]+)"
    r".*?(?P<prompt>[\d,]+)(?: tokens)? (?:in the messages|in your prompt|from the input|in the input"
    r"|of text input|input tokens|in the prompt|tokens from the input)",
    re.IGNORECASE | re.DOTALL,
)


def _fit_context(dialect: Dialect, call: Call, refusal: Refusal) -> StepDown | None:
    """The cap lowered to what the prompt leaves of the context window, for this call."""
    asked = dialect.output_tokens(call)
    found = _ROOM.search(refusal.said)
    if asked is None or found is None:
        return None
    window, prompt = (int(found[name].replace(",", "")) for name in ("window", "prompt"))
    room = window - prompt - 8
    if not _LEAST_CAP <= room < asked:
        return None
    return StepDown(replace(dialect, most_output_tokens=room), Parameter.MAX_OUTPUT_TOKENS, lasting=False)
