"""Script graphs (proScript): models order or write a script, and what they make is measured."""
