"""The command line ``dramaturg``: one module a command group."""
