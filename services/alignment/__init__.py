"""The alignment service: how far verdicts can be trusted. Accuracy, agreement, correlation, text overlap."""
