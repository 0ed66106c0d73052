from __future__ import annotations

from tests.support.stores import (
    each_store_url,
    migrated_database,
    migrated_folder,
    postgres_store_url,
    sqlite_url,
    store_url,
)

__all__ = [
    "each_store_url",
    "migrated_database",
    "migrated_folder",
    "postgres_store_url",
    "sqlite_url",
    "store_url",
]
