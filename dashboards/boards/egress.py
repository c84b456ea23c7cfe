"""Egress & security: what leaves the cluster, who sends it, when, and whether it is allowed."""

from collections.abc import Sequence

from app.units import format_duration, format_size
from cluster.calendar import off_hours_words
from cluster.model import UNLISTED, Cluster, Role
from dashboards import panels, questions
from dashboards import variables as var
from dashboards.board import Page
from dashboards.links import Link, clicked, to_board
from dashboards.palette import DIM, QUIET
from dashboards.panels import Built, Cell, Face, Limit, TableOrder
from dashboards.parts import ends
from store import schema
from store.influxql import (
    Query,
    Select,
    Unit,
    bit_rate,
    chosen,
    compare,
    count,
    highest,
    lowest,
    moment,
    newest,
    not_in,
    top_rows,
    total,
)

BOARD = "egress"

_ADDRESSES = 2_000
_DAY = "24h"
_ALL = "in all"


def page(cluster: Cluster) -> Page:
    """Return the board."""
    return Page(
        BOARD,
        (
            *_tiles(cluster),
            _over_time(cluster),
            _sensitive_over_time(cluster),
            _off_hours_over_time(cluster),
            _exfiltration(cluster),
            _shapes(cluster),
            _beacons(cluster),
            _destinations(cluster),
            _contacts(cluster),
            _violations(cluster),
            _unknown_nodes(cluster),
            _known_bad(cluster),
            _new_networks(cluster),
            _address_names(cluster),
        ),
        since=_DAY,
        variables=var.from_and_to(cluster, UNLISTED),
        tags=("security",),
    )


def largest_and_all(conversations: Select, labels: tuple[str, ...] = questions.LOCATED) -> list[Query]:
    """Return the most bytes of one conversation, which an alert compares, and the sum of all, which none does.

    Args:
        conversations: what is summed up.
        labels: what tells them apart for the alert.
    """
    return [
        Select(conversations.by(*labels))
        .take(highest(schema.BYTES))
        .per_series("Bytes of the largest conversation.", alias="largest"),
        conversations.per_series("Bytes of all conversations.", alias=_ALL),
    ]


def all_overrides(limit: float) -> list[panels.Json]:
    """Return how a tile colours the sum beside the largest conversation: many small ones are worth a look."""
    return [panels.override(_ALL, thresholds={"mode": "absolute", "steps": Limit(look=limit).steps()})]


def _tiles(cluster: Cluster) -> list[Built]:
    limits = cluster.thresholds
    explore = (_explore(),)
    return [
        panels.stat(
            cluster,
            Face(
                "unknown_volume", f"To unknown destinations, {format_duration(limits.exfil_window)}",
                "What model storage sent to destinations in no group: in its largest conversation, in all.",
                "It cannot say what the bytes are. Its warning judges each conversation, *Exfiltration* all of them.",
                "The destinations below name both ends.",
                x=0, y=0, w=6, h=5, links=explore, since=f"{limits.exfil_window}s",
            ),
            largest_and_all(questions.sent_to_unknown(cluster, schema.RAW), questions.LISTED),
            limit=Limit(act=limits.exfil_volume, look=limits.exfil_volume / 2),
            missing=_nothing(questions.role_ids(cluster, Role.MODEL_STORAGE)),
            overrides=all_overrides(limits.exfil_volume),
        ),
        panels.stat(
            cluster,
            Face(
                "off_hours", f"Sensitive, in off-hours, {format_duration(limits.off_hours_window)}",
                "Bytes that sensitive groups sent outside in off-hours: in the largest conversation, in all.",
                "Off-hours are those of cluster.yaml; a planned night transfer looks like any other.",
                "The chart below shows which group, and when.",
                x=6, y=0, w=6, h=5, links=explore, since=f"{limits.off_hours_window}s",
            ),
            largest_and_all(questions.sent_off_hours(cluster, schema.RAW)),
            limit=Limit(act=limits.off_hours_bytes, look=limits.off_hours_bytes / 2),
            missing=_nothing(questions.sensitive_ids(cluster)),
            overrides=all_overrides(limits.off_hours_bytes),
        ),
        panels.single(
            cluster,
            Face(
                "first_contacts", "First contacts, 24 h",
                "Outside destinations that model storage or training nodes reached for the first time ever.",
                "A destination behind a new address is new, whoever it belongs to.",
                "The table below names source, destination and volume.",
                x=12, y=0, w=6, h=5, links=explore, since=_DAY,
            ),
            _contact_count(cluster),
            # A first contact alerts for some minutes, and stands here for a day.
            limit=Limit(look=1),
            missing=_nothing(questions.role_ids(cluster, Role.MODEL_STORAGE, Role.TRAINING)),
        ),
        panels.single(
            cluster,
            Face(
                "violations", "Bytes nobody allowed, 24 h",
                "Traffic between groups that `allowed` in cluster.yaml does not list.",
                "It may be harmless and merely unlisted; nothing was blocked.",
                "The group matrix shows the pairs, the table below the conversations.",
                x=18, y=0, w=6, h=5, links=(_matrix(),), since=_DAY,
            ),
            questions.violating(schema.MINUTE).per_series("Bytes of conversations that are not allowed."),
            limit=Limit(look=1),
        ),
    ]  # fmt: skip


def _nothing(watched: Sequence[str]) -> tuple[str, str]:
    """Return what a tile says that found nothing: where no group is watched, others may have sent anything."""
    return ("none", QUIET) if watched else ("not watched", DIM)


def _explore() -> Link:
    return to_board("explore", keep=var.GROUPS)


def _matrix() -> Link:
    return to_board("group_matrix", keep=var.GROUPS)


def _contact_count(cluster: Cluster) -> Query:
    contacts = questions.first_contacts(cluster)
    # A contact has a row for each of its first windows: count series, not rows.
    each = contacts.by(*schema.CONVERSATION)
    return Select(each).take(count(schema.BYTES, "contacts")).per_series("First contacts.")


def _egress(cluster: Cluster) -> Select:
    return Select(schema.EGRESS, schema.MINUTE).where(
        not_in(schema.SRC_GROUP, cluster.outside_ids()),
        *var.chosen_groups(),
    )


def _over_time(cluster: Cluster) -> Built:
    query = _egress(cluster).take(bit_rate(schema.BYTES)).by(schema.DST_GROUP)
    return panels.time_series(
        cluster,
        Face(
            "egress_over_time", "To the outside by destination group",
            "Bit/s from the chosen groups to approved and unknown destinations, stacked.",
            "Answers to clients outside are in it; content is not seen, and who opened a conversation is inferred.",
            "Click a group to list only its destinations.",
            x=0, y=5, w=8, h=9, links=(_explore(),),
        ),
        [query.over_time(cluster, "bit/s to a destination group.", alias=f"$tag_{schema.DST_GROUP}")],
        stacked=True,
        overrides=panels.group_series(cluster),
        missing="none",
        links=(to_board("egress", "Only this group", keep=(var.SOURCE,), dst=clicked(schema.DST_GROUP)),),
    )  # fmt: skip


def _sent_over_time(cluster: Cluster, face: Face, asked: Select, volume: int, window: int) -> Built:
    """Return bit/s by source group; the line is the mean rate that reaches the volume in the window."""
    sent = Select(asked.source, asked.retention, conditions=asked.conditions).take(bit_rate(schema.BYTES))
    alias = f"$tag_{schema.SRC_GROUP}"
    return panels.time_series(
        cluster,
        face,
        [sent.by(schema.SRC_GROUP).over_time(cluster, "bit/s of a group.", alias=alias)],
        limit=Limit(act=volume * 8 / window),
        overrides=panels.group_series(cluster),
        missing="none",
        links=(to_board("egress", "Only this group", keep=(var.DESTINATION,), src=clicked(schema.SRC_GROUP)),),
    )


def _sensitive_over_time(cluster: Cluster) -> Built:
    limits = cluster.thresholds
    return _sent_over_time(
        cluster,
        Face(
            "sensitive_over_time", "Model storage to unknown destinations",
            "Bit/s from model storage to destinations in no group.",
            f"Dashed: the mean rate that reaches the alert's volume in {format_duration(limits.exfil_window)};"
            " a slow drip stays below it.",
            "Click a group to list only its destinations.",
            x=8, y=5, w=8, h=9, links=(_explore(),),
        ),
        questions.sent_to_unknown(cluster, schema.MINUTE),
        limits.exfil_volume,
        limits.exfil_window,
    )  # fmt: skip


def _conversation_columns(cluster: Cluster, *, groups: bool = True) -> list[panels.Column]:
    columns = [
        *ends.both(cluster, BOARD),
        panels.Column(schema.PROTO, "Protocol", width=90),
        panels.Column(schema.SERVICE, "Service", width=110),
    ]  # fmt: skip
    return columns if groups else [column for column in columns if not column.name.endswith("_group")]


def _destinations(cluster: Cluster) -> Built:
    inner = (
        _egress(cluster).take(total(schema.BYTES), total(schema.FLOWS), total(schema.DURATION)).by(*questions.LISTED)
    )
    return panels.table(
        cluster,
        Face(
            "destinations", "Conversations with the outside, by bytes",
            "The largest conversations of the chosen groups: both ends, service, bytes, and how long bytes flowed.",
            "Beyond the largest of each window, destinations are summed up as other.",
            "Click a source for the node, a group to keep only that one.",
            x=0, y=20, w=24, h=11, links=(_explore(),),
        ),
        [top_rows(inner)],
        [
            *_conversation_columns(cluster),
            *panels.place_columns(),
            panels.Column(schema.FEED, "Feed"),
            panels.Column(schema.BYTES.name, "Bytes", Unit.BYTES, Cell.BAR),
            panels.Column(schema.FLOWS.name, "Flow records", Unit.COUNT, width=120),
            panels.Column(schema.DURATION.name, "Duration", Unit.SECONDS, width=110),
        ],
        order=TableOrder(schema.BYTES.name),
    )  # fmt: skip


def _contacts(cluster: Cluster) -> Built:
    first = moment(lowest(schema.CONTACT_FIRST))
    select = (
        Select(schema.CONTACT, schema.RAW)
        .take(first, total(schema.BYTES), total(schema.DURATION))
        .where(
            *var.chosen_groups(),
            compare(schema.CONTACT_NEW, "=", 1),
        )
        .by(*questions.LISTED)
    )
    return panels.table(
        cluster,
        Face(
            "contacts", "First contacts",
            "Every outside destination that a source reached for the first time ever, newest first.",
            "What was reached before clusterflow began to learn is not new; a scan is one row with other.",
            "Click a source to see what else its node does.",
            x=0, y=31, w=24, h=9, links=(_explore(),),
        ),
        [select.per_series("A first contact.").as_table()],
        [
            panels.Column(schema.CONTACT_FIRST.name, "First seen", Unit.MOMENT, width=170),
            *_conversation_columns(cluster),
            *panels.place_columns(),
            panels.Column(schema.FEED, "Feed"),
            panels.Column(schema.BYTES.name, "Bytes", Unit.BYTES, Cell.BAR),
            panels.Column(schema.DURATION.name, "Duration", Unit.SECONDS, width=100),
        ],
        order=TableOrder(schema.CONTACT_FIRST.name),
    )  # fmt: skip


def _off_hours_over_time(cluster: Cluster) -> Built:
    limits = cluster.thresholds
    return _sent_over_time(
        cluster,
        Face(
            "off_hours_over_time", "Sensitive groups in off-hours",
            f"Bit/s that sensitive groups sent outside in off-hours: {off_hours_words(cluster)}.",
            f"The dashed line is the mean rate that reaches the alert's volume in "
            f"{format_duration(limits.off_hours_window)}; outside off-hours there is a gap.",
            "Click a group to list its destinations.",
            x=16, y=5, w=8, h=9, links=(_explore(),),
        ),
        questions.sent_off_hours(cluster, schema.MINUTE),
        limits.off_hours_bytes,
        limits.off_hours_window,
    )  # fmt: skip


def violation_table(cluster: Cluster, name: str, *, x: int, y: int, w: int, h: int) -> Built:
    """Return the conversations that are not allowed, largest first."""
    inner = (
        Select(schema.VIOLATION, schema.MINUTE)
        .take(total(schema.BYTES), total(schema.FLOWS))
        .where(questions.NOT_ALLOWED, *var.chosen_groups())
        .by(*schema.CONVERSATION)
    )
    return panels.table(
        cluster,
        Face(
            name, "Conversations that nobody allowed",
            "Who talked to whom although `allowed` does not list the pair, largest first.",
            "Nothing was blocked, and an unlisted pair may be right: then add it to cluster.yaml.",
            "Click a source to see what else its node does.",
            x=x, y=y, w=w, h=h, links=(_matrix(),),
        ),
        [top_rows(inner)],
        [
            *_conversation_columns(cluster),
            panels.Column(schema.BYTES.name, "Bytes", Unit.BYTES, Cell.BAR),
            panels.Column(schema.FLOWS.name, "Flow records", Unit.COUNT, width=120),
        ],
        order=TableOrder(schema.BYTES.name),
    )  # fmt: skip


def _violations(cluster: Cluster) -> Built:
    return violation_table(cluster, "violation_list", x=0, y=40, w=15, h=10)


def _unknown_nodes(cluster: Cluster) -> Built:
    inner = (
        Select(schema.UNKNOWN_NODE, schema.MINUTE)
        .take(total(schema.BYTES), total(schema.FLOWS))
        .where(chosen(schema.GROUP, var.SOURCE))
        .by(schema.GROUP, schema.ADDRESS)
    )
    return panels.table(
        cluster,
        Face(
            "unknown_nodes", "Addresses that no inventory knows",
            "Addresses inside a group's prefixes that sent or received, but belong to no listed node.",
            "Groups without a node list are not judged.",
            "Add the node to cluster.yaml, or find out what the machine is.",
            x=15, y=40, w=9, h=10, links=(_explore(),),
        ),
        [top_rows(inner)],
        [
            panels.Column(schema.ADDRESS, "Address"),
            panels.Column(schema.GROUP, "Group", mappings=(panels.group_words(cluster),)),
            panels.Column(schema.BYTES.name, "Bytes", Unit.BYTES, Cell.BAR),
            panels.Column(schema.FLOWS.name, "Flow records", Unit.COUNT, width=120),
        ],
        order=TableOrder(schema.BYTES.name),
    )  # fmt: skip


def _known_bad(cluster: Cluster) -> Built:
    listed, seen = moment(lowest(schema.LISTED_SINCE)), moment(highest(schema.SEEN_AT))
    select = (
        Select(schema.THREAT, schema.RAW)
        .take(seen, total(schema.BYTES), highest(schema.CONFIDENCE), listed)
        .by(*schema.CONVERSATION, schema.FEED, schema.INDICATOR, schema.NETWORK, schema.COUNTRY, schema.LATE)
    )
    return panels.table(
        cluster,
        Face(
            "known_bad", "Known bad",
            "Conversations with addresses that a threat feed lists, in either direction, newest first.",
            "A feed may be wrong or old, and an address may be shared by many.",
            "Ask who the address is, then what its other end did; the runbook continues from there.",
            x=0, y=50, w=24, h=8, links=(_explore(),),
        ),
        [select.per_series("A conversation with a listed address.").as_table()],
        [
            panels.Column(schema.SEEN_AT.name, "Last seen", Unit.MOMENT, width=170),
            *_conversation_columns(cluster, groups=False),
            panels.Column(schema.FEED, "Feed"),
            panels.Column(schema.INDICATOR, "Listed as"),
            panels.Column(schema.NETWORK, "Network"),
            panels.Column(schema.COUNTRY, "Country", width=90),
            panels.Column(schema.LISTED_SINCE.name, "Listed since", Unit.MOMENT, width=170),
            panels.Column(schema.LATE, "Late", width=70),
            panels.Column(schema.CONFIDENCE.name, "Confidence", "percent", width=100, digits=0),
            panels.Column(schema.BYTES.name, "Bytes", Unit.BYTES, Cell.BAR),
        ],
        order=TableOrder(schema.SEEN_AT.name),
    )  # fmt: skip


def _new_networks(cluster: Cluster) -> Built:
    first = moment(lowest(schema.CONTACT_FIRST))
    select = (
        Select(schema.NEW_NETWORK, schema.NEW_NETWORK.kept)
        .take(
            first,
            total(schema.BYTES),
            total(schema.DURATION),
            highest(schema.EVENT_SOURCES),
            highest(schema.EVENT_DESTINATIONS),
        )
        .where(chosen(schema.SRC_GROUP, var.SOURCE), compare(schema.BYTES, ">", 0))
        .by(*schema.NEW_NETWORK.tags)
    )
    limits = cluster.thresholds
    return panels.table(
        cluster,
        Face(
            "new_networks", "New networks, 30 d",
            f"Networks to which a group sent more than {format_size(limits.new_network_bytes)} within "
            f"{format_duration(limits.new_network_window)} for the first time: its largest conversation, and the "
            "bytes of all in the first 15 minutes.",
            "Without `geography` in cluster.yaml no network is known; one network may belong to many tenants.",
            "Click a source to see what else its node does.",
            x=0, y=58, w=24, h=7, links=(_explore(),), since="30d",
        ),
        [select.per_series("A network that is new to a group.").as_table()],
        [
            panels.Column(schema.CONTACT_FIRST.name, "Since", Unit.MOMENT, width=170),
            *_conversation_columns(cluster),
            *panels.place_columns(),
            panels.Column(schema.APPLICATION, "Is"),
            panels.Column(schema.FEED, "Feed"),
            panels.Column(schema.EVENT_SOURCES.name, "Sources", Unit.COUNT, width=90),
            panels.Column(schema.EVENT_DESTINATIONS.name, "Destinations", Unit.COUNT, width=110),
            panels.Column(schema.BYTES.name, "Bytes", Unit.BYTES, Cell.BAR),
            panels.Column(schema.DURATION.name, "Duration", Unit.SECONDS, width=100),
        ],
        order=TableOrder(schema.CONTACT_FIRST.name),
    )  # fmt: skip


def _address_names(cluster: Cluster) -> Built:
    directory = schema.ADDRESS_NAME
    select = Select(directory, directory.kept).take(*(newest(field) for field in directory.fields)).by(schema.ADDRESS)
    return panels.table(
        cluster,
        Face(
            "address_names", "Names of outside addresses, 30 d",
            "What files and reverse DNS say of each outside address that was first seen, or known otherwise, in 30 "
            "days; those on a feed first.",
            "A name proves nothing: the owner of an address chooses it, unless it comes from a file of yours.",
            "Filter a column by a part of an address or name; the tables above show who talked to it.",
            x=0, y=65, w=24, h=10, links=(_explore(),), since="30d",
        ),
        [select.per_series("An outside address.").as_table()],
        [
            panels.Column(schema.ADDRESS, "Address"),
            panels.Column(schema.KNOWN_NAME.name, "Name"),
            panels.Column(schema.NAME_SOURCE.name, "Name is from"),
            *panels.place_columns(),
            panels.Column(schema.CITY, "City"),
            panels.Column(schema.APPLICATION, "Is"),
            panels.Column(schema.FEED, "Feed"),
        ],
        order=TableOrder(schema.FEED),
        limit_rows=_ADDRESSES,
    )  # fmt: skip


def _exfiltration(cluster: Cluster) -> Built:
    return _incidents(
        cluster,
        schema.EXFILTRATION,
        Face(
            "exfiltration", "Exfiltration, 30 d",
            "Incidents: what left beyond what may, however it was split, and the sum that was too large.",
            "It cannot say what the bytes are. `other` stands for several, of which none has most of the bytes; "
            "names are those of the begin.",
            "The tables above show each conversation.",
            x=0, y=14, w=24, h=6, links=(_explore(),), since="30d",
        ),
        panels.Column(schema.KIND, "Sum", width=90),
    )  # fmt: skip


def _shapes(cluster: Cluster) -> Built:
    words: dict[int | str, tuple[str, str]] = {kind.value: (text, QUIET) for kind, text in schema.SHAPE_WORDS.items()}
    return _incidents(
        cluster,
        schema.SHAPE,
        Face(
            "shapes", "Odd ways out, 30 d",
            "Incidents: tunnels, ICMP, DNS and NTP with volume, ports without a service, what outsiders fetched, "
            "connections that stayed open at a constant rate; to unapproved addresses only.",
            "Who opened a connection is told from ports. `other` stands for several, of which none has most of the "
            "bytes; names are those of the begin.",
            "The tables above show each conversation.",
            x=0, y=75, w=24, h=7, links=(_explore(),), since="30d",
        ),
        panels.Column(schema.KIND, "Way", width=170, mappings=(panels.words(words),)),
    )  # fmt: skip


def _beacons(cluster: Cluster) -> Built:
    measurement = schema.BEACON
    select = (
        Select(measurement, measurement.kept)
        .take(*(newest(field) for field in measurement.fields))
        .where(compare(schema.BEACON_SCORE, ">", 0))
        .by(*measurement.tags)
    )
    return panels.table(
        cluster,
        Face(
            "beacons", "Beacons, 24 h",
            "Conversations with unapproved addresses that begin again and again as by a clock, the surest first.",
            "It cannot say what calls. Periods below 50 s, and calls of which a sampling exporter saw only some, are "
            "not told. What many sources call is a service, most often.",
            "The tables above show each conversation.",
            x=0, y=82, w=24, h=8, links=(_explore(),), since="3h",
        ),
        [select.per_series("A conversation.").as_table()],
        [
            *_conversation_columns(cluster),
            *panels.place_columns(),
            panels.Column(schema.BEACON_SCORE.name, "Score", Unit.RATIO, width=80),
            panels.Column(schema.TIMING_SCORE.name, "Timing", Unit.RATIO, width=80),
            panels.Column(schema.CALL_PERIOD.name, "Every", Unit.SECONDS, width=90),
            panels.Column(schema.CALL_JITTER.name, "Give or take", Unit.RATIO, width=100),
            panels.Column(schema.CALLS.name, "Calls", Unit.COUNT, width=80),
            panels.Column(schema.EVENT_SOURCES.name, "Sources", Unit.COUNT, width=90),
            panels.Column(schema.EVENT_BYTES.name, "Bytes", Unit.BYTES, Cell.BAR),
            panels.Column(schema.EVENT_SECONDS.name, "Since", Unit.SECONDS, width=90),
        ],
        order=TableOrder(schema.BEACON_SCORE.name),
    )  # fmt: skip


def _incidents(cluster: Cluster, measurement: schema.Measurement, face: Face, kind: panels.Column) -> Built:
    """Return the table of incidents that have rows as those of exfiltration."""
    fields = (
        schema.EVENT_BYTES, schema.EVENT_SECONDS, schema.EVENT_SOURCES, schema.EVENT_DESTINATIONS, schema.ARTEFACT_NAME,
        schema.LEAK_SHARE,
    )  # fmt: skip
    select = (
        Select(measurement, measurement.kept)
        .take(moment(newest(schema.LEAK_SINCE)), *map(newest, fields))
        .where(compare(schema.LEAK_UNTIL, ">", 0))
        .by(*measurement.tags)
    )
    columns = [
        column for column in _conversation_columns(cluster) if column.name in (schema.SRC, schema.SRC_GROUP, schema.DST)
    ]
    return panels.table(
        cluster,
        face,
        [select.per_series("An incident.").as_table()],
        [
            panels.Column(schema.LEAK_SINCE.name, "Since", Unit.MOMENT, width=170),
            kind,
            *columns,
            panels.Column(schema.LARGEST, "Largest when it began", width=430),
            panels.Column(schema.EVENT_SOURCES.name, "Sources", Unit.COUNT, width=90),
            panels.Column(schema.EVENT_DESTINATIONS.name, "Destinations", Unit.COUNT, width=110),
            panels.Column(schema.EVENT_BYTES.name, "Bytes", Unit.BYTES, Cell.BAR),
            panels.Column(schema.EVENT_SECONDS.name, "Duration", Unit.SECONDS, width=100),
            panels.Column(schema.ARTEFACT_NAME.name, "Nearest artefact"),
            panels.Column(schema.LEAK_SHARE.name, "Of it", Unit.RATIO, width=80),
        ],
        order=TableOrder(schema.LEAK_SINCE.name),
    )  # fmt: skip
