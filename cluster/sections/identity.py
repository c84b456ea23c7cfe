"""The section `identity`: who has which address when."""

from enum import StrEnum
from pathlib import Path
from zoneinfo import ZoneInfo

from cluster.document import Faults
from cluster.scalars import names
from cluster.scalars.declared import Section, key, record
from cluster.scalars.kinds import SECRET, Choice, ListOf, Placed, Secret, Table
from cluster.scalars.names import DAY
from cluster.vocabulary import Network


class SignInFormat(StrEnum):
    """What an export of sign-ins is."""

    OPENVPN_STATUS = "openvpn_status"
    OPENVPN_LOG = "openvpn_log"
    CISCO_ASA = "cisco_asa"
    RADIUS_DETAIL = "radius_detail"
    RADIUS_JSON = "radius_json"
    WINDOWS_JSON = "windows_json"
    WINDOWS_CSV = "windows_csv"
    ENTRA_JSON = "entra_json"
    ENTRA_CSV = "entra_csv"
    OKTA_JSON = "okta_json"
    CSV = "csv"
    JSON = "json"


# fmt: off
@record
class SignInColumns:
    """Where an export that has no format of its own keeps what: columns of CSV, dotted paths of JSON."""

    address: str = key(names.LINE, "The address.", example="client_ip")
    user: str = key(names.LINE, "The user.", example="login")
    time: str = key(names.LINE, "When: ISO 8601, or seconds or milliseconds since 1970.", example="at")
    event: str | None = key(names.LINE, "What happened, for `starts` and `stops`.", default=None,
        absent="none: every line is a sign-in")


SIGN_IN_COLUMNS = Section.of(SignInColumns, "columns", text="")


@record
class SignInSource:
    """An export of sign-ins that somebody else writes."""

    name: str = key(names.NAME, "Its name in logs.", absent="its format")
    format: SignInFormat = key(Choice(tuple(SignInFormat)), "What it is (docs/enrichment.md has a sample of each).")
    path: str = key(names.FILE,
        "The file, beside this one; it may grow, be rotated or be replaced. With `*` in its name: all files that "
        "match.", example="/var/log/radius/detail-*")
    hold: int | None = key(names.seconds(60, 30 * DAY), "How long a sign holds without another one.", default=None,
        absent="`identity.hold`")
    time_zone: ZoneInfo | None = key(names.TIME_ZONE, "Time zone of times without an offset.", default=None,
        absent="the site's")
    columns: SignInColumns | None = key(SIGN_IN_COLUMNS,
        "Formats `csv` and `json`: where they keep what. In JSON, `a.b` is b within a.", default=None,
        absent="needed there, nowhere else", example="{address: client_ip, user: login, time: at}")
    starts: tuple[str, ...] = key(ListOf(names.LINE), "Values of `event` that are sign-ins.", default=(),
        absent="all but `stops`", example="[login]")
    stops: tuple[str, ...] = key(ListOf(names.LINE), "Values of `event` that are sign-outs.", default=(),
        example="[logout]")


SIGN_IN_SOURCE = Section.of(SignInSource, "source of sign-ins", text="")


@record
class IdentitySettings:
    """Who has which address when, from exports of sign-ins (docs/enrichment.md)."""

    sources: tuple[SignInSource, ...] = key(ListOf(SIGN_IN_SOURCE), "Exports of sign-ins.", default=())
    hold: int = key(names.seconds(60, 30 * DAY), "How long a sign of a user at an address holds without another one.",
        default=8 * 3_600)
    domains: tuple[str, ...] = key(ListOf(names.LINE),
        "Domains that are left out of users' names, so that all sources name a person alike.", default=(),
        example="[EXAMPLE, example.org]")
    shared: tuple[Network, ...] = key(ListOf(names.PREFIX),
        "Addresses that many users have at the same time, such as a NAT's or a terminal server's: they are nobody's.",
        default=(), example="[203.0.113.8/32]")
    pseudonymise: "Secret | None" = key(SECRET,
        "Key, of 16 bytes or more, of the pseudonyms that leave in place of users' names.", default=None,
        absent="names leave in clear", example="{file: /run/secrets/pseudonyms}")
    delay: int = key(names.seconds(0, DAY),
        "How long after an event its line may come: clients are judged, and told, so much later. Give it what "
        "exports of your sign-ins ordinarily take.", default=60)


IDENTITY = Section.of(IdentitySettings, "identity")
# fmt: on

_MAPPED = (SignInFormat.CSV, SignInFormat.JSON)
"""Formats whose columns cluster.yaml names."""


def build_identity(table: Table | None, folder: Path, faults: Faults) -> IdentitySettings:
    """Return the section, paths relative to `folder`; sources have their format's name where they give none."""
    given = dict(table or {})
    owners: dict[str, str] = {}
    found = []
    for placed in given.get("sources", []):
        source = placed.value
        kind: SignInFormat | None = source.get("format")
        if kind is None or "path" not in source:
            continue
        name = source.get("name") or kind.value
        if name in owners:
            faults.add(placed.path, name, "another name", f"{owners[name]} has it; give each a name of its own")
        owners.setdefault(name, placed.path)
        _check_columns(kind, placed, faults)
        found.append(Placed(placed.path, source | {"name": name}))
    settings: IdentitySettings = IDENTITY.build(given | {"sources": found}, folder)
    return settings


def _check_columns(kind: SignInFormat, placed: Placed[Table], faults: Faults) -> None:
    """Record columns that are missing, or that nobody reads."""
    source = placed.value
    columns = source.get("columns", {})
    if kind in _MAPPED and columns is None:
        faults.add(f"{placed.path}.columns", "missing", "names of the columns address, user and time")
    if kind not in _MAPPED:
        for key in ("columns", "starts", "stops"):
            if source.get(key):
                faults.add(f"{placed.path}.{key}", "given", f"nothing: {kind.value} knows its own", "leave it out")
    elif columns and columns.get("event") is None and (source.get("starts") or source.get("stops")):
        faults.add(f"{placed.path}.columns.event", "missing", "the column that starts and stops look at")
