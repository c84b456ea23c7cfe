"""The section `inference`: what is expected of the clients of inference nodes."""

from datetime import time

from cluster.document import Faults
from cluster.scalars import names
from cluster.scalars.declared import Section, key, record
from cluster.scalars.kinds import FLAG, ListOf, Placed, Table, closest
from cluster.sections.network.groups import Group, Role, check_references
from cluster.sections.network.services import Service, check_services
from cluster.vocabulary import ANY


# fmt: off
@record
class InferenceHours:
    """When clients are expected, in the site's time zone; `start` > `end` wraps around midnight, `end` is outside."""

    start: time = key(names.TIME_OF_DAY, "When clients begin to be expected, local time.", name="from",
        example='"06:00"')
    end: time = key(names.TIME_OF_DAY, "When they end to be; earlier than `from` wraps around midnight.", name="to",
        example='"22:00"')
    weekends: bool = key(FLAG, "Whether clients are expected on Saturday and Sunday, local time, at these hours.",
        default=True)


INFERENCE_HOURS = Section.of(InferenceHours, "hours", text="")


@record
class AccessEntry:
    """Clients that may ask inference nodes: those whom every key of an entry names."""

    sources: tuple[str, ...] = key(ListOf(names.GROUP_REFERENCE), "Groups of the clients.", default=(), name="from",
        absent="all that may ask at all", example="[users]")
    users: tuple[str, ...] = key(ListOf(names.LINE), "Users, as `identity` names them, in clear or as pseudonyms.",
        default=(), absent="everybody, known or not", example="[alice, bob]")
    countries: tuple[str, ...] = key(ListOf(names.COUNTRY),
        "Countries of the clients' addresses, as `geography` tells them: addresses inside have none.", default=(),
        absent="all", example="[NL, DE]")
    destinations: tuple[str, ...] = key(ListOf(names.GROUP_REFERENCE), "Inference groups that they may ask.",
        default=(), name="to", absent="all", example="[inference]")
    services: tuple[str, ...] = key(ListOf(names.SERVICE_NAME), "Services that they may call.", default=(),
        absent="all", example="[https]")
    hours: InferenceHours | None = key(INFERENCE_HOURS, "When they may, in place of `inference.hours`.", default=None,
        absent="`inference.hours`")


ACCESS = Section.of(AccessEntry, "access entry")


@record
class Inference:
    """What is expected of the clients of inference nodes."""

    hours: InferenceHours | None = key(INFERENCE_HOURS,
        "When clients are expected; requests at other times are off-window.", default=None, absent="at any time")
    sources: tuple[str, ...] = key(ListOf(names.GROUP_REFERENCE),
        "Groups whose clients may reach inference nodes, out of those that `allowed` lists.", default=(),
        absent="all that `allowed` lists", example="[users]")
    access: tuple[AccessEntry, ...] = key(ListOf(ACCESS),
        "Who of these in particular, by user, country, service and hour.", default=(), absent="all of them",
        example="[{from: [users], users: [alice, bob]}]")


INFERENCE = Section.of(Inference, "inference")
# fmt: on


def build_inference(
    root: Table, groups: tuple[Group, ...], group_ids: list[str], services: tuple[Service, ...], faults: Faults
) -> Inference:
    """Return the section.

    Args:
        root: what the whole file says: users need sign-ins, countries need a file that tells them.
        groups: all groups.
        group_ids: what groups may be called, broken ones included.
        services: all services.
        faults: added to.
    """
    given = root.get("inference") or {}
    check_references(given.get("sources") or [], group_ids, faults, not_all="leave out sources: then `allowed` decides")
    _check_hours(given.get("hours"), "inference.hours", faults)
    inference_groups = {group.id for group in groups if group.role is Role.INFERENCE}
    broken = set(group_ids) - {group.id for group in groups}
    entries: list[Placed[Table]] = given.get("access") or []
    for placed in entries:
        entry = placed.value
        check_references(entry.get("from") or [], group_ids, faults)
        for destination in entry.get("to") or []:
            if destination.value not in inference_groups | broken:
                hint = closest(destination.value, inference_groups)
                faults.add(destination.path, destination.value, "a group of role inference", hint)
        check_services(entry.get("services") or [], services, faults)
        if entry.get("users") and not (root.get("identity") or {}).get("sources"):
            hint = "without sign-ins no user is ever known"
            faults.add(f"{placed.path}.users", "given", "identity.sources", hint)
        if entry.get("countries") and not root.get("geography"):
            hint = "without it no country is ever known"
            faults.add(f"{placed.path}.countries", "given", "the section geography", hint)
        _check_hours(entry.get("hours"), f"{placed.path}.hours", faults)
        if any(source.value == ANY for source in entry.get("from") or []):
            entry["from"] = []
    inference: Inference = INFERENCE.build(given)
    return inference


def _check_hours(table: Table | None, path: str, faults: Faults) -> None:
    given = table or {}
    if given.get("from") is not None and given.get("from") == given.get("to"):
        hint = "leave out hours where clients come at any time"
        faults.add(f"{path}.to", f"{given['to']:%H:%M}", "another time than from", hint)
