"""Replays recorded completions from a file, without a network."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dramaturg.datasets.json_lines import LineError, json_objects
from services.generation.calls import Answer, Call, Deadline, NotRecordedError
from services.generation.providers.base import Provider
from services.generation.records import answer_from_record, answer_to_record, fingerprint

logger = logging.getLogger(__name__)


class RecordingError(ValueError):
    """The file cannot be read or written; the message names the file and the invalid line."""


class ReplayProvider(Provider):
    """Replays a recording: a JSON Lines file with one completion per line.

    A line has ``fingerprint`` (of the call, for any endpoint), ``model`` (as requested) and ``answer`` (see
    [records]). Of lines with the same fingerprint the last one counts. Refusals and unusable answers are
    recorded too, so that a replayed run takes the same path. Failures are not recorded.
    """

    keeps = True

    def __init__(
        self,
        name: str,
        path: Path,
        *,
        source: Provider | None = None,
        default_model: str = "",
    ) -> None:
        """Reads the recording.

        Args:
            name: The provider's name.
            path: The file. With a source it need not exist.
            source: The provider that answers missing calls, whose answers are recorded. None: no provider.
            default_model: The model of requests that name none. Empty: the source's default.

        Raises:
            RecordingError: The file does not exist and there is no source, or a line cannot be read.
        """
        self.name = name
        self.address = ""
        self.default_model = default_model or (source.default_model if source is not None else "")
        self._path = path
        self._source = source
        self._answers: dict[str, Answer] = {}
        self._models: set[str] = set()
        if path.exists() or source is None:
            self._read()

    def _read(self) -> None:
        try:
            for number, record in json_objects(self._path):
                self._read_record(number, record)
        except OSError as error:
            raise RecordingError(f"the recording {self._path} cannot be read: {error}") from error
        except LineError as error:
            raise RecordingError(f"the recording {error}") from error

    def _read_record(self, number: int, record: dict[str, Any]) -> None:
        try:
            self._add(record)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise RecordingError(f"the recording {self._path}: line {number}: {error!r}") from error

    def _add(self, record: dict[str, Any]) -> None:
        self._answers[record["fingerprint"]] = answer_from_record(record["answer"])
        self._models.add(record["model"])

    async def complete(self, call: Call, deadline: Deadline) -> Answer:
        """Returns the recorded answer, or a new one of the source, which is recorded.

        Raises:
            NotRecordedError: There is no recorded answer and no source.
            ProviderError: The source failed.
        """
        address = fingerprint(call)
        recorded = self._answers.get(address)
        if recorded is not None:
            return replace(recorded, replayed=True)
        if self._source is None:
            raise NotRecordedError(self.name, address)
        answer = await self._source.complete(call, deadline)
        self._record(call.model, address, answer)
        return answer

    def _record(self, model: str, address: str, answer: Answer) -> None:
        record = {"fingerprint": address, "model": model, "answer": answer_to_record(answer)}
        line = json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"
        self._add(record)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # One unbuffered write in append mode, so that lines of several processes do not mix.
            with self._path.open("ab", buffering=0) as file:
                file.write(line.encode())
        except OSError:
            # The answer is paid for and usable, so the caller receives it. The log reports the disk.
            logger.exception("a completion could not be recorded in %s", self._path)

    async def models(self) -> Sequence[str]:
        """The recorded models, sorted."""
        return sorted(self._models)

    async def close(self) -> None:
        """Does nothing: the caller owns the source."""
