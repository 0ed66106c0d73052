"""Script graphs outside the service that measures them: file formats and drawings."""
