"""The state of everything in one look: store, age of the data, exporters, nodes, alerts, counters of the pipeline."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from app.errors import StoreError
from app.words import lasting
from cluster.model import Cluster
from dashboards import questions
from dashboards.parts import node_states
from operations.alert_history import StoredAlert, stored_alerts
from operations.status.counting import Counting, stored_counting
from operations.status.lists import ListStatus, stored_lists
from rules.common.freshness import fresh_node_seconds, fresh_seconds
from rules.evaluate.evaluator import Alert, Evaluator
from rules.maintenance import muted_by
from rules.registry import rules_of
from rules.rule import INTERVAL_SECONDS
from store import schema
from store.influx import LacksDatabaseError, Series, Store
from store.influxql import Column, Query, Select, highest, is_in, newest, total, window_seconds
from store.lease import Standing, standing_of
from store.schema import JobReading, Stage

_DAY = 86_400
_HOUR = 3600


@dataclass(frozen=True, slots=True)
class ExporterStatus:
    """One exporter of cluster.yaml, or one that sends without being named there.

    Attributes:
        age: seconds from the arrival of its newest record to now; None if it was never heard.
        records: flow records of the last hour.
        lost: records lost before the collector in the last hour.
        silent: whether it was silent for longer than the threshold at the bridge's last reading, or there is none; not
            of one that may be, by `watched`.
        sampling: the rate last applied, 1 in so many; None where nobody says.
        notes: what else is wrong with it, a few words each.
    """

    name: str
    age: float | None
    records: int
    lost: int
    silent: bool
    sampling: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The newest verdict on a node of a running job."""

    node: str
    job: str
    state: str


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter (`total`) or reading (`value`) of the pipeline, all bridges together."""

    stage: str
    reason: str
    number: float


@dataclass(frozen=True, slots=True)
class JobSourceStatus:
    """How a job source is, by its readings.

    Attributes:
        failing: seconds since it last answered; 0 if it does.
        known, running: its jobs.
        unknown_nodes: nodes that it names and the inventory does not know.
    """

    name: str
    failing: float
    known: int
    running: int
    unknown_nodes: int


@dataclass(frozen=True, slots=True)
class Status:
    """What `clusterflow status` shows.

    Attributes:
        cluster: its name.
        url: the store's address.
        version: the store's version; empty where it does not answer.
        error: why nothing more is known; empty if all is well.
        is_missing: whether the store answers, and has no database yet: `clusterflow ingest` makes it.
        age: seconds since the end of the newest window of traffic; None where there is none in a day.
        is_stale: whether `age` is above ``thresholds.ingest_silent``, or there is no data.
        exporters: in order of their names.
        ingest_age: seconds since `clusterflow ingest` last said that it lives; None if it never did.
        analysis_age: the same of `clusterflow analyze`.
        analysis_lag: seconds from the newest window that was judged to now; None if the analysis is silent.
        job_sources: in the order of their names.
        lists: files about addresses, in the order of their kinds and names.
        nodes: in order of states, worst first.
        alerts: all that are not Normal.
        history: alerts that began within the last day, as the history has them, newest first.
        failing: rules whose query the store refuses, by id, and what it says: they see nothing.
        counters: in order of stages and reasons.
        counting: who counted what several exporters saw in the last hour, the largest first.
        leases: work, process, standing and seconds since it said so, where `store.lease` is on.
    """

    cluster: str
    url: str
    version: str = ""
    error: str = ""
    is_missing: bool = False
    age: float | None = None
    is_stale: bool = True
    exporters: tuple[ExporterStatus, ...] = ()
    ingest_age: float | None = None
    analysis_age: float | None = None
    analysis_lag: float | None = None
    job_sources: tuple[JobSourceStatus, ...] = ()
    lists: tuple[ListStatus, ...] = ()
    nodes: tuple[NodeStatus, ...] = ()
    alerts: tuple[Alert, ...] = ()
    history: tuple[StoredAlert, ...] = ()
    failing: tuple[tuple[str, str], ...] = ()
    counters: tuple[Counter, ...] = field(default=(), repr=False)
    counting: tuple[Counting, ...] = ()
    leases: tuple[tuple[str, str, Standing, float], ...] = ()

    @property
    def firing(self) -> tuple[Alert, ...]:
        """The alerts that are sent to people."""
        return tuple(alert for alert in self.alerts if alert.is_firing and not alert.muted)

    @property
    def is_well(self) -> bool:
        """Whether data is fresh, every rule sees it, and nothing fires."""
        return not self.error and not self.is_stale and not self.firing and not self.failing

    def node_counts(self) -> dict[str, int]:
        """Return nodes by state, all states."""
        counts = dict.fromkeys(schema.NODE_STATE_WORDS.values(), 0)
        for node in self.nodes:
            counts[node.state] += 1
        return counts

    def json(self) -> dict[str, Any]:
        """Return it for machines: seconds, counts, and times in epoch seconds."""
        return {
            "cluster": self.cluster,
            "ok": self.is_well,
            "store": {
                "url": self.url,
                "reachable": not self.error or self.is_missing,
                "version": self.version,
                "error": self.error,
            },
            "data": {"age_seconds": self.age, "stale": self.is_stale},
            "exporters": [
                {
                    "name": one.name,
                    "age_seconds": one.age,
                    "records_last_hour": one.records,
                    "lost_last_hour": one.lost,
                    "silent": one.silent,
                    "sampling": one.sampling,
                    "notes": list(one.notes),
                }
                for one in self.exporters
            ],
            "counting": [one.json() for one in self.counting],
            "analysis": {"alive": self.analysis_lag is not None, "lag_seconds": self.analysis_lag},
            "leases": [
                {schema.WORK: work, "process": name, "standing": standing.name.lower(), "age_seconds": age}
                for work, name, standing, age in self.leases
            ],
            "job_sources": [
                {
                    "name": one.name,
                    "ok": not one.failing,
                    "failing_seconds": one.failing,
                    "known": one.known,
                    "running": one.running,
                    "unknown_nodes": one.unknown_nodes,
                }
                for one in self.job_sources
            ],
            "lists": [one.json() for one in self.lists],
            "nodes": {
                "counts": self.node_counts(),
                "low": [{"node": one.node, "job": one.job, "state": one.state} for one in self.nodes if _is_bad(one)],
            },
            "alerts": [
                {
                    "rule": alert.rule,
                    "title": alert.title,
                    "severity": alert.severity,
                    "state": alert.state.value,
                    "active_at": alert.active_at,
                    "fired_at": alert.fired_at,
                    "labels": dict(alert.labels),
                    "annotations": dict(alert.annotations),
                    "maintenance": alert.muted,
                }
                for alert in self.alerts
            ],
            "alert_history": [one.json() for one in self.history],
            "failing_rules": dict(self.failing),
            "pipeline": {f"{one.stage}.{one.reason}": one.number for one in self.counters},
        }


def _is_bad(node: NodeStatus) -> bool:
    bad = schema.NodeState.LOW, schema.NodeState.DOWN
    return node.state in {schema.NODE_STATE_WORDS[state] for state in bad}


def status_of(cluster: Cluster, store: Store, now: int) -> Status:
    """Ask the store; a store that does not answer is part of the answer.

    Args:
        cluster: what should be there.
        store: where to look.
        now: epoch seconds.
    """
    version = ""
    try:
        version = store.version()
        return _asked(cluster, store, now, version)
    except StoreError as error:
        is_missing = isinstance(error, LacksDatabaseError)
        return Status(cluster.name, store.url, version=version, error=" ".join(error.lines()), is_missing=is_missing)


def _asked(cluster: Cluster, store: Store, now: int, version: str) -> Status:
    look = _Look(store, now)
    age = _age(cluster, look)
    counters = _counters(cluster, look)
    ingest_beat, analysis_beat = (_heartbeat(cluster, look, stage) for stage in (Stage.BRIDGE, Stage.ANALYSIS))
    alerts, failing = _alerts(cluster, store, now)
    return Status(
        cluster=cluster.name,
        url=store.url,
        version=version,
        age=age,
        is_stale=age is None or age > cluster.thresholds.ingest_silent,
        exporters=_exporters(cluster, look),
        ingest_age=ingest_beat and ingest_beat[0],
        analysis_age=analysis_beat and analysis_beat[0],
        analysis_lag=_analysis_lag(cluster, analysis_beat),
        job_sources=_job_sources(counters),
        lists=stored_lists(store, now),
        nodes=_nodes(cluster, look),
        alerts=alerts,
        history=tuple(stored_alerts(store, now - _DAY, now)),
        failing=failing,
        counters=counters,
        counting=stored_counting(store, now - _HOUR, now),
        leases=tuple(standing_of(store, now)) if cluster.store.lease else (),
    )


@dataclass(frozen=True, slots=True)
class _Look:
    """Queries that end now."""

    store: Store
    now: int

    def series(self, query: Query, since: int) -> list[Series]:
        return self.store.query(query.between(self.now - since, self.now))

    def numbers(self, query: Query, since: int) -> dict[tuple[str, ...], float]:
        """Return the number of each series by its labels, in the query's order."""
        return {
            tuple(one.tags[tag] for tag in query.tags): float(one.values[-1][1])
            for one in self.series(query, since)
            if one.values[-1][1] is not None
        }


def _age(cluster: Cluster, look: _Look) -> float | None:
    # Without GROUP BY a selector keeps the time of the point it chose.
    query = Select(schema.TRAFFIC, schema.RAW).take(newest(schema.BYTES)).per_series("Newest window.")
    found = look.series(query, _DAY)
    if not found:
        return None
    end = found[0].values[-1][0] / 1000 + window_seconds(cluster, schema.RAW)
    return max(look.now - float(end), 0.0)


def _exporters(cluster: Cluster, look: _Look) -> tuple[ExporterStatus, ...]:
    each = Select(schema.EXPORTER_STATUS, schema.RAW).by(schema.EXPORTER)

    def of_each(column: Column, since: int) -> dict[tuple[str, ...], float]:
        return look.numbers(each.take(column).per_series(), since)

    ages = look.numbers(questions.exporter_ages().per_series(), fresh_seconds(cluster))
    # Readings stay where they are when the bridge stops: what they tell of grows older all the same.
    last_seen = of_each(highest(schema.LAST_SEEN), _DAY)
    sampling = of_each(newest(schema.SAMPLING), _DAY)
    records, lost, skewed, unknown = (
        of_each(total(field), _HOUR)
        for field in (schema.EXPORTER_RECORDS, schema.SEQ_LOST, schema.SKEWED, schema.UNKNOWN_RATE)
    )
    skew = of_each(highest(schema.SKEW), _HOUR)
    limits = cluster.thresholds

    unread = of_each(newest(schema.UNREAD), fresh_seconds(cluster))

    def notes(name: tuple[str, ...]) -> Iterable[str]:
        if bits := int(unread.get(name, 0)):
            yield schema.unread_words(bits)
        count = records.get(name, 0)
        if skewed.get(name, 0) > limits.clock_skewed * count:
            yield f"clock off by {lasting(skew[name])}" if name in skew else "clock off"
        if unknown.get(name, 0) > limits.rate_unknown * count:
            yield f"samples, rate unknown: {unknown[name]:,.0f} records count 1:1"

    names = {(exporter.name,) for exporter in cluster.exporters} | set(ages)
    may_be_silent = {(exporter.name,) for exporter in cluster.exporters if not exporter.watched}
    return tuple(
        ExporterStatus(
            name=name[0],
            age=max(look.now - last_seen[name], 0.0) if name in last_seen else None,
            records=int(records.get(name, 0)),
            lost=int(lost.get(name, 0)),
            silent=name not in may_be_silent and (name not in ages or ages[name] > limits.exporter_silent),
            sampling=int(sampling[name]) if name in sampling else None,
            notes=tuple(notes(name)),
        )
        for name in sorted(names)
    )


def _nodes(cluster: Cluster, look: _Look) -> tuple[NodeStatus, ...]:
    verdicts = Select(schema.BASELINE, schema.RAW).take(newest(schema.STATE)).where(node_states.told())
    verdicts = verdicts.by(schema.NODE, schema.JOB)
    states = look.numbers(verdicts.per_series(), fresh_node_seconds(cluster))
    # Down, low, blind, learning, ok.
    order = (
        schema.NodeState.DOWN,
        schema.NodeState.LOW,
        schema.NodeState.BLIND,
        schema.NodeState.LEARNING,
        schema.NodeState.OK,
    )
    worst_first = sorted(states.items(), key=lambda item: (order.index(int(item[1])), item[0]))
    return tuple(NodeStatus(node, job, schema.NODE_STATE_WORDS[int(state)]) for (node, job), state in worst_first)


def _alerts(cluster: Cluster, store: Store, now: int) -> tuple[tuple[Alert, ...], tuple[tuple[str, str], ...]]:
    """Return all alerts that are not Normal, and the rules whose query fails."""
    rules = rules_of(cluster).rules
    by_id = {rule.id: rule for rule in rules}
    evaluator = Evaluator(store, rules, datasource=cluster.grafana.datasource_uid)
    # Where an alert began before what is looked back at, its beginning is not known.
    evaluator.catch_up(now - now % INTERVAL_SECONDS)
    alerts = tuple(
        replace(one, muted=muted_by(cluster, by_id[one.rule], one.labels, now)) if one.is_firing else one
        for one in evaluator.alerts()
    )
    return alerts, tuple(sorted(evaluator.failing.items()))


def _counters(cluster: Cluster, look: _Look) -> tuple[Counter, ...]:
    each = Select(schema.PIPELINE, schema.RAW).by(schema.STAGE, schema.REASON, schema.SHARD)
    return tuple(
        Counter(stage, reason, number)
        for column in (schema.TOTAL, schema.VALUE)
        for (stage, reason), number in _of_all(
            look.numbers(each.take(newest(column)).per_series(), cluster.thresholds.ingest_silent)
        )
    )


def _heartbeat(cluster: Cluster, look: _Look, stage: Stage) -> tuple[float, float] | None:
    """Return how many seconds ago a part last said that it lives, and what it said; None if it never did."""
    beats = Select(schema.PIPELINE, schema.RAW).take(newest(schema.VALUE))
    beats = beats.where(is_in(schema.STAGE, [stage.value]), is_in(schema.REASON, [schema.HEARTBEAT]))
    found = look.series(beats.per_series(), int(cluster.store.keep_raw))
    if not found:
        return None
    at, value = found[0].values[-1]
    return max(look.now - at / 1000, 0.0), float(value)


def _analysis_lag(cluster: Cluster, beat: tuple[float, float] | None) -> float | None:
    """Return how old what was judged last is by now; None if that was too long ago."""
    return None if beat is None or beat[0] > cluster.thresholds.ingest_silent else sum(beat)


def _job_sources(counters: Iterable[Counter]) -> tuple[JobSourceStatus, ...]:
    found: dict[str, dict[str, float]] = {}
    for one in counters:
        if one.stage == Stage.JOBS:
            name, _, reading = one.reason.rpartition(".")
            found.setdefault(name, {})[reading] = one.number
    return tuple(
        JobSourceStatus(
            name,
            readings.get(JobReading.FAILING, 0.0),
            *(int(readings.get(one, 0)) for one in (JobReading.KNOWN, JobReading.RUNNING, JobReading.STRANGERS)),
        )
        for name, readings in sorted(found.items())
    )


def _of_all(numbers: dict[tuple[str, ...], float]) -> Iterable[tuple[tuple[str, str], float]]:
    """Add up what each bridge, or each partition of a topic, counted; of moments and times the largest counts."""
    found: dict[tuple[str, str], float] = {}
    for (stage, reason, _), number in numbers.items():
        before = found.get((stage, reason))
        is_time = reason == schema.HEARTBEAT or reason.endswith("seconds")
        found[stage, reason] = number if before is None else max(before, number) if is_time else before + number
    return sorted(found.items())
