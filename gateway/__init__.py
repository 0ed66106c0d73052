"""The public API: evaluations through registered judges, and runs."""
