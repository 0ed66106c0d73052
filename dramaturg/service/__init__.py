"""The runtime that every service shares: one way to start a server, one way to open a channel."""
