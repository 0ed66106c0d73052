"""The one place that converts between messages and what the service works on; a module for each method."""
