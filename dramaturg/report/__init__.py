"""The report: one self-contained HTML page of an evaluation's results."""
