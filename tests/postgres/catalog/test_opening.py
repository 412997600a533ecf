"""How PostgreSQL is opened."""

from __future__ import annotations

from statecore.catalog import Catalog


def test_a_server_that_goes_away_without_a_word_is_given_up_in_seconds(catalog: Catalog, catalog_url: str) -> None:
    def used(opened: Catalog) -> dict[str, str]:
        with opened._database.read() as connection:
            return connection.connection.driver_connection.info.get_parameters()  # type: ignore[union-attr]

    assert {"connect_timeout": "10", "tcp_user_timeout": "30000"}.items() <= used(catalog).items()
    with Catalog(f"{catalog_url}?tcp_user_timeout=5000") as other:
        assert {"connect_timeout": "10", "tcp_user_timeout": "5000"}.items() <= used(other).items()
