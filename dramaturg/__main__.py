"""The console script. The command line is the extra ``cli``; without it a message says so."""

from __future__ import annotations

import gc
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
    # Imports make objects that stay: searches for garbage among them take a tenth of the start of a command.
    gc.set_threshold(20_000, 20, 20)
    from dramaturg.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
