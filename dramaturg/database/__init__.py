"""The database of runs and of the ledger: SQLite or PostgreSQL by SQLAlchemy Core."""
