"""One module an evaluation: which calls a sample needs, and how their answers become one result."""
