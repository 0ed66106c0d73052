"""The rubric judge with a classifier or a reward model in place of a chat model.

The model is served over HTTP with the pooling API of vLLM, which SGLang serves, too: ``/classify`` gives the
likeliest label of a text and the probabilities of all, ``/score`` the score of a text beside another one.
Or it is a folder that sentence-transformers loads here, and reads a text beside another one for both.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import aiohttp
import grpc
from pydantic import BaseModel, ConfigDict, Field

from dramaturg.api.common.v1 import error_reason_pb2, verdict_pb2
from dramaturg.api.common.v1.provenance_pb2 import Provenance
from dramaturg.api.common.v1.verdict_pb2 import Assessment, Verdict
from dramaturg.judge import VERSION
from dramaturg.judge.batches import JudgeItem
from dramaturg.judge.contracts import judge_contract
from dramaturg.judge.protocols import CONTEXT
from dramaturg.judge.verdicts import abstained, failed, passed
from dramaturg.service.contract import Contract
from dramaturg.service.errors import ServiceError
from dramaturg.service.settings import SettingsError

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder


_WEIGHTS = "model.safetensors"


class TooLongError(ValueError):
    """Two texts are longer than the model reads."""


class LocalModel:
    """A loaded model, which reads two texts at once. It computes one request after the other.

    Args:
        model: The library's model.
        weights_sha256: The SHA-256 of its weights. Empty: they are not in one file.
    """

    def __init__(self, model: CrossEncoder, weights_sha256: str) -> None:
        self.weights_sha256 = weights_sha256
        self._model = model
        self._lock = asyncio.Lock()

    @property
    def labels(self) -> Sequence[str]:
        """The labels, by output. One output is a score."""
        named = self._model.config.id2label
        return [str(named[index]) for index in range(self._model.config.num_labels)]

    async def classify(self, other: str, text: str) -> tuple[str, float]:
        """The likeliest label of a text beside another one, and its probability.

        Raises:
            TooLongError: They are longer than the model reads.
        """
        async with self._lock:
            probabilities = (await asyncio.to_thread(self._predict, other, text, apply_softmax=True)).tolist()
        best = max(range(len(probabilities)), key=probabilities.__getitem__)
        return self.labels[best], float(probabilities[best])

    async def score(self, other: str, text: str) -> float:
        """The score of a text beside another one, as the model gives it: most give one from 0 to 1.

        Raises:
            TooLongError: They are longer than the model reads.
        """
        async with self._lock:
            return float(await asyncio.to_thread(self._predict, other, text))

    def _predict(self, other: str, text: str, **options: Any) -> Any:
        tokenizer = self._model.tokenizer
        # The library cuts what is longer, and says nothing.
        most = getattr(self._model, "max_seq_length", None) or tokenizer.model_max_length
        count = len(tokenizer(other, text, truncation=False, verbose=False)["input_ids"])
        if count > most:
            raise TooLongError(f"The texts have {count} tokens; the model reads {most}.")
        return self._model.predict([(other, text)], show_progress_bar=False, **options)[0]


def load_local_model(folder: Path) -> LocalModel:
    """Loads a model. Takes seconds.

    Raises:
        SettingsError: The library is not installed, or cannot load the folder.
    """
    try:
        # Torch takes seconds and hundreds of megabytes to import.
        from sentence_transformers import CrossEncoder
    except ImportError as error:
        raise SettingsError(
            f"classifier.model_dir: sentence-transformers is not installed ({error}): "
            "run `pip install 'dramaturg[embeddings]'`"
        ) from error
    if not folder.is_dir():
        raise SettingsError(f"classifier.model_dir: {folder} is no folder")
    try:
        model = CrossEncoder(str(folder), local_files_only=True)
    except (OSError, ValueError) as error:
        raise SettingsError(f"classifier.model_dir: {folder} cannot be loaded: {error}") from error
    weights = folder / _WEIGHTS
    digest = ""
    if weights.is_file():
        with weights.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    return LocalModel(model, digest)


MAX_RESPONSE_BYTES = 1 << 20
"""The most bytes of a response."""


class ClassifiedCriterion(BaseModel):
    """A criterion that a classifier or a reward model decides."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    labels: tuple[str, ...] = ()
    """The labels that pass, for ``/classify``. Any other label fails."""
    beside: Literal["task", "reference", "context"] = "task"
    """The text that the judged one stands beside, for ``/score`` and for ``model_dir``: the goal of the task,
    the reference, or all documents.
    """
    threshold: float = 0.5
    """For ``/classify`` the least probability of the likeliest label; below it the verdict abstains
    (LOW_CONFIDENCE). For ``/score`` the least score that passes.
    """


class ClassifierSettings(BaseModel):
    """Settings of the model."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_url: str = "http://localhost:8000"
    """The address of the server, without ``/classify`` or ``/score``."""
    api: Literal["classify", "score"] = "classify"
    """What the server is asked, or what the outputs of the model are."""
    model_dir: Path | None = None
    """The folder of a cross-encoder that is loaded in place of a server, by sentence-transformers (the extra
    [embeddings]). With "score" it has one output, with "classify" a label for each.
    """
    model: str = ""
    """The model. Empty: the request names none. With ``model_dir`` the name in the provenance; empty: that of
    the folder.
    """
    api_key_env: str = ""
    """The environment variable with the key of the server. Empty: it needs none."""
    timeout_seconds: float = Field(default=30.0, gt=0, le=600)
    """The longest time of one request."""
    criteria: Mapping[str, ClassifiedCriterion] = Field(default_factory=dict)
    """The criteria, by id. The judge abstains from all others."""


class Model(Protocol):
    """What decides: a server, or a model in this process."""

    async def classify(self, other: str, text: str) -> tuple[str, float]:
        """The likeliest label of a text and its probability. A server classifies the text alone.

        Raises:
            ServiceError: The server cannot be reached, refuses the request, or answers in another form.
            TooLongError: The texts are longer than the model reads.
        """

    async def score(self, other: str, text: str) -> float:
        """The score of a text beside another one; raises as ``classify``."""


class ClassifierJudge:
    """Judges texts by a classifier or a reward model (``Judge``).

    Args:
        settings: The criteria.
        model: Decides them.
        parameters: What the provenance says of the model.
    """

    name = "classifier-judge"
    version = VERSION
    description = "Has a classifier or a reward model judge texts."
    capabilities: Sequence[str] = (CONTEXT,)

    def __init__(self, settings: ClassifierSettings, model: Model, parameters: Mapping[str, str]) -> None:
        self.criteria = tuple(settings.criteria)
        self._settings = settings
        self._model = model
        self._parameters = parameters

    async def judge(self, item: JudgeItem) -> Assessment:
        """Judges a text: one request for all labels, or one for each criterion with a score.

        Raises:
            ServiceError: As ``Model.classify``.
        """
        labels: dict[str, tuple[str, float]] = {}
        verdicts = [
            await self._verdict(name, item, labels)
            for name in item.criteria
            if name in self._settings.criteria
        ]
        return Assessment(verdicts=verdicts, provenance=Provenance(parameters=self._parameters))

    async def _verdict(self, name: str, item: JudgeItem, labels: dict[str, tuple[str, float]]) -> Verdict:
        settings, text = self._settings, item.candidate.text
        criterion = settings.criteria[name]
        alone = settings.api == "classify" and settings.model_dir is None
        other = "" if alone else _beside(criterion.beside, item)
        if not other and not alone:
            told = f"There is no {criterion.beside} to judge the text beside."
            return abstained(name, verdict_pb2.ABSTAIN_REASON_NOT_APPLICABLE, told)
        try:
            if settings.api == "score":
                return _by_score(name, criterion, await self._model.score(other, text))
            if other not in labels:
                labels[other] = await self._model.classify(other, text)
        except TooLongError as error:
            return abstained(name, verdict_pb2.ABSTAIN_REASON_CONTEXT_LENGTH_EXCEEDED, str(error))
        return _by_label(name, criterion, *labels[other])


class _Server:
    """A server with the pooling API of vLLM.

    Args:
        settings: Its address and model.
        session: Sends the requests.
    """

    def __init__(self, settings: ClassifierSettings, session: aiohttp.ClientSession) -> None:
        self._settings = settings
        self._session = session

    async def classify(self, other: str, text: str) -> tuple[str, float]:
        del other
        one = _only(await self._ask({"input": text}))
        label, probabilities = one.get("label"), one.get("probs")
        if not isinstance(label, str) or not isinstance(probabilities, list) or not probabilities:
            raise _strange("has no label with probabilities")
        values = [_number(each) for each in probabilities]
        if not all(0 <= each <= 1 for each in values):
            raise _strange("has probabilities outside 0 to 1")
        return label, max(values)

    async def score(self, other: str, text: str) -> float:
        return _number(_only(await self._ask({"text_1": other, "text_2": text})).get("score"))

    async def _ask(self, body: Mapping[str, Any]) -> Any:
        settings = self._settings
        named = {"model": settings.model} if settings.model else {}
        try:
            async with self._session.post(
                f"{settings.base_url.rstrip('/')}/{settings.api}",
                json={**named, **body},
                allow_redirects=False,
            ) as response:
                read = await _read(response)
        except (TimeoutError, aiohttp.ClientError) as error:
            told = f"the classifier cannot be reached: {type(error).__name__}: {error}"
            raise _failure(grpc.StatusCode.UNAVAILABLE, told) from error
        if response.status != 200:
            raise _refused(response.status, read)
        try:
            return json.loads(read)
        except (ValueError, RecursionError) as error:
            raise _strange("is no JSON") from error


async def _read(response: aiohttp.ClientResponse) -> bytes:
    read = bytearray()
    async for piece in response.content.iter_any():
        read += piece
        if len(read) > MAX_RESPONSE_BYTES:
            raise _strange(f"is longer than {MAX_RESPONSE_BYTES >> 20} MiB")
    return bytes(read)


@asynccontextmanager
async def open_classifier(settings: ClassifierSettings) -> AsyncIterator[Contract]:
    """The contract of the judge, while its connections are open.

    Raises:
        SettingsError: There are no criteria, one lacks its labels, the key is not set, or the model in the
            folder cannot be loaded or has other outputs.
    """
    if not settings.criteria:
        raise SettingsError("classifier.criteria: is empty: name the criteria that the model decides")
    for name, one in settings.criteria.items():
        if settings.api == "classify" and not one.labels:
            raise SettingsError(f"classifier.criteria.{name}.labels: is empty: name the labels that pass")
    if settings.model_dir is not None:
        yield judge_contract(await _local_judge(settings, settings.model_dir))
        return
    headers = {}
    if settings.api_key_env:
        key = os.environ.get(settings.api_key_env)
        if not key:
            raise SettingsError(f"classifier.api_key_env: {settings.api_key_env} is not set")
        headers["Authorization"] = f"Bearer {key}"
    timeout = aiohttp.ClientTimeout(total=settings.timeout_seconds)
    async with aiohttp.ClientSession(timeout=timeout, headers=headers) as session:
        parameters = {"model": settings.model} if settings.model else {}
        yield judge_contract(ClassifierJudge(settings, _Server(settings, session), parameters))


async def _local_judge(settings: ClassifierSettings, folder: Path) -> ClassifierJudge:
    model = await asyncio.to_thread(load_local_model, folder)
    known = model.labels
    if (settings.api == "score") != (len(known) == 1):
        needed = "has one output" if len(known) == 1 else f"has the labels {', '.join(known)}"
        raise SettingsError(f'classifier.api: is "{settings.api}"; the model {needed}')
    for name, one in settings.criteria.items():
        if unknown := sorted({*one.labels}.difference(known) if settings.api == "classify" else ()):
            raise SettingsError(
                f"classifier.criteria.{name}.labels: the model has no {', '.join(unknown)}; "
                f"it has {', '.join(known)}"
            )
    named = {"model": settings.model or folder.name, "weights_sha256": model.weights_sha256}
    return ClassifierJudge(settings, model, {name: value for name, value in named.items() if value})


def _by_label(name: str, criterion: ClassifiedCriterion, label: str, probability: float) -> Verdict:
    told = f"The likeliest label is {label!r}, with a probability of {probability:.4g}."
    if probability < criterion.threshold:
        return abstained(name, verdict_pb2.ABSTAIN_REASON_LOW_CONFIDENCE, told)
    verdict = passed if label in criterion.labels else failed
    return verdict(name, rationale=told, confidence=probability)


def _by_score(name: str, criterion: ClassifiedCriterion, score: float) -> Verdict:
    told = f"The score beside the {criterion.beside} is {score:.4g}; {criterion.threshold:g} passes."
    share = score if 0 <= score <= 1 else None
    return (passed if score >= criterion.threshold else failed)(name, rationale=told, score=share)


def _beside(part: str, item: JudgeItem) -> str:
    if part == "task":
        return item.task.goal
    if part == "reference":
        return "\n".join(step.text for step in item.reference.steps)
    return "\n\n".join(one.text for one in (*item.task.context, *item.candidate.context))


def _only(answer: Any) -> Mapping[str, Any]:
    """The result of the only text that was asked about."""
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list) or len(data) != 1 or not isinstance(data[0], dict):
        raise _strange("has not one result")
    return data[0]


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < float("inf"):
        raise _strange("has no number where a score or a probability belongs")
    return float(value)


def _refused(status: int, said: bytes) -> ServiceError | TooLongError:
    passing = status in (408, 429) or status >= 500
    code = grpc.StatusCode.UNAVAILABLE if passing else grpc.StatusCode.FAILED_PRECONDITION
    words = said[:300].decode(errors="replace")
    # So say vLLM and SGLang of texts that are longer than the model reads.
    if status == 400 and "context length" in words:
        return TooLongError(f"The server refuses the text: {words}")
    return _failure(code, f"the classifier answers with the status {status}: {words}")


def _strange(problem: str) -> ServiceError:
    return _failure(grpc.StatusCode.INTERNAL, f"the answer of the classifier {problem}")


def _failure(code: grpc.StatusCode, message: str) -> ServiceError:
    reason = error_reason_pb2.ERROR_REASON_DEPENDENCY_FAILED
    return ServiceError(code, reason, message, metadata={"service": "classifier", "code": code.name})
