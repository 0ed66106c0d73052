"""Creates and upgrades the tables of all services on PostgreSQL: ``python -m dramaturg.service.migration``.

The settings of the services name the databases. Their addresses are no arguments: arguments are visible to
every process of the pod. A SQLite file is migrated by the process that uses it.
"""

from __future__ import annotations

import sys

from pydantic import ValidationError

from dramaturg.database import StoreError
from dramaturg.service import logs
from dramaturg.service.installed import find_app, service_names
from dramaturg.service.settings import SettingsError, explain


def main() -> None:
    """Migrates. Exit codes: 0, 1 where a database fails, 2 for bad settings."""
    logs.configure("INFO")
    try:
        for name in service_names():
            migrate = getattr(find_app(name), "migrate", None)
            if migrate is not None:
                migrate()
    except ValidationError as error:
        sys.exit(_report(explain(error), 2))
    except SettingsError as error:
        sys.exit(_report(str(error), 2))
    except StoreError as error:
        sys.exit(_report(str(error), 1))


def _report(message: str, code: int) -> int:
    sys.stderr.write(f"{message}\n")
    return code


if __name__ == "__main__":
    main()
