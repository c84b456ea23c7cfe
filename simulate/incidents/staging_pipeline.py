"""Staging what happens to the pipeline: silent, wrong or lossy exporters, a bridge or an analysis that stops."""

from dataclasses import replace
from typing import Any

from analysis.detectors.fabric.unseen import MIN_HOURS
from app.errors import UserError
from cluster.model import ExportProtocol, Role
from rules.alerts.pipeline import relay_silent as relay_rule
from rules.rule import built
from simulate.incidents import expect
from simulate.incidents.incident import Expected, Incident, IncidentKind
from simulate.incidents.stage import Stage
from simulate.scenarios.scenario import Background
from store import schema

_REPORT = 60
"""Seconds between two records of an exporter that has little to say."""
_HOUR, _UNSEEN_STEP = 3_600, 300
_TELEMETRY = 4_120_000 / 60
"""Bytes a second that the routine background has through the switch of the management plane, at least."""
_READING = 30
"""Seconds between two readings of a bridge or an analysis."""


def exporter_silent(stage: Stage, start: int, end: int, *, exporter: str = "") -> Incident:
    """An exporter sends nothing; by default the last one that only sees what others count."""
    name = _exporter(stage, exporter)
    alerts = _silence(stage, name, start, end)
    return _of_exporter(IncidentKind.EXPORTER_SILENT, name, start, end, alerts=alerts)


def export_off(stage: Stage, start: int, end: int, *, exporter: str = "") -> Incident:
    """An sFlow device goes on forwarding and counting, but sends no flow samples any more."""
    agents = [one.name for one in stage.cluster.exporters if one.protocol is ExportProtocol.SFLOW]
    name = exporter or (agents or [""])[0]
    if name not in agents:
        raise UserError(f"no sFlow exporter {name}", "only those send interface counters")
    alerts: tuple[Expected, ...] = ()
    rate = _TELEMETRY if stage.background is Background.ROUTINE else 0
    # What is missing is looked at over an hour, and told when its minutes are rolled up.
    if rate * min(end - start, _HOUR) > stage.cluster.thresholds.unseen_bytes and _has_history(stage, start):
        due = start + round(stage.cluster.thresholds.unseen_bytes / rate) + 2 * _UNSEEN_STEP
        (alert,) = _about("unseen_bytes", name, due=due, until=end + _HOUR)
        alerts = (replace(alert, earliest=start),)
    return _of_exporter(IncidentKind.EXPORT_OFF, name, start, end, alerts=alerts)


def congested_link(
    stage: Stage, start: int, end: int, *, exporter: str = "", interface: int = 0, load: float = 0.96,
    discards: int = 40, marks: float = 0.12, node: str = "",
) -> Incident:  # fmt: skip
    """An interface of an sFlow device is full: its counters say so, it discards, and packets of a node are marked."""
    agents = [one for one in stage.cluster.exporters if one.protocol is ExportProtocol.SFLOW and one.interfaces]
    found = next((one for one in agents if exporter in ("", one.name)), None)
    if found is None:
        raise UserError(f"no sFlow exporter {exporter} with interfaces", "only those send interface counters")
    link = next((one for one in found.interfaces if one.index == interface), found.interfaces[-1])
    src = stage.chosen(node, 0, Role.TRAINING).name
    alerts = expect.congestion_alerts(
        stage, found, link, src, load=load, discards=discards, marks=marks, start=start, end=end
    )  # fmt: skip
    return _of_exporter(
        IncidentKind.CONGESTED_LINK, found.name, start, end, src=src, interface=link.index, load=load,
        discards=discards, marks=marks, alerts=alerts,
    )  # fmt: skip


def _has_history(stage: Stage, start: int) -> bool:
    return stage.history is not None and start - stage.history.start >= (MIN_HOURS + 2) * _HOUR


def exporter_skewed(stage: Stage, start: int, end: int, *, seconds: int = 1800, exporter: str = "") -> Incident:
    """An exporter's clock is off by so many seconds: its records get their arrival time, and an alert says so."""
    name = _exporter(stage, exporter)
    alerts: tuple[Expected, ...] = ()
    if seconds > stage.cluster.bridge.future_skew:
        window = stage.cluster.thresholds.flow_loss_window
        # By then most of the window's records are its own.
        alerts = _about("clock_skewed", name, due=start, until=end + window)
    return _of_exporter(IncidentKind.EXPORTER_SKEWED, name, start, end, seconds=seconds, alerts=alerts)


def exporter_duplicates(stage: Stage, start: int, end: int, *, exporter: str = "", onto: str = "") -> Incident:
    """An exporter whose flows do not count (`onto`) reports all that another one counts a second time."""
    counting = [one.name for one in stage.cluster.exporters if one.counts]
    silent = [one.name for one in stage.cluster.exporters if not one.counts]
    if not counting or not (onto or silent):
        raise UserError("exporter_duplicates: nobody to repeat it", "it needs an exporter with `counts: false`")
    kind = IncidentKind.EXPORTER_DUPLICATES
    return _of_exporter(kind, exporter or counting[0], start, end, onto=onto or silent[0])


def flow_loss(stage: Stage, start: int, end: int, *, lost: float = 0.2, exporter: str = "") -> Incident:
    """A part of an exporter's datagrams does not arrive; its sequence numbers tell."""
    name = _exporter(stage, exporter)
    limits = stage.cluster.thresholds
    alerts: tuple[Expected, ...] = ()
    if lost > limits.flow_loss:
        alerts = _about("flow_loss", name, due=start, until=end + limits.flow_loss_window)
    return _of_exporter(IncidentKind.FLOW_LOSS, name, start, end, share=1 - lost, alerts=alerts)


def template_loss(stage: Stage, start: int, end: int, *, exporter: str = "") -> Incident:
    """An exporter restarts and its templates are lost: nothing can be read until it sends them again, at the end."""
    name = _exporter(stage, exporter)
    window = stage.cluster.thresholds.flow_loss_window
    lost: tuple[Expected, ...] = ()
    # Between runs, a routine background is fewer records than the rule judges by (`flow_loss_records`).
    if stage.background is Background.DENSE or any(run.start < end and start < run.end + window for run in stage.runs):
        lost = _about("flow_loss", name, due=end, until=end + window)
    alerts = (*lost, *_silence(stage, name, start, end))
    return _of_exporter(IncidentKind.TEMPLATE_LOSS, name, start, end, share=0.0, alerts=alerts)


def ingest_stopped(stage: Stage, start: int, end: int) -> Incident:
    """The bridge is away; when it is back it reads what has waited."""
    limit, spare = stage.cluster.thresholds.ingest_silent, 2 * stage.cluster.bridge.window
    return _of_part(stage, IncidentKind.INGEST_STOPPED, "ingest_deadman", start, end, limit=limit, spare=spare)


def ingest_behind(stage: Stage, start: int, end: int, *, seconds: int = 600) -> Incident:
    """The bridge lags so many seconds behind the clock."""
    limits = stage.cluster.thresholds
    found = _of_part(stage, IncidentKind.INGEST_BEHIND, "ingest_lag", start, end, limit=limits.ingest_lag_for)
    return replace(found, seconds=seconds, alerts=found.alerts if seconds > limits.ingest_lag else ())


def analysis_stopped(stage: Stage, start: int, end: int) -> Incident:
    """The analysis is away."""
    limit = stage.cluster.thresholds.analysis_silent
    return _of_part(stage, IncidentKind.ANALYSIS_STOPPED, "analysis_stalled", start, end, limit=limit)


STAGED_LIST = "blocklist", "feed"
"""Name and kind of the list that is broken where one is."""


def list_broken(stage: Stage, start: int, end: int) -> Incident:
    """What stands in place of a list about addresses cannot be read; its last good version stays in use."""
    limit = stage.cluster.thresholds.list_stale_for
    return _of_part(stage, IncidentKind.LIST_BROKEN, "enrichment_stale", start, end, limit=limit)


STAGED_RELAYS = "rack-1", "rack-2"
"""Ids of the relays that there are where one is staged; the first falls silent."""


def relay_silent(stage: Stage, start: int, end: int) -> Incident:
    """A relay says nothing, another one does. Without Kafka in cluster.yaml nobody waits for either."""
    limit = stage.cluster.thresholds.relay_silent + relay_rule.SILENT_SECONDS
    found = _of_part(stage, IncidentKind.RELAY_SILENT, "relay_silent", start, end, limit=limit)
    return found if built(relay_rule.build, stage.cluster).rules else replace(found, alerts=())


def _exporter(stage: Stage, name: str) -> str:
    names = [one.name for one in stage.cluster.exporters]
    idle = [one.name for one in stage.cluster.exporters if not one.counts]
    found = name or (idle or names)[-1]
    if found not in names:
        raise UserError(f"no exporter {found}", f"one of {', '.join(names)}")
    return found


def _is_watched(stage: Stage, name: str) -> bool:
    return next(one.watched for one in stage.cluster.exporters if one.name == name)


def _silence(stage: Stage, exporter: str, start: int, end: int) -> tuple[Expected, ...]:
    """Return what is owed for an exporter from which nothing comes."""
    limit = stage.cluster.thresholds.exporter_silent
    # Its last record is that of the minute before.
    if end - start <= limit - _REPORT or not _is_watched(stage, exporter):
        return ()
    due = start + limit
    (alert,) = _about("exporter_silent", exporter, due=due, until=end)
    is_long = end - start > limit + 2 * stage.cluster.bridge.window
    return (replace(alert, must=is_long, earliest=expect.early(stage, due, spare=_REPORT)),)


def _about(rule: str, exporter: str, *, due: int, until: int) -> tuple[Expected, ...]:
    return (Expected(rule, expect.labels(**{schema.EXPORTER: exporter}), due, until + expect.GRACE),)


def _of_exporter(kind: IncidentKind, name: str, start: int, end: int, **more: Any) -> Incident:  # noqa: ANN401
    return Incident(id=f"{kind.value}-{name}", kind=kind, start=start, end=end, exporter=name, **more)


def _of_part(
    stage: Stage, kind: IncidentKind, rule: str, start: int, end: int, *, limit: int, spare: int = 120
) -> Incident:
    """Return that bridge or analysis are unwell, and the alert of the rule about their readings if that lasts.

    The last good reading was some time before.
    """
    due = start + limit
    alert = Expected(rule, (), due, end + expect.GRACE, earliest=expect.early(stage, due, spare=_READING))
    alerts = (alert,) if end - start > limit + spare else ()
    return Incident(id=kind.value, kind=kind, start=start, end=end, alerts=alerts)
