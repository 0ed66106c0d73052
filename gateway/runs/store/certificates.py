"""The certificates of judges, in the tables."""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa

from dramaturg.api.evaluation.v1.judge_certificate_pb2 import JudgeCertificate
from dramaturg.database.database import Repository, reading, writing
from gateway.runs.store.tables import judge_certificates, sanitize


class JudgeCertificates(Repository):
    """The certificates of judges, each of a tenant."""

    @writing
    def put(
        self, connection: sa.Connection, tenant: str, role: str, name: str, certificate: JudgeCertificate
    ) -> None:
        """Stores a certificate in place of the tenant's earlier one of that judge."""
        of = judge_certificates.c
        where = (of.tenant == sanitize(tenant)) & (of.role == sanitize(role)) & (of.name == sanitize(name))
        connection.execute(judge_certificates.delete().where(where))
        values = {"tenant": tenant, "role": role, "name": name}
        new = judge_certificates.insert().values(**values, certificate=certificate.SerializeToString())
        connection.execute(new)

    @reading
    def of_tenant(self, connection: sa.Connection, tenant: str) -> Mapping[tuple[str, str], JudgeCertificate]:
        """The certificates of a tenant, by the role and the name of the judge."""
        query = sa.select(judge_certificates).where(judge_certificates.c.tenant == sanitize(tenant))
        rows = connection.execute(query)
        return {(row.role, row.name): JudgeCertificate.FromString(row.certificate) for row in rows}
