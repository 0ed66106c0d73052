"""Judges and roles from the files of a folder, read again when the files change."""

from __future__ import annotations

import asyncio
import logging
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import ValidationError

from dramaturg.service.settings import SettingsError, explain
from dramaturg.service.telemetry.instruments import Gauge
from gateway.settings import JudgeEntry, JudgeTables

REJECTED = Gauge(
    "dramaturg_judge_files_rejected",
    "Files of judges that cannot be used. Their last usable content stays in effect.",
)

logger = logging.getLogger(__name__)


class JudgeFiles:
    """The judges of the settings and of the files of a folder.

    A file that cannot be used does not affect other files: its last usable content stays in effect, and a
    file without one is left out.

    Args:
        settings: The roles and judges of the settings, which files replace or add to.
        folder: The folder of the files.

    Raises:
        SettingsError: The folder cannot be read.
    """

    def __init__(self, settings: JudgeTables, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self._usable: dict[str, JudgeTables] = {}
        self._contents = self._read()
        self._tables = self._combine()

    @property
    def tables(self) -> JudgeTables:
        """All roles and judges."""
        return self._tables

    async def watch(self, interval: float, changed: Callable[[JudgeTables], None]) -> None:
        """Checks the folder at an interval, and reports all roles and judges when a file has changed."""
        while True:
            await asyncio.sleep(interval)
            try:
                contents = await asyncio.to_thread(self._read)
            except SettingsError as error:
                logger.warning("the judges stay as they are: %s", error)
                continue
            if contents != self._contents:
                self._contents = contents
                self._tables = self._combine()
                changed(self._tables)

    def _read(self) -> Mapping[str, bytes]:
        # Kubernetes keeps the content of a mounted ConfigMap in hidden folders beside the files.
        try:
            return {
                file.name: file.read_bytes()
                for file in sorted(self._folder.iterdir())
                if file.suffix == ".toml" and not file.name.startswith(".")
            }
        except OSError as error:
            raise SettingsError(f"{self._folder} cannot be read: {error.strerror}") from error

    def _combine(self) -> JudgeTables:
        tables, rejected = self._settings, 0
        usable = {}
        for name, content in self._contents.items():
            try:
                file = _parse(content)
                tables = combine(tables, file)
            except ValueError as error:
                rejected += 1
                message = explain(error) if isinstance(error, ValidationError) else str(error)
                logger.warning("%s is not used: %s", self._folder / name, message)
                if name not in self._usable:
                    continue
                file = self._usable[name]
                tables = combine(tables, file)
            usable[name] = file
        self._usable = usable
        REJECTED.set(rejected)
        fields = {"judges": [f"{judge.role}={judge.name}" for judge in tables.judges]}
        logger.info("judges were read", extra={"fields": fields})
        return tables


def combine(tables: JudgeTables, file: JudgeTables) -> JudgeTables:
    """Adds the roles and judges of a file.

    A judge replaces one of the same role and name. A default replaces the default of its role. The only judge
    of a role stays its default where the file names none.

    Raises:
        ValueError: The role of a judge does not exist.
    """
    sizes: dict[str, int] = {}
    for judge in tables.judges:
        sizes[judge.role] = sizes.get(judge.role, 0) + judge.may_be_only
    defaults = {judge.role for judge in tables.judges if judge.default}
    decided = {judge.role for judge in file.judges if judge.default}
    judges: dict[tuple[str, str], JudgeEntry] = {}
    for judge in tables.judges:
        only = judge.may_be_only and sizes[judge.role] == 1 and judge.role not in defaults
        default = (judge.default or only) and judge.role not in decided
        judges[judge.role, judge.name] = judge.model_copy(update={"default": default})
    for judge in file.judges:
        key = judge.role, judge.name
        kept = key in judges and judges[key].default
        judges[key] = judge.model_copy(update={"default": judge.default or kept})
    roles = {role.name: role for role in (*tables.roles, *file.roles)}
    combined = JudgeTables(roles=tuple(roles.values()), judges=tuple(judges.values()))
    combined.check_roles()
    combined.check_members()
    return combined


def _parse(content: bytes) -> JudgeTables:
    return JudgeTables.model_validate(tomllib.loads(content.decode("utf-8-sig")))
