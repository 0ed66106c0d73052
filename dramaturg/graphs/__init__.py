"""File formats of script graphs: JSON records and DOT."""
