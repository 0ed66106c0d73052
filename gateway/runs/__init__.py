"""Runs: evaluations of many samples that outlive the processes that work on them."""
