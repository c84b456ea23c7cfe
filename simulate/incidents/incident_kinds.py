"""The table of everything that can be staged: how a scenario's file describes it, and the function that stages it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

from cluster.model import Role
from cluster.scalars import names
from cluster.scalars.declared import Key
from cluster.scalars.kinds import Choice, Number, Whole
from simulate.incidents import staging_egress, staging_inside, staging_jobs, staging_pipeline, staging_shapes
from simulate.incidents.incident import Incident, IncidentKind, Listed, Seen
from simulate.incidents.stage import Stage

_MONTH = 31 * names.DAY

NODE = Key("node", names.NODE_NAME, "The node that sends.", absent="one of the right role", example="gpu-07")
TO = Key("to", names.ADDRESS, "The address outside.", absent="one without other traffic", example="203.0.113.9")
TO_PARTNER = Key("to", names.ADDRESS, "The address outside.", absent="an approved one")
TO_NODE = Key("to", names.NODE_NAME, "The node that receives.", absent="one of the right role")
EXPORTER = Key("exporter", names.NAME, "The exporter.", absent="the last that only sees what others count")
SHARE = Number(0, 1, "share")


def _factor(of: str) -> Key:
    return Key("factor", Number(0, 1_000_000, "factor"), f"Its bytes, as a multiple of `thresholds.{of}`.")


@dataclass(frozen=True, slots=True)
class Play:
    """One kind of incident.

    Attributes:
        make: the function that stages it; its keyword arguments have the names of `keys`.
        keys: what may be said of it; their defaults are those of the arguments.
        value: the key that ``--incident KIND@AT=VALUE`` sets; empty if it takes no value.
        of_job: whether it happens to a run, whose id `make` takes as `job`.
    """

    make: Callable[..., Incident]
    keys: tuple[Key, ...] = ()
    value: str = ""
    of_job: bool = False

    def __post_init__(self) -> None:
        defaults = {name: one.default for name, one in signature(self.make).parameters.items()}
        keys = (key if key.absent else replace(key, default=defaults[key.name]) for key in self.keys)
        object.__setattr__(self, "keys", tuple(keys))

    @property
    def text(self) -> str:
        """What happens, in one sentence."""
        return (self.make.__doc__ or "").splitlines()[0]

    def stage(self, stage: Stage, start: int, end: int, given: Mapping[str, Any]) -> Incident:
        """Return the incident from start to end (epoch seconds); keys that are not given have their defaults."""
        known = {key.name for key in self.keys} | ({"job"} if self.of_job else set())
        chosen = {name: value for name, value in given.items() if name in known and value is not None}
        return self.make(stage, start, end, **{name: _plain(value) for name, value in chosen.items()})


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever the kinds read
    return str(value) if hasattr(value, "packed") else value


# fmt: off
KINDS: dict[IncidentKind, Play] = {
    IncidentKind.BULK_EXFIL: Play(
        staging_egress.bulk_exfil, (_factor("exfil_volume"), NODE, TO), "factor"),
    IncidentKind.DRIP_EXFIL: Play(
        staging_egress.drip_exfil,
        (Key("volume", names.SIZE, "Bytes in all.", example="60 GB"),
         Key("every", names.seconds(10, _MONTH), "Time between two pieces."), NODE, TO)),
    IncidentKind.FIRST_CONTACT: Play(
        staging_egress.first_contact,
        (Key("volume", names.SIZE, "Bytes sent.", example="4 MB"), NODE, TO), "volume"),
    IncidentKind.KNOWN_BAD: Play(
        staging_egress.known_bad,
        (Key("listed", Choice(tuple(Listed)), "What the feed lists: the address; the address until the day before; "
            "the prefix beside its /24 (IPv6: /64)."),
         Key("volume", names.SIZE, "Bytes sent.", example="4 MB"), NODE, TO), "volume"),
    IncidentKind.NEW_NETWORK: Play(
        staging_egress.new_network,
        (Key("volume", names.SIZE, "Bytes sent each time.", example="50 MB"),
         Key("every", names.seconds(10, _MONTH), "Time between two, each to another address of the network.",
             absent="once only", example="26h"), NODE), "volume"),
    IncidentKind.OFF_HOURS_TRANSFER: Play(
        staging_egress.off_hours_transfer, (_factor("off_hours_bytes"), NODE, TO_PARTNER), "factor"),
    IncidentKind.APPROVED_TRANSFER: Play(
        staging_egress.approved_transfer, (_factor("exfil_volume"), NODE, TO_PARTNER), "factor"),
    IncidentKind.THEFT: Play(
        staging_egress.theft,
        (Key("volume", names.SIZE, "Bytes in all.", example="140 GB"),
         Key("role", Choice(tuple(Role)), "Role of the nodes that send."),
         Key("sources", Whole(1, 1_024), "How many nodes send, by turns."),
         Key("destinations", Whole(1, 240), "How many addresses without other traffic get it, by turns."),
         Key("every", names.seconds(10, names.DAY), "Length of a turn.")), "volume"),
    IncidentKind.HIDDEN_CHANNEL: Play(
        staging_shapes.hidden_channel,
        (Key("proto", Whole(1, 255), "Number of its protocol: 47 is GRE, 50 ESP."),
         Key("port", Whole(0, 65_535), "The port, of protocols that have ports."),
         Key("volume", names.SIZE, "Bytes sent.", example="2 GB"),
         Key("role", Choice(tuple(Role)), "Role of the node that sends."), NODE, TO), "volume"),
    IncidentKind.OUTSIDE_PULL: Play(
        staging_shapes.outside_pull,
        (Key("volume", names.SIZE, "Bytes fetched.", example="4 GB"), Key("port", Whole(1, 65_535), "The port."),
         NODE, Key("to", names.ADDRESS, "Who fetches.", absent="one without other traffic")), "volume"),
    IncidentKind.STEADY_CONNECTION: Play(
        staging_shapes.steady_connection,
        (Key("volume", names.SIZE, "Bytes in all.", example="5 GB"),
         Key("role", Choice(tuple(Role)), "Role of the node that sends."), NODE, TO), "volume"),
    IncidentKind.BEACON: Play(
        staging_shapes.beacon,
        (Key("every", names.seconds(10, names.DAY), "Time from call to call."),
         Key("jitter", SHARE, "By which part of itself it varies."),
         Key("volume", names.SIZE, "Bytes of each call.", example="4 kB"),
         Key("sources", Whole(1, 1_024), "How many nodes call."),
         Key("port", Whole(1, 65_535), "The port."), Key("proto", Whole(1, 255), "Number of its protocol."),
         Key("role", Choice(tuple(Role)), "Role of the nodes."), NODE, TO), "jitter"),
    IncidentKind.PORT_SCAN: Play(
        staging_egress.port_scan, (Key("targets", Whole(1, 240), "Addresses that are asked."), NODE), "targets"),
    IncidentKind.MODEL_HUB: Play(
        staging_egress.model_hub,
        (Key("every", names.seconds(60, _MONTH), "Time between two downloads."),
         Key("volume", names.SIZE, "Bytes of each.", example="2 GB"), NODE, TO)),

    IncidentKind.FORBIDDEN_TRANSFER: Play(
        staging_inside.forbidden_transfer, (_factor("violation_bytes"), NODE, TO_NODE), "factor"),
    IncidentKind.STORAGE_BLEED: Play(
        staging_inside.storage_bleed, (_factor("storage_on_compute_bytes"), NODE, TO_NODE), "factor"),
    IncidentKind.SHADOW_NODE: Play(
        staging_inside.shadow_node,
        (_factor("shadow_node_bytes"),
         Key("address", names.ADDRESS, "The unknown address.", absent="a free one of a training group"),
         TO_NODE), "factor"),
    IncidentKind.MANAGEMENT_INTRUDER: Play(
        staging_inside.management_intruder,
        (_factor("management_bytes"), NODE, TO_NODE, Key("port", Whole(1, 65_535), "The port.")), "factor"),
    IncidentKind.MANAGEMENT_SESSION: Play(
        staging_inside.management_session,
        (_factor("first_session_bytes"), NODE, TO_NODE, Key("port", Whole(1, 65_535), "The port."),
         Key("proto", Whole(1, 255), "Number of its protocol."),
         Key("seen", Choice(tuple(Seen)), "Which directions exporters see."),
         Key("every", names.seconds(10, _MONTH), "Time between two, each of 60 s.", absent="once, all the time",
             example="20m")), "factor"),
    IncidentKind.REFUSED_SCAN: Play(
        staging_inside.refused_scan,
        (Key("targets", Whole(1, 1_024), "How many nodes it calls, by turns."),
         Key("every", names.seconds(1, names.DAY), "Time between two calls."), NODE), "targets"),
    IncidentKind.INCAST: Play(
        staging_inside.incast,
        (Key("volume", names.SIZE, "Bytes of each source.", example="10 GB"),
         Key("sources", Whole(1, 1_024), "How many nodes send."), TO_NODE)),
    IncidentKind.DISTURBANCE: Play(
        staging_inside.disturbance,
        (Key("volume", names.SIZE, "Bytes sent.", example="120 GB"), NODE, TO_NODE), "volume"),
    IncidentKind.STORAGE_RUSH: Play(
        staging_inside.storage_rush, (Key("volume", names.SIZE, "Bytes that each reads.", example="60 GB"),), "volume"),
    IncidentKind.INFERENCE_SPIKE: Play(
        staging_inside.inference_spike,
        (Key("factor", Number(1, 1_000), "The load, as a multiple of what is usual then."),), "factor"),
    IncidentKind.INFERENCE_INTRUDER: Play(
        staging_inside.inference_intruder, (_factor("inference_unauthorised_bytes"), NODE, TO_NODE), "factor"),
    IncidentKind.INFERENCE_OFF_WINDOW: Play(
        staging_inside.inference_off_window, (_factor("inference_off_window_bytes"), TO_NODE), "factor"),
    IncidentKind.INFERENCE_UNLISTED: Play(
        staging_inside.inference_unlisted,
        (_factor("inference_access_bytes"),
         Key("client", names.ADDRESS, "Its address.", absent="one that asks every day"),
         TO_NODE, Key("port", Whole(1, 65_535), "The port.")), "factor"),
    IncidentKind.UNUSUAL_COUNTRY: Play(
        staging_inside.unusual_country,
        (_factor("unusual_country_bytes"),
         Key("country", names.COUNTRY, "Where the client is; those whom the service knows are in NL."), TO_NODE,
         Key("port", Whole(1, 65_535), "The port.")), "factor"),
    IncidentKind.CLIENT_CROWD: Play(
        staging_inside.client_crowd,
        (Key("count", Whole(1, 60_000), "How many clients."),
         Key("volume", names.SIZE, "Bytes that each sends.", example="30 MB")), "count"),

    IncidentKind.NODE_DROPOUT: Play(
        staging_jobs.node_dropout,
        (Key("share", SHARE, "What is left of its bytes."), NODE,
         Key("position", Number(0, 0.999), "Which node of the job, as a part of their number.")), "share",
        of_job=True),
    IncidentKind.RACK_DOWN: Play(
        staging_jobs.rack_down, (Key("count", Whole(1, 4_096), "How many nodes."),), "count", of_job=True),
    IncidentKind.DEAD_RAIL: Play(
        staging_jobs.dead_rail, (Key("rail", Whole(0, 1_000), "Number of the rail."), NODE), "rail", of_job=True),
    IncidentKind.WRONG_MTU: Play(
        staging_jobs.wrong_mtu, (Key("packet", Whole(64, 9_000), "Bytes of its full packets."), NODE), "packet",
        of_job=True),
    IncidentKind.HELD_SILENT: Play(
        staging_jobs.held_silent, (Key("count", Whole(0, 4_096), "How many nodes; 0: all."),), "count", of_job=True),
    IncidentKind.COHORT_SLOWDOWN: Play(
        staging_jobs.cohort_slowdown, (Key("share", SHARE, "What is left of their bytes."),), "share",
        of_job=True),
    IncidentKind.JOB_STALLED: Play(staging_jobs.job_stalled, of_job=True),
    IncidentKind.RANKS_MOVED: Play(
        staging_jobs.ranks_moved, (Key("count", Whole(0, 4_096), "How many of its nodes change places; 0: all."),),
        "count", of_job=True),
    IncidentKind.CHECKPOINT_MISSED: Play(staging_jobs.checkpoint_missed, of_job=True),
    IncidentKind.CHECKPOINT_LATE: Play(
        staging_jobs.checkpoint_late,
        (Key("seconds", names.seconds(1, names.DAY), "How much later it begins.", example="2m"),), "seconds",
        of_job=True),
    IncidentKind.CHECKPOINT_SHORT: Play(
        staging_jobs.checkpoint_short,
        (Key("share", SHARE, "What is left of its bytes."),
         Key("missing", Whole(0, 4096), "Or: how many nodes write nothing, the others all.")), "share",
        of_job=True),

    IncidentKind.EXPORTER_SILENT: Play(staging_pipeline.exporter_silent, (EXPORTER,)),
    IncidentKind.EXPORT_OFF: Play(
        staging_pipeline.export_off,
        (Key("exporter", names.NAME, "The exporter: one that speaks sFlow.", absent="the first such"),)),
    IncidentKind.EXPORTER_SKEWED: Play(
        staging_pipeline.exporter_skewed,
        (Key("seconds", names.seconds(1, names.DAY), "By how much its clock is ahead.", example="30m"),
         EXPORTER), "seconds"),
    IncidentKind.EXPORTER_DUPLICATES: Play(
        staging_pipeline.exporter_duplicates,
        (Key("exporter", names.NAME, "Whose flows are repeated.", absent="the first that counts"),
         Key("onto", names.NAME, "Who repeats them: one with `counts: false`.", absent="the first such"))),
    IncidentKind.CONGESTED_LINK: Play(
        staging_pipeline.congested_link,
        (Key("exporter", names.NAME, "The exporter: one that speaks sFlow.", absent="the first such"),
         Key("interface", Whole(1, 4_294_967_295), "ifIndex of the interface.", absent="its last"),
         Key("load", Number(0, 1.2), "What the interface carries, as a share of its speed."),
         Key("discards", Whole(0, 1_000_000), "Packets that it throws away each second."),
         Key("marks", SHARE, "Share of a training node's packets that are marked (not in files)."), NODE), "load"),
    IncidentKind.FLOW_LOSS: Play(
        staging_pipeline.flow_loss, (Key("lost", SHARE, "Part of its datagrams that is lost."), EXPORTER), "lost"),
    IncidentKind.TEMPLATE_LOSS: Play(staging_pipeline.template_loss, (EXPORTER,)),

    IncidentKind.INGEST_STOPPED: Play(staging_pipeline.ingest_stopped),
    IncidentKind.INGEST_BEHIND: Play(
        staging_pipeline.ingest_behind,
        (Key("seconds", names.seconds(1, names.DAY), "By how much it lags.", example="10m"),), "seconds"),
    IncidentKind.ANALYSIS_STOPPED: Play(staging_pipeline.analysis_stopped),
    IncidentKind.LIST_BROKEN: Play(staging_pipeline.list_broken),
    IncidentKind.RELAY_SILENT: Play(staging_pipeline.relay_silent),
}
# fmt: on
"""Every kind."""
