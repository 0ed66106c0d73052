"""From results on disk to a page on disk."""

from __future__ import annotations

from pathlib import Path

from dramaturg.report.figures import Figures
from dramaturg.report.page import SAMPLES_SHOWN, Heading, render
from dramaturg.report.reading import read_results


def write_report(results: Path, out: Path, *, title: str = "", limit: int = SAMPLES_SHOWN) -> Figures:
    """Writes the report of what an evaluate command wrote. The results are read twice; memory does not grow.

    Args:
        results: The folder of results, or one file of them.
        out: The page; replaced where it is there.
        title: What stands above. Empty: the folder's name.
        limit: The most samples shown one by one.

    Returns:
        What was counted.

    Raises:
        ResultsError: The files hold something else.
        OSError: A file cannot be read or written.
    """
    figures = Figures()
    for sample in read_results(results):
        figures.add(sample)
    folder = results if results.is_dir() else results.parent
    heading = Heading(title or f"Evaluation {folder.name}", [("results", results.name)])
    with out.open("w", encoding="utf-8") as file:
        for piece in render(heading, figures, read_results(results), limit):
            file.write(piece)
    return figures
