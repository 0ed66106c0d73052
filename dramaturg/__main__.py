"""The console script. The command line is the extra ``cli``; without it a message says so."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line; where it is not installed, exits with code 2."""
    try:
        import rich
        import typer
    except ModuleNotFoundError:
        sys.stderr.write("The command line is not installed: pip install 'dramaturg[cli]'\n")
        sys.exit(2)
    del rich, typer
    from dramaturg.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
