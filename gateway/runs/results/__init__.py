"""The results of runs as files: exports and reports."""
