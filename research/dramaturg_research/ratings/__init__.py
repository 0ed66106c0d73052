"""Ratings that people check (SimulBench, section 4.3)."""
