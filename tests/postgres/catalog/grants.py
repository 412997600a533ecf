"""The grants of a role, as the database has them."""

from __future__ import annotations

from typing import NamedTuple

from statecore.catalog import Catalog

_GRANTS = """
WITH granted AS (
    SELECT relname::text AS name, NULL AS col, a.grantee, a.privilege_type
    FROM pg_class, aclexplode(relacl) a WHERE relnamespace = 'public'::regnamespace
    UNION ALL
    SELECT relname::text, attname::text, a.grantee, a.privilege_type
    FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid, aclexplode(attacl) a
    WHERE relnamespace = 'public'::regnamespace
    UNION ALL
    SELECT 'function ' || proname, NULL, a.grantee, a.privilege_type
    FROM pg_proc, aclexplode(COALESCE(proacl, acldefault('f', proowner))) a
    WHERE pronamespace = 'public'::regnamespace
    UNION ALL
    SELECT 'schema ' || nspname, NULL, a.grantee, a.privilege_type
    FROM pg_namespace, aclexplode(COALESCE(nspacl, acldefault('n', nspowner))) a WHERE nspname = 'public'
    UNION ALL
    SELECT 'database', NULL, a.grantee, a.privilege_type
    FROM pg_database, aclexplode(COALESCE(datacl, acldefault('d', datdba))) a WHERE datname = current_database()
    UNION ALL
    SELECT 'default ' || defaclobjtype::text, NULL, a.grantee, a.privilege_type
    FROM pg_default_acl, aclexplode(defaclacl) a
    UNION ALL
    SELECT 'role ' || roleid::regrole::text, NULL, member, 'MEMBER' FROM pg_auth_members
)
SELECT name, col, privilege_type FROM granted
WHERE grantee = CASE '{role}' WHEN 'public' THEN 0 ELSE to_regrole('{role}')::oid END
ORDER BY name, privilege_type, col
"""


class Grant(NamedTuple):
    """A right to one thing.

    Attributes:
        name: The table, sequence, or what else it is of.
        column: Of a table; None for all.
        privilege: As PostgreSQL calls it.

    """

    name: str
    column: str | None
    privilege: str


def grants(owner: Catalog, role: str) -> list[Grant]:
    """Return the grants of a role; of every login for ``public``."""
    with owner._database.read() as connection:
        return [Grant(*row) for row in connection.exec_driver_sql(_GRANTS.format(role=role))]


def summary(found: list[Grant]) -> dict[str, str]:
    """Return the grants by what they are of, such as ``SELECT UPDATE(state error)``."""
    rights: dict[str, dict[str, list[str]]] = {}
    for each in found:
        columns = rights.setdefault(each.name, {}).setdefault(each.privilege, [])
        columns += [] if each.column is None else [each.column]
    return {
        name: " ".join(f"{privilege}({' '.join(sorted(columns))})" if columns else privilege
                       for privilege, columns in sorted(of.items()))
        for name, of in rights.items()
    }  # fmt: skip
