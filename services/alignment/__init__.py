"""The alignment service: accuracy, agreement, correlation with human labels, text overlap."""
