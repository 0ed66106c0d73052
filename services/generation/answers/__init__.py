"""From a model's text to JSON that fits a schema, or to the reason why not."""
