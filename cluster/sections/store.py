"""The section `store`: InfluxDB."""

import math
from dataclasses import dataclass
from enum import StrEnum

from cluster.document import Faults
from cluster.scalars import names
from cluster.scalars.declared import Key, Section, check_pair, key, record
from cluster.scalars.kinds import FLAG, SECRET, Choice, Secret, Table


class StoreApi(StrEnum):
    """The write API to use. AUTO asks the server for its version."""

    AUTO = "auto"
    V1 = "v1"
    V2 = "v2"


@record
class Retention:
    """One retention of the database: its name, its window and how long points are kept, in seconds; 0: for ever.

    With `at_least`, one that keeps them for longer stays as it is.
    """

    name: str
    window: int
    keep: int
    at_least: bool = False

    def changes(self, kept: int) -> bool:
        """Return whether one that keeps its points for so many seconds is to keep them for another time."""
        return (kept or math.inf) < (self.keep or math.inf) if self.at_least else kept != self.keep


_KEEP = names.seconds(3_600, 100 * 365 * names.DAY)


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """How long points are kept."""

    keep_raw: int = key(_KEEP, "Base windows, of 10 s.", default=7 * 86_400, name="raw")
    keep_1m: int = key(_KEEP, "Minutes.", default=90 * 86_400, name="1m")
    keep_1h: int = key(_KEEP, "Hours.", default=2 * 365 * 86_400, name="1h")


RETENTION = Section.of(Kept, "retention", text="")


@record
class StoreSettings(Kept):
    """InfluxDB: where, which API, with what rights."""

    url: str = key(names.URL, "InfluxDB's address.", default="http://127.0.0.1:8086")
    api: StoreApi = key(Choice(tuple(StoreApi)), "The write API; `auto` asks the server for its version.",
        default=StoreApi.AUTO)
    database: str = key(names.DATABASE, "The database; on the v2 API the first half of each bucket's name.",
        default="clusterflow")
    org: str = key(names.LINE, "Organisation (v2 API).", default="-")
    token: Secret | None = key(SECRET, "Token (v2 API).", default=None, absent="none", example="{env: INFLUX_TOKEN}")
    username: str | None = key(names.LINE, "User (v1 API).", default=None, absent="none")
    password: Secret | None = key(SECRET, "Its password (v1 API).", default=None, absent="none",
        example="{file: /run/secrets/influx}")
    verify_tls: bool = key(FLAG, "Whether the server's certificate is checked.", default=True)
    ca_file: str | None = key(names.PATH, "Certificates (PEM) of the authorities that it is checked against.",
        default=None, absent="the system's", example="/etc/clusterflow/ca.pem")
    lease: bool = key(FLAG, "Whether of several `analyze`, and of several `deliver`, one works and the others stand by "
        "(docs/deployment.md, a pair of machines).", default=False)
    # KEY WITHOUT FIELD: Key("retention", RETENTION, "How long points are kept.")


STORE = Section.of(StoreSettings, "store", Key("retention", RETENTION, "How long points are kept."))
# fmt: on


def build_store(table: Table | None, faults: Faults) -> StoreSettings:
    """Return the settings, and record a user without a password, or the other way round."""
    check_pair("store", table or {}, "username", "password", faults)
    store: StoreSettings = STORE.build(table)
    return store
