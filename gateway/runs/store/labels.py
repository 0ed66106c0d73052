"""Label sets in the tables. Times are those of the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from dramaturg.api.evaluation.v1.label_service_pb2 import LabelItem, LabelSet
from dramaturg.database.database import Repository, inserting, reading, writing
from gateway.runs.records import Label, LabelSetRecord, NewLabelItem, NewLabelSet
from gateway.runs.store.codec import pack_message, unpack_message
from gateway.runs.store.tables import item_labels, label_items, label_sets, sanitize, time_of

_LOCK = 0x6C61626C


class LabelSets(Repository):
    """The label sets, their items and the labels of people."""

    @inserting
    def create(self, connection: sa.Connection, new: NewLabelSet, most: int) -> LabelSetRecord | None:
        """Creates a label set with its items. A request id that the tenant used returns the existing set.

        Returns:
            The set; None if the tenant has ``most`` sets.
        """
        if new.request_id and (found := _requested(connection, new.request_id, new.tenant)) is not None:
            return found
        if connection.dialect.name == "postgresql":
            # The sets of a tenant are created one at a time, so that the maximum holds.
            key = sa.func.hashtext(sanitize(new.tenant))
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK, key)))
        mine = sa.select(sa.func.count()).where(label_sets.c.tenant == sanitize(new.tenant))
        if connection.execute(mine).scalar_one() >= most:
            return None
        row = {
            "id": new.description.id,
            "tenant": new.tenant,
            "request_id": new.request_id or None,
            "description": new.description.SerializeToString(),
            "create_time": time_of(self._database.now(connection)),
        }
        inserted = connection.execute(label_sets.insert().values(row).returning(label_sets.c.number))
        number = inserted.scalar_one()
        items = [
            {
                "label_set": number,
                "position": one.item.position,
                "item": pack_message(one.item),
                "sample_id": one.sample_id,
                "model": one.model,
                "opponent": one.opponent,
                "judged": one.judged,
                "probability": one.probability,
            }
            for one in new.items
        ]
        if items:
            connection.execute(label_items.insert(), items)
        return _with_id(connection, new.description.id, new.tenant)

    @reading
    def get(self, connection: sa.Connection, label_set_id: str, tenant: str) -> LabelSetRecord | None:
        """The label set; None if the tenant has none of this id."""
        return _with_id(connection, label_set_id, tenant)

    @reading
    def requested(self, connection: sa.Connection, request_id: str, tenant: str) -> LabelSetRecord | None:
        """The label set that was created with a request id; None: there is none."""
        return _requested(connection, request_id, tenant)

    @reading
    def page(
        self, connection: sa.Connection, tenant: str, *, limit: int, before: int | None = None
    ) -> Sequence[LabelSetRecord]:
        """Label sets, the newest first, with numbers below ``before``."""
        query = sa.select(label_sets).where(label_sets.c.tenant == sanitize(tenant))
        if before is not None:
            query = query.where(label_sets.c.number < before)
        query = query.order_by(label_sets.c.number.desc()).limit(limit)
        return [_record(row) for row in connection.execute(query)]

    @reading
    def items(
        self,
        connection: sa.Connection,
        number: int,
        *,
        after: int,
        limit: int,
        annotator: str = "",
        unlabelled_only: bool = False,
    ) -> Sequence[NewLabelItem]:
        """Items by position, above ``after``, with the labels of an annotator."""
        mine = (
            (item_labels.c.label_set == label_items.c.label_set)
            & (item_labels.c.position == label_items.c.position)
            & (item_labels.c.annotator == sanitize(annotator))
        )
        query = (
            sa.select(label_items, item_labels.c.label, item_labels.c.note)
            .outerjoin(item_labels, mine)
            .where(label_items.c.label_set == number, label_items.c.position > after)
            .order_by(label_items.c.position)
            .limit(limit)
        )
        if unlabelled_only:
            query = query.where(item_labels.c.label.is_(None))
        return [_item(row) for row in connection.execute(query)]

    @writing
    def write_label(
        self,
        connection: sa.Connection,
        number: int,
        position: int,
        annotator: str,
        label: str,
        note: str,
        most_annotators: int,
    ) -> bool:
        """Stores a label in place of an earlier one, or withdraws it if it is empty.

        Returns:
            Whether it was stored; False if the set has ``most_annotators`` other annotators.
        """
        annotator = sanitize(annotator)
        mine = (
            (item_labels.c.label_set == number)
            & (item_labels.c.position == position)
            & (item_labels.c.annotator == annotator)
        )
        if not label:
            connection.execute(item_labels.delete().where(mine))
            return True
        others = sa.select(sa.func.count(item_labels.c.annotator.distinct())).where(
            item_labels.c.label_set == number, item_labels.c.annotator != annotator
        )
        if connection.execute(others).scalar_one() >= most_annotators:
            return False
        insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
        values = {"label": label, "note": note, "update_time": time_of(self._database.now(connection))}
        new = insert(item_labels).values(label_set=number, position=position, annotator=annotator, **values)
        keys = ("label_set", "position", "annotator")
        connection.execute(new.on_conflict_do_update(index_elements=keys, set_=values))
        return True

    @reading
    def labels(self, connection: sa.Connection, number: int) -> Sequence[Label]:
        """The labels of a set, by position and annotator."""
        query = (
            sa.select(item_labels)
            .where(item_labels.c.label_set == number)
            .order_by(item_labels.c.position, item_labels.c.annotator)
        )
        return [
            Label(row.position, row.annotator, row.label, row.note, row.update_time)
            for row in connection.execute(query)
        ]

    @writing
    def delete(self, connection: sa.Connection, number: int) -> None:
        """Deletes a label set with its items and labels."""
        for table in (item_labels, label_items):
            connection.execute(table.delete().where(table.c.label_set == number))
        connection.execute(label_sets.delete().where(label_sets.c.number == number))


def _with_id(connection: sa.Connection, label_set_id: str, tenant: str) -> LabelSetRecord | None:
    return _find(connection, tenant, label_sets.c.id == sanitize(label_set_id))


def _requested(connection: sa.Connection, request_id: str, tenant: str) -> LabelSetRecord | None:
    return _find(connection, tenant, label_sets.c.request_id == sanitize(request_id))


def _find(connection: sa.Connection, tenant: str, condition: sa.ColumnElement[bool]) -> LabelSetRecord | None:
    query = sa.select(label_sets).where(label_sets.c.tenant == sanitize(tenant), condition)
    row = connection.execute(query).one_or_none()
    return None if row is None else _record(row)


def _record(row: sa.Row[*tuple[Any, ...]]) -> LabelSetRecord:
    description = LabelSet.FromString(row.description)
    description.create_time.FromDatetime(row.create_time)
    return LabelSetRecord(row.number, description)


def _item(row: sa.Row[*tuple[Any, ...]]) -> NewLabelItem:
    item = unpack_message(LabelItem, row.item)
    item.label, item.note = row.label or "", row.note or ""
    return NewLabelItem(item, row.sample_id, row.model, row.opponent, row.judged, row.probability)
