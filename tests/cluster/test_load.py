from dataclasses import replace
from datetime import UTC, date, datetime, time
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from app.errors import ConfigError
from cluster.dump import dump_cluster
from cluster.load import load_cluster, parse_cluster
from cluster.model import (
    AccessEntry,
    Authority,
    BridgeSettings,
    Cluster,
    CollectorSettings,
    Cost,
    GrafanaSettings,
    Group,
    GroupPair,
    Inference,
    InferenceHours,
    Interface,
    NodeAddress,
    OffHours,
    PairLimit,
    Plane,
    Role,
    Sampling,
    SamplingMode,
    Secret,
    Service,
    StoreApi,
    StoreSettings,
    Thresholds,
    Transport,
)

HERE = Path(__file__).parent
SMALL = """
cluster: lab
groups:
  training: {role: training, prefixes: [10.20.0.0/16]}
"""


@pytest.fixture(scope="module")
def rich() -> Cluster:
    return load_cluster(HERE / "rich.yaml")


def test_a_small_file_has_all_defaults() -> None:
    assert parse_cluster(SMALL) == Cluster(
        "lab",
        (Group("training", "Training", Role.TRAINING, (ip_network("10.20.0.0/16"),)),),
        services=parse_cluster(SMALL).services,
    )


def test_empty_sections_mean_their_defaults() -> None:
    sections = ("site", "nodes", "exporters", "allowed", "jobs", "thresholds", "store", "bridge", "notify", "services")
    assert parse_cluster(SMALL + "".join(f"{name}:\n" for name in sections)) == parse_cluster(SMALL)


def test_the_committed_demo() -> None:
    demo = load_cluster(HERE.parent.parent / "cluster.yaml")
    assert [group.role for group in demo.groups].count(Role.TRAINING) == 1
    gpu = demo.nodes[15]
    assert (gpu.name, gpu.gpus, len(gpu.addresses)) == ("gpu-16", 8, 4)
    assert gpu.addresses[1] == NodeAddress(ip_address("10.20.1.16"), Plane.COMPUTE, 1)


def test_site(rich: Cluster) -> None:
    assert rich.site.time_zone.key == "America/New_York"
    assert rich.site.off_hours == OffHours(time(22, 30), time(5, 15), weekends=True)


def test_groups_merge_and_nest(rich: Cluster) -> None:
    training, pool, spare, *_ = rich.groups
    assert pool == Group("pool", "Pool", Role.CUSTOM, (ip_network("10.20.128.0/17"),), False, "training", Plane.COMPUTE)
    assert training.prefixes == (ip_network("10.20.0.0/16"), ip_network("fd00:20::/48"))
    assert spare.title == "Spare"


def test_a_group_may_have_off_hours_of_its_own() -> None:
    text = SMALL + "site: {off_hours: {holidays: [2026-12-25]}}\n"
    day = text.replace("prefixes:", "off_hours: {from: '18:00', to: '08:00'}, prefixes:", 1)
    cluster = parse_cluster(day)
    (name,) = cluster.own_hours()
    assert cluster.site_of(name).off_hours == OffHours(time(18), time(8), holidays=(date(2026, 12, 25),))
    assert cluster.site_of("external") == cluster.site
    assert parse_cluster(dump_cluster(cluster)) == cluster
    with pytest.raises(ConfigError) as caught:
        parse_cluster(day.replace("08:00", "18:00"))
    assert f"groups.{name}.off_hours.to: 18:00: expected another time than from" in caught.value.lines()[0]


def test_nodes_from_ranges_and_from_the_inventory(rich: Cluster) -> None:
    by_name = {node.name: node for node in rich.nodes}
    assert [*by_name] == ["gpu-08", "gpu-09", "gpu-10", "plain-1", "plain-2", "store", "csv-1", "csv-2", "csv-3"]
    assert by_name["gpu-10"].addresses == (
        NodeAddress(ip_address("10.20.0.10"), Plane.COMPUTE, 0),
        NodeAddress(ip_address("fd00:20::10"), Plane.COMPUTE, 1),
    )
    assert by_name["csv-1"].addresses == (
        NodeAddress(ip_address("10.20.2.1"), Plane.COMPUTE, 0),
        NodeAddress(ip_address("10.20.2.2"), Plane.STORAGE, 1),
    )


def test_gpus_default_by_role(rich: Cluster) -> None:
    gpus = {node.name: node.gpus for node in rich.nodes}
    assert (gpus["gpu-08"], gpus["plain-1"], gpus["store"], gpus["csv-1"], gpus["csv-3"]) == (4, 6, 0, 2, 0)


def test_exporters(rich: Cluster) -> None:
    one, two, three = rich.exporters
    assert one.sampling == Sampling(SamplingMode.FIXED, 1000)
    assert one.interfaces == (
        Interface(1, "up", Plane.COMPUTE, counts=False, speed=2_500_000_000),
        Interface(2, "down"),
    )
    assert two.sampling == Sampling(SamplingMode.RENORMALISED)
    assert [exporter.frame_overhead for exporter in (one, two, three)] == [0, 18, 4]
    assert [exporter.counts for exporter in (one, two, three)] == [True, False, True]
    assert [exporter.watched for exporter in (one, two, three)] == [True, True, False]


def test_own_rules_and_boards_are_named_not_run(rich: Cluster) -> None:
    assert rich.rules == (str(HERE / "own_rule.py"),)
    assert rich.boards == (str(HERE / "own_board.py"),)


def test_policies(rich: Cluster) -> None:
    assert rich.allowed == (GroupPair("training", "*"), GroupPair("external", "model_storage"))
    assert rich.authority == (
        Authority(GroupPair("training", "model_storage"), ("leaf-1", "leaf-3")),
        Authority(GroupPair("model_storage", "training"), ("leaf-1", "leaf-3")),
        Authority(GroupPair("training", "training"), ("leaf-1",)),
        Authority(GroupPair("*", "external"), ("leaf-3",)),
    )
    assert rich.transport_of("training", "training") is Transport.ROCE
    assert rich.transport_of("model_storage", "training") is Transport.TCP


def test_capacity_and_inference(rich: Cluster) -> None:
    assert rich.capacity == (
        PairLimit(GroupPair("training", "model_storage"), 800_000_000_000),
        PairLimit(GroupPair("model_storage", "external"), 10_000_000_000),
    )
    assert {node.name: node.speed for node in rich.nodes if node.speed} == {"store": 200_000_000_000}
    assert rich.inference == Inference(
        InferenceHours(time(7), time(19, 30), weekends=False),
        ("training", "external"),
        (
            AccessEntry(("training",), ("Alice", "u-0123456789abcdef"), services=("https", "dns")),
            AccessEntry(("external",), hours=InferenceHours(time(22), time(2))),
            AccessEntry(services=("checkpoint",)),
        ),
    )


def test_clients_of_inference_must_be_allowed_and_listed(rich: Cluster) -> None:
    """`allowed` has training to everybody and external to model storage; `sources` has training and external."""
    assert rich.may_ask_inference("training", "pool")
    assert rich.may_ask_inference("pool", "pool"), "within a group"
    assert not rich.may_ask_inference("external", "pool"), "listed, but not allowed"
    everybody = replace(rich, inference=Inference())
    assert everybody.may_ask_inference("training", "pool")
    assert not replace(rich, inference=Inference(sources=("external",))).may_ask_inference("training", "pool")


def test_services(rich: Cluster) -> None:
    assert rich.services[:3] == (
        Service("checkpoint", (2049, 5000, 5001, 5002, 5003)),
        Service("dns", (53,), (17,)),
        Service("dns", (853,), (6,)),
    )
    assert Service("ssh", (22,), (6,)) in rich.services


def test_jobs_are_in_utc_with_each_node_once(rich: Cluster) -> None:
    first, second, _ = rich.jobs
    assert (first.job_class, first.nodes) == ("llm", ("gpu-08", "gpu-09", "gpu-10", "plain-1"))
    assert (first.start, first.end) == (datetime(2026, 3, 1, 13, tzinfo=UTC), datetime(2026, 3, 1, 20, tzinfo=UTC))
    assert (second.job_class, second.start, second.end) == ("run-1", datetime(2026, 7, 1, 6, tzinfo=UTC), None)


def test_settings(rich: Cluster) -> None:
    assert rich.thresholds == Thresholds(
        exfil_volume=1_610_612_736, exfil_window=5_400, first_contact_bytes=1_000, off_hours_bytes=123_457,
        off_hours_window=600, dropout_spreads=2.5, dropout_min_runs=2, dropout_max_runs=5, dropout_for=0,
        exporter_silent=90, ingest_silent=3_600,
        dropout_digest=16, slowdown_spreads=3.5, slowdown_for=300, stalled_for=600, analysis_silent=240,
        inference_window=600, inference_unauthorised_bytes=0, inference_off_window_bytes=2_000_000,
        inference_min_weeks=3, inference_spike_spreads=5.5, inference_spike_bytes=3_000_000, inference_spike_for=180,
        flow_loss=0.05, flow_loss_window=300, flow_loss_records=10, ingest_lag=240, ingest_lag_for=60,
        checkpoint_overdue=120, checkpoint_regularity=0.75,
        low_and_slow_24h=10_000_000_000, low_and_slow_7d=30_000_000_000, recurrence_days=3, recurrence_hours=24,
        violation_window=1_200, violation_bytes=2_000_000, violation_flows=50, shadow_node_bytes=5_000,
        storage_on_compute_bytes=3_000_000_000, management_bytes=1_000, new_network_bytes=5_000_000,
        new_network_window=600, list_stale_for=180, relay_silent=240,
        threat_bytes=0, threat_window=300, threat_look_back=60 * 86_400, unusual_country_bytes=7_000,
        country_learning=3 * 86_400,
    )  # fmt: skip
    assert rich.cost == Cost(6, 2.25)
    assert rich.store == StoreSettings(
        "https://influx.example.org:8086",
        StoreApi.V1,
        "flows",
        "lab",
        Secret(env="INFLUX_TOKEN"),
        "admin",
        Secret(file="/run/secrets/influx"),
        verify_tls=False,
        keep_raw=86_400,
        keep_1m=30 * 86_400,
        keep_1h=364 * 86_400,
    )
    sources = tuple(ip_network(text) for text in ("10.60.0.0/24", "10.60.9.17", "fd00:60::/60"))
    assert rich.collector == CollectorSettings("::", 9995, 9996, "spool", refresh=1, rotate=30, sflow_sources=sources)
    assert rich.bridge == BridgeSettings(5, 0, 60, 600, 30, 10, 1000, 0.5, "b", None, state="state")
    assert rich.grafana == GrafanaSettings("http://grafana.example.org", "https://wiki.example.org/runbook", "influx")


def test_notification_targets(rich: Cluster) -> None:
    hook, mail, chat, pager, room, genie, bot = rich.notify
    assert hook.settings == (("username", "noc"),)
    assert hook.secrets == (("url", Secret(env="HOOK")), ("password", Secret(env="HOOK_PASSWORD")))
    assert hook.severities == ("critical",)
    assert mail.settings == (("addresses", "noc@example.org;oncall@example.org"),)
    assert (chat.secrets, chat.settings) == ((("token", Secret(env="SLACK")),), (("recipient", "#noc"),))
    assert pager.secrets == (("integrationKey", Secret(env="PAGER")),)
    assert (room.kind, room.secrets) == ("teams", (("url", Secret(env="TEAMS")),))
    assert genie.settings == (("apiUrl", "https://api.eu.opsgenie.com/v2/alerts"),)
    assert (bot.secrets, bot.settings) == ((("bottoken", Secret(env="BOT")),), (("chatid", "-100123"),))


def test_yaml_1_2_has_no_surprises() -> None:
    """Times are not sexagesimal numbers, dates are not dates, no is not false, a version is not a float."""
    hours = "site: {off_hours: {from: 23:00, to: 6:30}}\n"
    assert parse_cluster(SMALL + hours).site.off_hours == OffHours(time(23), time(6, 30))
    named = parse_cluster(SMALL.replace("lab", "on-1.10") + "notify: {no: {type: webhook, url: {env: NO}}}\n")
    assert (named.name, named.notify[0].name) == ("on-1.10", "no")


@pytest.mark.parametrize("text", ["fd00::1:9107", "[fd00::1]:9107"])
def test_where_we_listen_can_stand_in_a_url(text: str) -> None:
    assert parse_cluster(f"{SMALL}delivery: {{listen: '{text}'}}\n").delivery.listen == "[fd00::1]:9107"


def test_faults_know_file_line_and_path() -> None:
    with pytest.raises(ConfigError) as caught:
        load_cluster(HERE / "broken" / "inventory.yaml")
    problem = next(problem for problem in caught.value.problems if problem.value == "trainin")
    assert (Path(problem.file).name, problem.line, problem.path) == ("inventory.csv", 7, "group")
    assert caught.value.exit_code == 2


def test_faults_come_in_the_order_of_people() -> None:
    prefixes = ", ".join(["10.20.0.0/16", *["x"] * 11])
    with pytest.raises(ConfigError) as caught:
        parse_cluster(SMALL.replace("10.20.0.0/16", prefixes))
    assert [problem.path.rpartition("[")[2] for problem in caught.value.problems] == [f"{n}]" for n in range(1, 12)]


def test_a_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + SMALL.replace("\n", "\r\n").encode())
    assert load_cluster(file) == parse_cluster(SMALL)


def test_a_large_inventory_loads(tmp_path: Path) -> None:
    rows = [f"gpu-{n},training,10.20.{n // 250}.{n % 250}" for n in range(5_000)]
    (tmp_path / "nodes.csv").write_text("\n".join(["name,group,address", *rows]), encoding="utf-8")
    nodes = parse_cluster(SMALL + "inventory: nodes.csv\n", folder=tmp_path).nodes
    assert len(nodes) == 5_000
    assert nodes[4_999].addresses == (NodeAddress(ip_address("10.20.19.249")),)


@pytest.mark.parametrize("separator", [";", "\t"])
def test_an_inventory_of_a_spreadsheet_loads(tmp_path: Path, separator: str) -> None:
    text = "# site A; all halls\nname,group,address\ngpu-1,training,10.20.0.1\n".replace(",", separator)
    (tmp_path / "nodes.csv").write_text(text, encoding="utf-8")
    (node,) = parse_cluster(SMALL + "inventory: nodes.csv\n", folder=tmp_path).nodes
    assert (node.name, node.addresses) == ("gpu-1", (NodeAddress(ip_address("10.20.0.1")),))


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        (b"a,training,10.20.0.1\nb,training,10.20.0.2\nc,t", ":4: a row that ends too early"),
        (b'a,training,10.20.0.1\nb,"training', ":3: a quote that does not end"),
        (b'a,"training,10.20.0.1\nb,training,10.20.0.2\n', ":2: a quote that does not end"),
    ],
)
def test_an_inventory_that_is_cut_off_is_one_fault(tmp_path: Path, rows: bytes, fault: str) -> None:
    (tmp_path / "nodes.csv").write_bytes(b"name,group,address\n" + rows)
    with pytest.raises(ConfigError) as caught:
        parse_cluster(SMALL + "inventory: nodes.csv\n", folder=tmp_path)
    (line,) = caught.value.lines()
    assert line.endswith(f"nodes.csv{fault}: expected CSV (is the file cut off? Copy it once more)")


def test_a_sampling_rate_with_a_fraction_says_why_not() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_cluster(f"{SMALL}exporters: {{leaf-1: {{address: 10.20.0.250, sampling: 2.5}}}}\n")
    (problem,) = caught.value.problems
    assert problem.hint == "pmacct cuts fractions off: have it sample 1 packet in a whole number"


def test_more_groups_than_ingest_can_number() -> None:
    groups = "".join(f"  g{number}: {{role: custom}}\n" for number in range(201))
    with pytest.raises(ConfigError) as caught:
        parse_cluster(f"cluster: lab\ngroups:\n{groups}")
    assert caught.value.lines() == ["cluster.yaml:2: groups: 201 entries: expected at most 200"]


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        *((name, "netflow stands for NetFlow v5, v9 and IPFIX") for name in ("ipfix", "IPFIX", "v9", "v5", "netflow9")),
        ("sflw", "did you mean sflow?"),
    ],
)
def test_whoever_names_a_version_of_netflow_is_told_what_stands_for_it(written: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_cluster(f"{SMALL}exporters: {{leaf-1: {{address: 10.20.0.250, protocol: {written}}}}}\n")
    (problem,) = caught.value.problems
    assert (problem.path, problem.hint) == ("exporters.leaf-1.protocol", hint)


def test_ranges_of_exporters_and_of_slurm() -> None:
    found = parse_cluster(
        """
cluster: lab
groups: {training: {role: training, prefixes: [10.20.0.0/16]}}
nodes: {"gpu-[08-11]": {group: training, addresses: ["10.20.0.{8..11}"]}}
exporters:
  "leaf-{1..3}": {address: "10.0.0.{7..9}", sampling: 1000, interfaces: {49: {name: up, counts: false}}}
  "spine-[1-2]": {address: "fd00::1{1..2}", protocol: sflow}
authority: [{between: [training, training], exporters: [leaf-3, spine-2]}]
"""
    )
    assert [node.name for node in found.nodes] == ["gpu-08", "gpu-09", "gpu-10", "gpu-11"]
    assert [(exporter.name, str(exporter.address)) for exporter in found.exporters] == [
        ("leaf-1", "10.0.0.7"), ("leaf-2", "10.0.0.8"), ("leaf-3", "10.0.0.9"),
        ("spine-1", "fd00::11"), ("spine-2", "fd00::12"),
    ]  # fmt: skip
    assert {exporter.sampling.rate for exporter in found.exporters} == {1000, None}
    assert found.authority[0].exporters == ("leaf-3", "spine-2")


@pytest.mark.parametrize(
    ("nodes", "count"),
    [("gpu-[1-16]", 16), ("gpu-[8-11]", 4), ("gpu-[1-4]", 4), ("gpu-[12]", 2), ("gpu-1[0-9]", 7), ("gpu-*", 16)],
)
def test_a_job_may_name_its_nodes_as_slurm_does(nodes: str, count: int) -> None:
    """As a glob, gpu-[1-16] is gpu-1 and gpu-6: the others were judged as nodes of no job."""
    text = f"""
cluster: lab
groups: {{training: {{role: training, prefixes: [10.20.0.0/16]}}}}
nodes: {{"gpu-[1-16]": {{group: training, addresses: ["10.20.0.{{1..16}}"]}}}}
jobs: [{{id: a, nodes: ["{nodes}"], start: 2026-03-01 08:00}}]
"""
    assert len(parse_cluster(text).jobs[0].nodes) == count
    with pytest.raises(ConfigError) as caught:
        parse_cluster(text.replace(f'["{nodes}"]', '["gpu-[1-8,16]"]'))
    (problem,) = caught.value.problems
    assert problem.hint == "one range an entry: gpu-[01-16], and gpu-20 as another"


@pytest.mark.parametrize("key", ["disturbance_window", "rail_low_window", "packet_size_window"])
def test_a_window_of_whole_minutes_is_refused_in_between(key: str) -> None:
    """Minutes are what is judged: of 90 s alerts said 90 s, and two minutes were summed up."""
    with pytest.raises(ConfigError) as caught:
        parse_cluster(f"{SMALL}thresholds: {{{key}: 90s}}\n")
    (problem,) = caught.value.problems
    assert (problem.path, problem.expected) == (f"thresholds.{key}", "a duration of whole minutes")
