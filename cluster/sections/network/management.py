"""The sections `management` and `artefacts`: what management may be asked, and what is worth stealing."""

from enum import StrEnum

from app.units import format_size
from cluster.document import Faults
from cluster.scalars import names
from cluster.scalars.declared import Section, key, record
from cluster.scalars.kinds import ListOf, Placed, Table, one_of
from cluster.scalars.names import DAY
from cluster.sections.network.groups import check_references
from cluster.sections.network.services import Service, check_services

MANAGEMENT_SERVICES = (
    "dhcp", "dns", "grafana", "http", "https", "influxdb", "kafka", "kerberos", "kubernetes", "ldap", "netflow", "ntp",
    "prometheus", "ptp", "sflow", "slurm", "snmp", "syslog",
)  # fmt: skip
"""What machines ordinarily ask of a management network: names, time, log-in directories, scheduling, telemetry."""


SESSION_SERVICES = ("ssh", "telnet", "netconf", "gnmi", "ipmi", "kubernetes", "rdp", "vnc")
"""By which people and their tools change machines."""


class Opening(StrEnum):
    """What a group may open at another, as far as `management` says."""

    ANYTHING = "anything"
    SERVICES = "services"
    """The listed services only."""
    NOTHING = "nothing"


# fmt: off
@record
class Management:
    """What is expected at groups of role management, and which services administer machines anywhere."""

    services: tuple[str, ...] = key(ListOf(names.SERVICE_NAME),
        "Services that other groups may open on management nodes, and that management may open outside. Everything "
        "else there is unexpected, whatever `allowed` says; what management opens inside is always expected.",
        default=MANAGEMENT_SERVICES, absent=one_of(f"`{name}`" for name in MANAGEMENT_SERVICES),
        example="[dns, ntp, syslog]")
    sources: tuple[str, ...] = key(ListOf(names.GROUP_REFERENCE),
        "Groups that may open anything on management nodes: the administrators' networks.", default=(),
        example="[admins]")
    sessions: tuple[str, ...] = key(ListOf(names.SERVICE_NAME),
        "Services whose every use is a session of the ledger (`clusterflow sessions`), whoever opens them where. Ports "
        "of your own, such as a controller's API, get a name under `services`.",
        default=SESSION_SERVICES, absent=one_of(f"`{name}`" for name in SESSION_SERVICES),
        example="[ssh, netconf, ipmi, fabric-api]")
    sessions_there: tuple[str, ...] = key(ListOf(names.SERVICE_NAME),
        "The same, on nodes of groups of role management only: Redfish and web pages of BMCs, switches, controllers.",
        default=("http", "https"), absent="`http` and `https`", example="[https]")
    session_gap: int = key(names.seconds(60, DAY),
        "How long a session may be quiet before the next record begins another one.", default=900)


MANAGEMENT = Section.of(Management, "management")
# fmt: on


@record
class Artefact:
    """Something whose size people know by heart, such as the weights of a model; `size` in bytes."""

    name: str
    size: int


def build_management(
    table: Table | None, groups: list[str], services: tuple[Service, ...], faults: Faults
) -> Management:
    """Return the section, and record groups and services that there are not."""
    given = table or {}
    check_references(given.get("sources", []), groups, faults, not_all="it would let everyone open everything there")
    for name in ("services", "sessions", "sessions_there"):
        check_services(given.get(name) or [], services, faults)
    management: Management = MANAGEMENT.build(given)
    return management


def build_artefacts(tables: dict[str, Placed[int]], faults: Faults) -> tuple[Artefact, ...]:
    """Return them by size. Two of one size could not be told apart by a volume."""
    found: dict[int, str] = {}
    for name, placed in tables.items():
        if placed.value in found:
            faults.add(placed.path, format_size(placed.value), "another size", f"{found[placed.value]} has it already")
        found.setdefault(placed.value, name)
    return tuple(Artefact(name, size) for size, name in sorted(found.items()))
