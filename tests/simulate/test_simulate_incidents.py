"""What must fire, what must not, and a demo in which it is night."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from cluster.load import load_cluster, parse_cluster
from cluster.model import Cluster, OffHours, Site
from rules.registry import IDS
from simulate.demo.plan import Places, demo_cluster, demo_scenario, live_start, night_zone
from simulate.incidents.incident import Incident, IncidentKind
from simulate.incidents.stage import Stage
from simulate.incidents.staging_egress import approved_transfer, bulk_exfil, first_contact, off_hours_transfer
from simulate.incidents.staging_jobs import node_dropout
from simulate.incidents.staging_pipeline import exporter_silent
from simulate.scenarios.scenario import Phase, Profile, Run, is_off_hours
from simulate.traffic.cast import Cast
from simulate.traffic.workload import Workload
from simulate.truth.ground_truth import GroundTruth

REPOSITORY = Path(__file__).parents[2]
# A Saturday, as weekends may count as off-hours.
NOW = datetime(2026, 11, 21, 9, 13, 7, tzinfo=UTC)
PLACES = Places("http://127.0.0.1:8086", 2055, 6343, 9105, Path("var/spool"), Path("var/state"))


@pytest.fixture(scope="module")
def base() -> Cluster:
    return load_cluster(REPOSITORY / "cluster.yaml")


@pytest.fixture(scope="module")
def demo(base: Cluster) -> Cluster:
    return parse_cluster(demo_cluster(base, start=live_start(NOW), places=PLACES))


def stage_of(cluster: Cluster, runs: int = 4, start: int | None = None) -> tuple[Stage, int]:
    start = live_start(NOW) if start is None else start
    cast = Cast(cluster)
    earlier = tuple(
        Run(f"r{n}", tuple(cast.training), start - (n + 2) * 40_000, start - (n + 2) * 40_000 + 3600)
        for n in range(runs)
    )
    live = Run("live", tuple(cast.training), start, start + 600)
    history = Phase(start - 3 * 86_400, start, 60, 3600, 60)
    return Stage(cluster, cast, Profile(), (*earlier, live), history, 1), start


EXFIL, CONTACT, NIGHT = "exfil_volume", "first_external_contact", "off_hours_transfer"


def test_rules_that_must_fire(demo: Cluster) -> None:
    """Each incident and near miss, with the rules of the registry that belong to it."""
    stage, t = stage_of(demo)
    cases: list[tuple[Incident, set[str]]] = [
        (bulk_exfil(stage, t + 20, t + 50), {EXFIL, CONTACT, NIGHT}),
        (bulk_exfil(stage, t + 20, t + 50, factor=0.99), {CONTACT, NIGHT}),
        (bulk_exfil(stage, t + 20, t + 50, factor=0.01), {CONTACT}),
        (first_contact(stage, t + 15, t + 18), {CONTACT}),
        (off_hours_transfer(stage, t + 20, t + 40), {NIGHT}),
        (off_hours_transfer(stage, t + 20, t + 40, factor=0.9), set()),
        (node_dropout(stage, t + 30, t + 120, share=0.8), {"node_dropout"}),
        (node_dropout(stage, t + 30, t + 120, share=0.0), {"node_dropout"}),
        (node_dropout(stage, t + 30, t + 120, share=0.985), set()),
        (node_dropout(stage, t + 30, t + 50, share=0.5), set()),
        (exporter_silent(stage, t + 30, t + 300), {"exporter_silent"}),
        (exporter_silent(stage, t + 30, t + 90), set()),
    ]
    for incident, expected in cases:
        assert set(incident.expected) == expected, incident.id
        assert set(incident.expected) <= set(IDS)
        assert incident.is_near_miss is not bool(expected)
    begin, end = stage.business_hours() or (0, 0)
    assert approved_transfer(stage, begin, end).expected == ()


def test_what_must_fire_depends_on_the_cluster(demo: Cluster) -> None:
    """In business hours nothing is off-hours; without history a partner is new; without runs there is no baseline."""
    stage, t = stage_of(demo)
    noon = replace(demo, site=Site())
    noon_stage = replace(stage, cluster=noon, cast=Cast(noon))
    assert set(bulk_exfil(noon_stage, t + 20, t + 50).expected) == {EXFIL, CONTACT}
    assert off_hours_transfer(noon_stage, t + 20, t + 40).is_near_miss
    assert set(off_hours_transfer(replace(stage, history=None), t + 20, t + 40).expected) == {CONTACT, NIGHT}
    few, _ = stage_of(demo, runs=2)
    assert node_dropout(few, t + 30, t + 120, share=0.5).is_near_miss


@pytest.mark.parametrize("month", [1, 7])
def test_there_is_always_a_night(month: int) -> None:
    """At every hour of a winter's and a summer's day some zone has off-hours for hours around."""
    hours = OffHours()
    for half in range(48):
        now = datetime(2026, month, 15, tzinfo=UTC) + timedelta(minutes=30 * half)
        site = Site(time_zone=datetime.now(UTC).astimezone().tzinfo and _zone(night_zone(now, hours)), off_hours=hours)
        moment = int(now.timestamp())
        assert is_off_hours(site, moment - 3600)
        assert is_off_hours(site, moment + 3600)


def _zone(name: str):  # noqa: ANN202
    from zoneinfo import ZoneInfo  # noqa: PLC0415

    return ZoneInfo(name)


def test_the_demo_is_consistent(base: Cluster, demo: Cluster) -> None:
    """Job windows, history and incidents fit each other; nothing else of the cluster changed."""
    start = live_start(NOW)
    play = demo_scenario(demo, start=start, seconds=120)
    assert start % 10 == 0
    assert play.live.end - play.live.start == 120
    assert demo.groups == base.groups
    assert demo.nodes == base.nodes
    *earlier, live = demo.jobs
    assert len(earlier) >= 4
    assert all(job.end and job.end < live.start for job in earlier)
    assert live.end is None
    assert live.start.timestamp() < start - 3600
    assert len({job.id for job in demo.jobs}) == len(demo.jobs)
    kinds = {incident.kind for incident in play.incidents if incident.expected}
    assert kinds == {
        IncidentKind.BULK_EXFIL, IncidentKind.FIRST_CONTACT, IncidentKind.INFERENCE_INTRUDER,
        IncidentKind.MANAGEMENT_INTRUDER, IncidentKind.OFF_HOURS_TRANSFER, IncidentKind.NODE_DROPOUT,
    }  # fmt: skip
    near = [incident for incident in play.incidents if incident.is_near_miss and incident.start >= start]
    assert {i.kind for i in near} == {IncidentKind.OFF_HOURS_TRANSFER, IncidentKind.NODE_DROPOUT}
    # A near miss beside an incident shares neither its node nor its conversation.
    dropouts = [i.src for i in play.incidents if i.kind is IncidentKind.NODE_DROPOUT]
    assert len(set(dropouts)) == len(dropouts)
    pairs = [(i.src, i.dst, i.start) for i in play.incidents]
    assert len(set(pairs)) == len(pairs)


IN_EARNEST = """
store: {url: "https://influx.example", api: v2, org: ops, token: {env: INFLUX_TOKEN}, lease: true}
collector: {sflow_sources: [172.31.9.0/24]}
bridge: {metrics_token: {env: METRICS_TOKEN}}
archive: {folder: /srv/flows, bucket: s3://flows/a}
kafka: {brokers: [kafka-1:9092]}
cloud: {format: aws-vpc, folder: /srv/logs}
job_sources: [{type: slurm}]
"""


@pytest.mark.parametrize("logs", [None, Path("var/logs")])
def test_a_demo_of_a_cluster_in_earnest_leaves_it_alone(base: Cluster, logs: Path | None) -> None:
    """Its cluster.yaml lies where `clusterflow demo` is run: nothing of it is written to, asked or logged in at."""
    ours = parse_cluster(f"cluster: ours\ngroups: {{gpus: {{role: training, prefixes: [10.0.0.0/8]}}}}\n{IN_EARNEST}")
    sections = {one: getattr(ours, one) for one in ("store", "collector", "bridge", "archive", "kafka", "cloud")}
    places = replace(PLACES, logs=logs)
    text = demo_cluster(replace(base, **sections, job_sources=ours.job_sources), start=live_start(NOW), places=places)
    theirs = "influx.example|api: v2|TOKEN|172.31.9.0|/srv/|s3://|kafka-1|type: slurm|lease: true"
    assert [one for one in theirs.split("|") if one in text] == []
    assert parse_cluster(text).cloud.folder == (None if logs is None else str(logs))


def test_the_past_is_over_before_rules_look(demo: Cluster) -> None:
    """What went wrong before owes no alert, meets nobody whom the live phase meets, and each kind is there."""
    start = live_start(NOW)
    play = demo_scenario(demo, start=start + 40, seconds=120, history_end=start)
    assert play.history is not None
    assert play.recent is not None
    assert (play.history.end, play.recent.end) == (play.recent.start, play.live.start)
    live = [incident for incident in play.incidents if incident.start >= start]
    *past, mirror = (incident for incident in play.incidents if incident.start < start)
    assert (mirror.kind, mirror.alerts, mirror.end) == (IncidentKind.APPROVED_TRANSFER, (), play.live.end)
    assert len({incident.id for incident in play.incidents}) == len(play.incidents)
    assert all(play.history.start < incident.start and incident.end <= start - 900 for incident in past)
    assert not any(alert.must for incident in past for alert in incident.alerts)
    inside = {"training", "infer-1", "mgmt-1"}
    met = {i.dst for i in live if i.kind is not IncidentKind.OFF_HOURS_TRANSFER} - inside
    assert not {i.dst for i in past} & met
    assert len({incident.kind for incident in past}) == 16


@pytest.mark.long_form
def test_history_meets_approved_partners_only(demo: Cluster) -> None:
    """Model storage meets every partner in business hours, training nobody, and all nodes have runs."""
    start = live_start(NOW)
    whole = demo_scenario(demo, start=start, seconds=120)
    staged = next(incident for incident in whole.incidents if incident.kind is IncidentKind.APPROVED_TRANSFER)
    play = replace(whole, incidents=(staged,))
    workload = Workload(demo, play)
    assert play.history is not None
    addresses = workload.cast.addresses
    names, groups = list(addresses.groups), addresses.group
    truth = GroundTruth(workload)
    outside = []
    for batch in workload.batches(play.history):
        truth.add(batch.frame)
        frame = batch.frame.with_columns(
            pl.Series("src_group", [names[g] for g in groups[batch.frame["src"].to_numpy()]], pl.String),
            pl.Series("dst_group", [names[g] for g in groups[batch.frame["dst"].to_numpy()]], pl.String),
        )
        outside.append(frame.filter(pl.col("dst_group").is_in(["external", "approved_external"])))
    left = pl.concat(outside)
    assert set(left["src_group"].unique()) == {"model_storage", "inference"}
    models = left.filter(pl.col("src_group") == "model_storage")
    assert models["dst_group"].unique().to_list() == ["approved_external"]
    night = [is_off_hours(demo.site, at // 1000) for at in models["start"].to_list() + models["end"].to_list()]
    assert not any(night)
    met = {(addresses.nodes[addresses.node[s]], addresses.text[d]) for s, d in models.select("src", "dst").iter_rows()}
    partners = [addresses.text[int(p)] for p in (*workload.cast.partners, *workload.cast.partners_v6)]
    assert met == set(itertools.product(workload.cast.model_nodes, partners))
    assert 0 in models["incident"].unique().to_list()
    document = truth.document()
    assert all(node["tx_bytes"] > 0 for node in document["nodes"])
    # Training, storage, inference, management and the rest: every pair that the cluster allows and no other.
    for pair in document["group_pairs"]:
        assert demo.is_allowed(pair["src_group"], pair["dst_group"]), pair
