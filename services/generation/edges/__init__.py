"""Predicts the order of events with language models (proScript, section 5.1)."""
