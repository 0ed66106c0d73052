"""Evaluations of plain values in one call: ``evaluate_scripts``, ``evaluate_texts``, ``evaluate_pair``.

Each function has an asynchronous twin with the same parameters, e.g. ``evaluate_scripts_async``. A call opens
a connection of its own; ``dramaturg.client.DramaturgClient`` keeps one, takes messages and yields events.

All functions have these parameters:

- ``judges``: judges by role, e.g. ``{"critic": "llm"}``; several names of one role are a panel. A role
  without an entry has the configured default.
- ``model``: the model of the judges. Empty: their own default.
- ``repeats``: how often each judge is asked independently, up to 15; the majority counts, of scores the mean.
  0: once.
- ``target``: the address of the gateway. Default: ``DRAMATURG_TARGET``, else localhost:50051.
- ``settings``: TLS files, the token file and limits of the connection. Default: read from the environment.
- ``timeout``: the timeout of the evaluation, in seconds. Default: that of the settings.
- ``progress``: whether assessments are counted as they arrive, by the bar of ``tqdm`` for notebooks or
  terminals. Without ``tqdm`` there is none.

They raise ``TypeError`` or ``ValueError`` for a value that is no input, with its place, and ``ServiceError``
if the gateway refuses the request or fails. Those that are not asynchronous may be called where an event loop
is running, e.g. in a notebook: they block it until they return.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, ParamSpec, Protocol, TypeAlias, TypeVar

import grpc
from google.protobuf.json_format import ParseDict, ParseError

from dramaturg.api.common.v1.content_pb2 import Conversation, Document
from dramaturg.api.common.v1.judging_pb2 import JudgeOptions
from dramaturg.api.common.v1.script_pb2 import Candidate, Script, Step, Task
from dramaturg.api.evaluation.v1.judge_selection_pb2 import JudgeSelection
from dramaturg.api.evaluation.v1.pairs_pb2 import ComparedText, EvaluatePairsRequest
from dramaturg.api.evaluation.v1.scripts_pb2 import (
    GOLD_ANSWER_SOURCE_GIVEN,
    EvaluateScriptsRequest,
)
from dramaturg.api.evaluation.v1.texts_pb2 import (
    EvaluatedText,
    EvaluateTextsRequest,
    RubricCriterion,
)
from dramaturg.client import DEFAULT_TARGET, DramaturgClient, final_result
from dramaturg.evaluation_results import (
    CandidateVerdicts,
    Comparison,
    Evaluation,
    Finding,
    PairEvaluation,
    ScriptsEvaluation,
    TextsEvaluation,
    Verdict,
    pair_evaluation,
    scripts_evaluation,
    texts_evaluation,
)
from dramaturg.formats.messages import read_messages
from dramaturg.formats.rubric import BUILTIN, read_rubric
from dramaturg.service.errors import ServiceError
from dramaturg.service.settings import TARGET_VARIABLE, ChannelSettings
from dramaturg.service.validation import unknown_word

__all__ = [
    "CandidateVerdicts",
    "Comparison",
    "Evaluation",
    "Finding",
    "PairEvaluation",
    "Verdict",
    "evaluate_pair",
    "evaluate_pair_async",
    "evaluate_scripts",
    "evaluate_scripts_async",
    "evaluate_texts",
    "evaluate_texts_async",
]

P = ParamSpec("P")
R = TypeVar("R")


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


Fields: TypeAlias = "Mapping[str, Any] | _Dataclass"
"""A mapping or an instance of a dataclass; its keys or fields are checked."""
Content: TypeAlias = "str | Sequence[str] | Fields"
"""A text, the steps of a script, or fields: id, model, and text, messages (a conversation) or steps."""
Contents: TypeAlias = "Mapping[str, Content] | Iterable[Content]"
"""Texts or scripts in order, or by id. Without an id they have "1", "2" and so on."""
Criteria: TypeAlias = "Path | str | Mapping[str, str] | Iterable[Mapping[str, Any]]"
"""A rubric: a TOML file, the name of a ready one such as "builtin:groundedness", what passes by the id of a
criterion, or the fields of ``RubricCriterion``.
"""
Judges: TypeAlias = "Mapping[str, str | Sequence[str]]"
"""Names of judges by role."""


def _named(work: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Refuses a parameter that a function does not have with the name that is closest to it."""
    known = [*inspect.signature(work).parameters]

    @functools.wraps(work)
    def checked(*args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        for name in kwargs:
            if name not in known:
                close = get_close_matches(name, known, 1)
                remedy = f"did you mean {close[0]!r}?" if close else f"its parameters are {', '.join(known)}"
                raise TypeError(f"{work.__name__.removesuffix('_async')} has no parameter {name!r}; {remedy}")
        return work(*args, **kwargs)

    return checked


@_named
async def evaluate_scripts_async(
    goal: str,
    scripts: Contents,
    *,
    constraints: Sequence[str] = (),
    reference: Sequence[str] | None = None,
    roles: Sequence[str] = (),
    judges: Judges | None = None,
    model: str = "",
    repeats: int = 0,
    target: str | None = None,
    settings: ChannelSettings | None = None,
    timeout: float | None = None,
    progress: bool = False,
) -> ScriptsEvaluation:
    """Judges scripts that were written for a goal.

    Args:
        goal: The goal, e.g. "Make tea".
        scripts: The scripts: texts as a model wrote them, or lists of steps.
        constraints: The restrictions of the goal, e.g. "without a kettle".
        reference: The steps of a good script. None: the judges derive one where they need it.
        roles: The roles of the judges, e.g. "critic". Empty: critic, execute and commonsense.
        judges: See the module.
        model: See the module.
        repeats: See the module.
        target: See the module.
        settings: See the module.
        timeout: See the module.
        progress: See the module.
    """
    request = EvaluateScriptsRequest(
        task=Task(goal=_text("goal", goal), constraints=_texts("constraints", constraints)),
        candidates=[
            Candidate(id=one.id, model=one.model, text=one.text)
            if one.text is not None
            else Candidate(id=one.id, model=one.model, script=_script(one.steps or ()))
            for one in _contents("scripts", scripts, steps=True)
        ],
        roles=_texts("roles", roles),
        judges=_selections(judges),
        options=JudgeOptions(model=model, repeats=repeats),
    )
    if reference is not None:
        request.gold_answer.CopyFrom(_script(_texts("reference", reference)))
        request.gold_answer_source = GOLD_ANSWER_SOURCE_GIVEN
    return scripts_evaluation(
        await _evaluate(
            lambda client: client.evaluate_scripts(request, timeout=timeout), target, settings, progress
        )
    )


@_named
async def evaluate_texts_async(
    goal: str,
    texts: Contents,
    criteria: Criteria,
    *,
    reference: str = "",
    context: Sequence[str] = (),
    instructions: str = "",
    judges: Judges | None = None,
    model: str = "",
    repeats: int = 0,
    target: str | None = None,
    settings: ChannelSettings | None = None,
    timeout: float | None = None,
    progress: bool = False,
) -> TextsEvaluation:
    """Judges texts by a rubric.

    Args:
        goal: The prompt or question of the texts.
        texts: The texts.
        criteria: The rubric.
        reference: A good text. Empty: none.
        context: The documents that the texts rest on.
        instructions: The instructions of the system that wrote them. Empty: none.
        judges: See the module.
        model: See the module.
        repeats: See the module.
        target: See the module.
        settings: See the module.
        timeout: See the module.
        progress: See the module.
    """
    documents = [Document(text=one) for one in _texts("context", context)]
    request = EvaluateTextsRequest(
        task=Task(goal=_text("goal", goal), context=documents, instructions=instructions),
        texts=[
            EvaluatedText(id=one.id, model=one.model, text=one.text or "", conversation=one.conversation)
            for one in _contents("texts", texts, steps=False)
        ],
        criteria=read_criteria(criteria),
        reference=reference,
        judges=_selections(judges),
        options=JudgeOptions(model=model, repeats=repeats),
    )
    return texts_evaluation(
        await _evaluate(
            lambda client: client.evaluate_texts(request, timeout=timeout), target, settings, progress
        )
    )


@_named
async def evaluate_pair_async(
    source: str,
    first: str,
    second: str,
    *,
    instruction: str = "",
    criteria: Criteria | None = None,
    baselines: Sequence[str] = (),
    judges: Judges | None = None,
    model: str = "",
    repeats: int = 0,
    target: str | None = None,
    settings: ChannelSettings | None = None,
    timeout: float | None = None,
    progress: bool = False,
) -> PairEvaluation:
    """Compares two texts by role-players, or by a rubric.

    Args:
        source: The source of the texts, e.g. an article.
        first: The first text.
        second: The second text.
        instruction: The instruction of the writers. Empty: none.
        criteria: A rubric in place of roles: one vote for each criterion. None: roles.
        baselines: Further methods: "llm", "fixed-roles".
        judges: See the module.
        model: See the module.
        repeats: See the module.
        target: See the module.
        settings: See the module.
        timeout: See the module.
        progress: See the module.
    """
    request = EvaluatePairsRequest(
        source=_text("source", source),
        instruction=instruction,
        first=ComparedText(text=_text("first", first)),
        second=ComparedText(text=_text("second", second)),
        baselines=_texts("baselines", baselines),
        judges=_selections(judges),
        options=JudgeOptions(model=model, repeats=repeats),
    )
    if criteria is not None:
        request.roles.criteria.extend(read_criteria(criteria))
    return pair_evaluation(
        await _evaluate(
            lambda client: client.evaluate_pairs(request, timeout=timeout), target, settings, progress
        )
    )


def _blocking(work: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, R]:
    """The twin of a function that is not asynchronous."""

    @functools.wraps(work)
    def blocking(*args: P.args, **kwargs: P.kwargs) -> R:
        coroutine = work(*args, **kwargs)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            is_running = False
        else:
            is_running = True
        # Outside of the handler, so that an error of the work has no other as its context.
        return run_in_own_loop(coroutine) if is_running else asyncio.run(coroutine)

    blocking.__name__ = blocking.__qualname__ = work.__name__.removesuffix("_async")
    return blocking


_loop_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def run_in_own_loop(work: Coroutine[Any, Any, R]) -> R:
    """Runs a coroutine from any thread, one with a running event loop included.

    All such calls share one event loop, which a daemon thread runs from the first call on. An interrupt ends
    the coroutine.
    """
    global _loop
    with _loop_lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="dramaturg", daemon=True).start()
    result = asyncio.run_coroutine_threadsafe(work, _loop)
    try:
        return result.result()
    except BaseException:
        result.cancel()
        raise


evaluate_scripts = _blocking(evaluate_scripts_async)
evaluate_texts = _blocking(evaluate_texts_async)
evaluate_pair = _blocking(evaluate_pair_async)


async def _evaluate(
    events: Callable[[DramaturgClient], Any],
    target: str | None,
    settings: ChannelSettings | None,
    progress: bool,
) -> Any:
    address = target or os.environ.get(TARGET_VARIABLE) or DEFAULT_TARGET
    async with DramaturgClient(address, settings) as client:
        try:
            with _bar(progress) as happened:
                return await final_result(events(client), happened)
        except ServiceError as error:
            if error.code is not grpc.StatusCode.UNAVAILABLE or "Connection refused" not in error.message:
                raise
            raise ServiceError(
                error.code,
                error.reason,
                f"no gateway answers at {address}; start one with `dramaturg up`, or set target or "
                f"{TARGET_VARIABLE}: {error.message}",
            ) from error


def _tqdm() -> Any:
    """The bar of a notebook or of a terminal. None: tqdm is not installed."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm


@contextmanager
def _bar(shown: bool) -> Iterator[Callable[[Any], object] | None]:
    """Shows the assessments of an evaluation as they arrive. Yields what receives its events."""
    tqdm = _tqdm() if shown else None
    if tqdm is None:
        yield None
        return
    with tqdm(unit="assessment") as bar:

        def happened(event: Any) -> None:
            kind = event.WhichOneof("event")
            if kind == "accepted":
                bar.reset(event.accepted.assessment_count or None)
            elif kind in {"assessment", "comparison"}:
                bar.update()

        yield happened


@dataclasses.dataclass(frozen=True)
class _Input:
    """A text or script, read."""

    id: str
    model: str = ""
    text: str | None = None
    steps: Sequence[str] | None = None
    conversation: Conversation | None = None


def _contents(name: str, given: Any, *, steps: bool) -> Iterator[_Input]:
    """The texts or scripts of an argument, with or without ids."""
    contents = ("text", "steps") if steps else ("text", "messages")
    if isinstance(given, Sequence | Mapping) and not given:
        raise ValueError(f"{name} is empty: give at least one of them")
    if isinstance(given, Mapping):
        if set(given) & {"id", "model", *contents} and not set(given) - {"id", "model", *contents}:
            raise TypeError(f"{name} is one of them: give a list, or a mapping from id to content")
        for key, value in given.items():
            yield _content(f"{name}[{key!r}]", value, _text(f"a key of {name}", key), contents)
    elif isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"{name} is a list or a mapping, not {type(given).__name__}")
    else:
        for index, value in enumerate(given):
            yield _content(f"{name}[{index}]", value, str(index + 1), contents)


def _content(place: str, given: Any, default_id: str, contents: Sequence[str]) -> _Input:
    if isinstance(given, str):
        return _Input(default_id, text=given)
    if dataclasses.is_dataclass(given) and not isinstance(given, type):
        given = {one.name: getattr(given, one.name) for one in dataclasses.fields(given)}
    if not isinstance(given, Mapping):
        if "steps" not in contents:
            raise TypeError(f"{place} is a text, a mapping or a dataclass, not {type(given).__name__}")
        return _Input(default_id, steps=_texts(place, given))
    known = ("id", "model", *contents)
    if unknown := [key for key in given if key not in known]:
        raise ValueError(f"{place} has no field {unknown[0]!r}; its fields are {', '.join(known)}")
    # A dataclass has all of its fields; those that it leaves out are None.
    fields = {key: value for key, value in given.items() if value is not None}
    if len([one for one in contents if one in fields]) != 1:
        raise ValueError(f"{place} must have {' or '.join(contents)}, not both")
    return _Input(
        _text(f"{place}.id", fields.get("id", default_id)),
        _text(f"{place}.model", fields.get("model", "")),
        _text(f"{place}.text", fields["text"]) if "text" in fields else None,
        _texts(f"{place}.steps", fields["steps"]) if "steps" in fields else None,
        read_messages(fields["messages"], f"{place}.messages") if "messages" in fields else None,
    )


def _text(place: str, given: Any) -> str:
    if not isinstance(given, str):
        raise TypeError(f"{place} is a text, not {type(given).__name__}")
    return given


def _texts(place: str, given: Any) -> Sequence[str]:
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise TypeError(f"{place} is a list of texts, not {type(given).__name__}")
    return [_text(f"{place}[{index}]", one) for index, one in enumerate(given)]


def _script(steps: Iterable[str]) -> Script:
    return Script(steps=[Step(text=step) for step in steps])


def read_criteria(given: Any) -> Sequence[RubricCriterion]:
    if isinstance(given, Path) or (isinstance(given, str) and given.startswith(BUILTIN)):
        return read_rubric(given)
    if isinstance(given, Mapping):
        given = [{"id": key, "passes": value} for key, value in given.items()]
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"criteria is a Path, {BUILTIN}NAME, a mapping or a list, not {type(given).__name__}")
    if isinstance(given, Sequence) and not given:
        raise ValueError("criteria is empty: give at least one criterion")
    read = []
    for index, one in enumerate(given):
        if not isinstance(one, Mapping):
            raise TypeError(f"criteria[{index}] is a mapping, not {type(one).__name__}")
        try:
            read.append(ParseDict(dict(one), RubricCriterion()))
        except ParseError as error:
            fault = unknown_word(str(error)) or str(error).splitlines()[0]
            raise ValueError(f"criteria[{index}]: {fault}") from error
    return read


def _selections(judges: Judges | None) -> Sequence[JudgeSelection]:
    if judges is not None and not isinstance(judges, Mapping):
        raise TypeError(f"judges is a mapping from role to names, not {type(judges).__name__}")
    return [
        JudgeSelection(role=role, judge=name)
        for role, names in (judges or {}).items()
        for name in ([names] if isinstance(names, str) else _texts(f"judges[{role!r}]", names))
    ]
