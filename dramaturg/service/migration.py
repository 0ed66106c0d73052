"""Creates and upgrades the tables of all services on PostgreSQL: ``python -m dramaturg.service.migration``.

The settings of the services name the databases. Their addresses are no arguments: arguments are visible to
every process of the pod. A SQLite file is migrated by the process that uses it.
"""

from __future__ import annotations

import sys

from pydantic import ValidationError

from dramaturg.database import StoreError
from dramaturg.service import installed, logs
from dramaturg.service.installed import find_app, service_names
from dramaturg.service.settings import SettingsError, check_names, explain

_NONE = (
    "no database of PostgreSQL is named: set DRAMATURG_RUNS_URL or DRAMATURG_GENERATION_LEDGER_URL, "
    "or url in [runs] or ledger_url in [generation] of the file that DRAMATURG_CONFIG names"
)


def main() -> None:
    """Migrates. Exit codes: 0, 1 where a database fails, 2 for bad settings."""
    logs.configure("INFO")
    try:
        apps = {name: find_app(name) for name in service_names()}
        check_names(installed.sections())
        migrated = [name for name, app in apps.items() if hasattr(app, "migrate") and app.migrate()]
    except ValidationError as error:
        sys.exit(_report(explain(error), 2))
    except SettingsError as error:
        sys.exit(_report(str(error), 2))
    except StoreError as error:
        sys.exit(_report(str(error), 1))
    if not migrated:
        sys.exit(_report(_NONE, 2))
    sys.stdout.write("".join(f"{name}: its tables are up to date\n" for name in migrated))


def _report(message: str, code: int) -> int:
    sys.stderr.write(f"{message}\n")
    return code


if __name__ == "__main__":
    main()
