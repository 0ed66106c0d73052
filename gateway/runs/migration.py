"""Creates and upgrades the tables of the run engine: ``python -m gateway.runs.migration``.

The URL of the database is that of the settings of runs. It is no argument: arguments are visible to every
process of the pod.
"""

from __future__ import annotations

import sys

import sqlalchemy as sa
from pydantic import ValidationError

from dramaturg.service import logs
from dramaturg.service.settings import SettingsError, explain
from gateway.runs.settings import RunsSettings


def main() -> None:
    """Migrates. Exit codes: 0, 1 where the database fails, 2 for bad settings."""
    logs.configure("INFO")
    try:
        settings = RunsSettings(migrate=True)
    except ValidationError as error:
        sys.exit(_report(explain(error), 2))
    except SettingsError as error:
        sys.exit(_report(str(error), 2))
    # Imported here: loading the engine takes longer than reading the settings.
    from gateway.runs.engine.workflows import migrate

    try:
        migrate(settings)
    except Exception as error:  # DBOS raises errors of several libraries
        sys.exit(_report(f"the tables could not be migrated: {_masked(error, settings.url)}", 1))


def _masked(error: Exception, url: str) -> str:
    password = sa.make_url(url).password
    text = " ".join(str(error).split())
    return text.replace(password, "***") if password else text


def _report(message: str, code: int) -> int:
    sys.stderr.write(f"{message}\n")
    return code


if __name__ == "__main__":
    main()
