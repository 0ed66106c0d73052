"""Between the messages of the contract and this service's own types."""
