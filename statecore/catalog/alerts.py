"""The last state of each alert that each channel has sent, so that each change is sent once."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, and_, insert, select, update

from statecore.catalog import tables
from statecore.catalog.queries import one
from statecore.catalog.records import ToldAlertRecord
from statecore.catalog.transactions import Transactions, again_after_conflict

told = tables.told_alerts


class Alerts:
    """The last state of each alert that each channel has sent; ``ToldAlertRecord`` explains channel and subject."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def told(self, channel: str) -> list[ToldAlertRecord]:
        """Return the alerts that a channel has sent or claimed."""
        query = select(told).where(told.c.channel == channel).order_by(told.c.subject, told.c.alert)
        return self._transactions.all(query, ToldAlertRecord)

    @again_after_conflict
    def claim(self, channel: str, subject: str, alert: str, *, firing: bool, ttl_ms: int) -> bool:
        """Claim the sending of a change; of several callers at once, one succeeds.

        Returns False when the channel has sent it, or another claim has not expired.
        """
        key = _is(channel, subject, alert)
        with self._transactions.write() as connection:
            now_ms = self._transactions.now_ms_in(connection)
            self._insert_if_missing(connection, channel, subject, alert)
            free = and_(key, told.c.firing != firing, told.c.claimed_until_ms <= now_ms)
            claimed = connection.execute(update(told).where(free).values(claimed_until_ms=now_ms + ttl_ms))
            return claimed.rowcount == 1

    @again_after_conflict
    def note(self, channel: str, subject: str, alert: str, *, changed_ms: int | None) -> None:
        """Record since when an alert is otherwise than sent; None if it is as sent."""
        with self._transactions.write() as connection:
            self._insert_if_missing(connection, channel, subject, alert)
            connection.execute(update(told).where(_is(channel, subject, alert)).values(changed_ms=changed_ms))

    def confirm(self, channel: str, subject: str, alert: str, *, firing: bool) -> None:
        """Record that a claimed change was sent."""
        with self._transactions.write() as connection:
            now_ms = self._transactions.now_ms_in(connection)
            values = {"firing": firing, "told_ms": now_ms, "changed_ms": None, "claimed_until_ms": 0}
            connection.execute(update(told).where(_is(channel, subject, alert)).values(**values))

    def _insert_if_missing(self, connection: Connection, channel: str, subject: str, alert: str) -> None:
        if one(connection, told, _is(channel, subject, alert), kind=ToldAlertRecord) is None:
            values = {"channel": channel, "subject": subject, "alert": alert}
            connection.execute(insert(told).values(**values, firing=False, claimed_until_ms=0))


def _is(channel: str, subject: str, alert: str) -> ColumnElement[bool]:
    return and_(told.c.channel == channel, told.c.subject == subject, told.c.alert == alert)
