"""Answers of models: reasoning apart from the text, and JSON that fits a schema."""
