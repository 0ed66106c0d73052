"""Script graphs (proScript): graphs of models and their measures."""
