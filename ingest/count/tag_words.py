"""Codes and numbers of flows to the words that become tags, as polars expressions."""

import polars as pl

from ingest.flows.classify import PLANES
from ingest.flows.normalise import Normaliser
from store import schema


class Words:
    """Looks words up for columns of codes.

    Args:
        normaliser: its books know the words. They grow with every batch, so expressions hold for the batch at hand.
    """

    def __init__(self, normaliser: Normaliser) -> None:
        self._books = normaliser
        self._groups = pl.Series("group", normaliser.addresses.groups, pl.String)
        self._protocols = pl.Series("protocol", normaliser.protocols, pl.String)
        self._services = pl.Series("service", normaliser.services.names, pl.String)
        self._planes = pl.Series("plane", [plane.value for plane in PLANES], pl.String)

    def name(self, number: str, tag: str) -> pl.Expr:
        """Node name, or the address itself, of a column of address numbers."""
        return pl.lit(self._books.addresses.names).gather(pl.col(number)).alias(tag)

    def group(self, code: str, tag: str) -> pl.Expr:
        """Group id of a column of group codes."""
        return pl.lit(self._groups).gather(pl.col(code)).alias(tag)

    def protocol(self, code: str) -> pl.Expr:
        """Protocol tag of a column of protocol numbers."""
        return pl.lit(self._protocols).gather(pl.col(code)).alias(schema.PROTO)

    def service(self, code: str) -> pl.Expr:
        """Service tag of a column of service codes."""
        return pl.lit(self._services).gather(pl.col(code)).alias(schema.SERVICE)

    def plane(self, code: str) -> pl.Expr:
        """Plane tag of a column of plane codes."""
        return pl.lit(self._planes).gather(pl.col(code)).alias(schema.PLANE)


def is_set(flags: pl.Series, code: str | pl.Expr) -> pl.Expr:
    """Whether a flag is set, for codes that index the flags."""
    return pl.lit(flags).gather(pl.col(code) if isinstance(code, str) else code)
