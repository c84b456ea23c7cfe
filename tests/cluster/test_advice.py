import time
from pathlib import Path

import pytest

from cluster.advice import advice
from cluster.load import load_cluster, parse_cluster

ROOT = Path(__file__).parent.parent.parent
QUIET = """
cluster: lab
groups:
  training: {role: training, prefixes: [10.20.0.0/16]}
  model_storage: {role: model_storage, prefixes: [10.40.0.0/24]}
nodes:
  "gpu-{1..3}": {group: training, addresses: ["10.20.0.{1..3}"]}
  store: {group: model_storage, addresses: [10.40.0.1]}
exporters: {leaf-1: {address: 10.20.0.250}, spine-1: {address: 10.20.0.251, counts: false}}
allowed: [{from: training, to: model_storage}]
notify: {noc: {type: webhook, url: {env: NOC}}}
grafana: {url: "https://grafana.example.org"}
"""
NEAR = "grafana.url: http://127.0.0.1:3000: the links in alerts open on Grafana's machine only"


@pytest.mark.parametrize("file", ["cluster.yaml", "cluster/starter.yaml"])
def test_nothing_to_say_about_ours_but_where_people_reach_grafana(file: str) -> None:
    assert advice(load_cluster(ROOT / file)) == [NEAR]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            "allowed: [{from: training, to: model_storage}]",
            "allowed: []",
            "allowed: empty: every conversation between groups is a violation",
        ),
        ("notify: {noc: {type: webhook, url: {env: NOC}}}", "", "notify: empty: alerts show on the boards only"),
        ('grafana: {url: "https://grafana.example.org"}', "", NEAR),
        (
            "exporters: {leaf-1: {address: 10.20.0.250}, spine-1: {address: 10.20.0.251, counts: false}}",
            "",
            "exporters: none: nothing says whose records to take, nor which network they crossed",
        ),
        (
            "spine-1: {address: 10.20.0.251, counts: false}",
            "edge: {address: 10.20.0.251, interfaces: {1: {name: wan}}}",
            (
                "exporters: leaf-1 has neither interfaces nor a line of `authority`: what several exporters see is "
                "found while records flow; `clusterflow suggest` says who counts"
            ),
        ),
        (
            "cluster: lab",
            "cluster: lab\ncollector: {netflow_daemons: 3}",
            "collector.netflow_daemons: 2 NetFlow exporters: some daemons get nothing",
        ),
        (
            "leaf-1: {address: 10.20.0.250}",
            'leaf-1: {address: "fd00:60::1"}',
            'collector.listen: 0.0.0.0 hears nothing of fd00:60::1: write "::", which takes IPv6 and IPv4',
        ),
        (
            "leaf-1: {address: 10.20.0.250}",
            "leaf-1: {address: 0.0.0.0}",
            "exporters.leaf-1.address: 0.0.0.0: no device sends from it",
        ),
        (
            "cluster: lab",
            "cluster: lab\nsite: {off_hours: {holidays: [2025-12-25, 2025-12-26]}}",
            "site.off_hours.holidays: the last one was 2025-12-26: add those that come",
        ),
        (
            "leaf-1: {address: 10.20.0.250}, ",
            "",
            "exporters: none of them counts: every total stays zero",
        ),
        (
            'addresses: ["10.20.0.{1..3}"]',
            'gpus: 0, addresses: ["10.20.0.{1..3}"]',
            "nodes: gpu-1, gpu-2, gpu-3 of training group training without GPUs: idle time there costs nothing",
        ),
        (
            '"gpu-{1..3}": {group: training, addresses: ["10.20.0.{1..3}"]}',
            '"gpu-{1..2}": {group: training, addresses: ["10.20.0.{1..2}"]}',
            "nodes: 2 in training groups: dropouts are judged in jobs of 3 or more, smaller ones as a whole only",
        ),
        (
            "role: model_storage",
            "role: storage",
            "groups: none has the role model_storage: its rules are left out, its panels stay empty",
        ),
        (
            "allowed:",
            "transport: [{between: [training, training], is: roce}]\nallowed:",
            "transport: training and training talk roce: flow records do not show it, rules leave it out",
        ),
        (
            "allowed:",
            "inference: {sources: [training]}\nallowed:",
            "inference: no group has the role inference: nothing is expected of anybody",
        ),
        (
            "nodes:",
            "  serving: {role: inference, prefixes: [10.50.0.0/24]}\ninference: {sources: [training]}\nnodes:",
            "inference.sources: `allowed` lets training reach no inference group: its clients are unauthorised",
        ),
        (
            "allowed:",
            "authority: [{between: [training, training], exporters: [leaf-1, spine-1]}]\nallowed:",
            "authority[0]: spine-1 is to count for training to training, but has counts: false",
        ),
        (
            "allowed:",
            'jobs: [{id: a, nodes: ["*"], start: 2026-03-01 08:00}]\nallowed:',
            "jobs: store of job a in no training group: not judged for dropout",
        ),
        (
            "role: model_storage, prefixes: [10.40.0.0/24]",
            "role: model_storage, prefixes: [10.40.0.0/24], nested_in: training",
            "groups.model_storage.nested_in: no prefix of training is around one of model_storage",
        ),
        (
            "nodes:",
            "  spare: {role: custom}\nnodes:",
            "groups.spare: no prefixes: no address is ever in it",
        ),
        (
            "nodes:",
            "  vault: {role: custom, prefixes: [10.41.0.0/24], sensitive: true}\nnodes:",
            "groups.vault: sensitive, but `allowed` does not name it: each of its conversations is a violation",
        ),
        (
            "nodes:",
            "  more: {role: training, prefixes: [10.21.0.0/16]}\nnodes:",
            "nodes: none in training group more: dropouts cannot be judged",
        ),
        (
            "nodes:",
            "".join(f"  more{n}: {{role: training, prefixes: [10.21.{n}.0/24]}}\n" for n in range(6)) + "nodes:",
            "nodes: none in training groups more0, more1, more2 and 3 more: dropouts cannot be judged",
        ),
        (
            "allowed:",
            "kafka: {username: a, password: {env: KAFKA}, mechanism: PLAIN}\nallowed:",
            "kafka: PLAIN without TLS: the password can be read on the way",
        ),
        (
            "allowed:",
            "kafka: {tls: true, verify_tls: false}\nallowed:",
            "kafka.verify_tls: false: whoever answers is taken for the broker",
        ),
        (
            "allowed:",
            "store: {url: 'http://db.example.org:8086', token: {env: TOKEN}}\nallowed:",
            "store.url: http://db.example.org:8086 without TLS: what gives access to InfluxDB can be read on the way",
        ),
        (
            "allowed:",
            "store: {url: 'https://10.0.0.1:8086', verify_tls: false}\nallowed:",
            "store.verify_tls: false: whoever answers is taken for InfluxDB; store.ca_file trusts one authority",
        ),
        (
            "allowed:",
            "store: {retention: {1m: 14d, 1h: 14d}}\nallowed:",
            (
                "store.retention.1h: 14d: sums over 30 days (exfil_30d, the ledger), what is usual in egress and the "
                "trend of capacity see no further back; 31d is enough"
            ),
        ),
        (
            "allowed:",
            "store: {retention: {raw: 100d}}\nallowed:",
            "store.retention.1m: shorter than raw: long times are read from it, and end there",
        ),
        (
            "groups:",
            "store: {retention: {1m: 14d}}\ngroups:\n  serving: {role: inference, prefixes: [10.50.0.0/24]}",
            "store.retention.1m: 14d: inference_spike compares with 2 earlier weeks, and stays learning; 15d is enough",
        ),
        (
            "allowed:",
            "bridge: {metrics_listen: '0.0.0.0:9105'}\nallowed:",
            "bridge.metrics_listen: 0.0.0.0:9105 is open to everyone who reaches it: set bridge.metrics_token",
        ),
    ],
)
def test_each_piece_of_advice(old: str, new: str, line: str) -> None:
    assert old in QUIET
    assert advice(parse_cluster(QUIET)) == []
    assert advice(parse_cluster(QUIET.replace(old, new, 1))) == [line]


LINKED = QUIET.replace(
    "exporters: {leaf-1: {address: 10.20.0.250}, spine-1: {address: 10.20.0.251, counts: false}}",
    """
exporters:
  leaf-1: {address: 10.20.0.250, interfaces: {1: {name: nodes}, 49: {name: to-border-1, counts: false}}}
  border-1: {address: 10.20.0.251, interfaces: {1: {name: wan}, 9: {name: leaf-1.Eth49}, 10: {name: leaf-10}}}
""",
)


def test_an_exporter_of_drills_needs_no_interfaces() -> None:
    old = "exporters: {leaf-1: {address: 10.20.0.250}, spine-1: {address: 10.20.0.251, counts: false}}"
    leaf = "leaf-1: {address: 10.20.0.250, interfaces: {1: {name: up}}}"
    assert old in QUIET
    new = f"exporters: {{{leaf}, drill: {{address: 10.20.0.9, watched: false}}}}"
    assert advice(parse_cluster(QUIET.replace(old, new))) == []


def test_a_link_between_exporters_that_are_described_counts_at_neither_end() -> None:
    line = (
        "exporters.border-1.interfaces.9: leaf-1.Eth49 counts what leaf-1 counts where it enters: twice, if this is "
        "the link to it; write counts: false"
    )
    assert advice(parse_cluster(LINKED)) == [line]
    for quiet in (
        LINKED.replace("leaf-1.Eth49", "leaf-1.Eth49, counts: false"),
        LINKED.replace("leaf-1.Eth49", "somewhere"),
        LINKED + 'authority: [{from: "*", to: "*", exporters: [leaf-1]}]\n',
    ):
        assert advice(parse_cluster(quiet)) == []


CONVERGED = """
cluster: lab
groups:
  training: {role: training, prefixes: [10.20.0.0/16], plane: compute}
  model_storage: {role: model_storage, prefixes: [10.40.0.0/24], plane: storage}
nodes:
  "gpu-[01-04]": {group: training, addresses: [{address: "10.20.0.{1..4}", plane: compute, rail: 0}]}
  store: {group: model_storage, addresses: [10.40.0.1]}
exporters: {"leaf-{1..2}": {address: "10.20.0.25{0..1}", interfaces: {1: {name: a, plane: compute}}}}
allowed: [{from: training, to: model_storage}]
notify: {noc: {type: webhook, url: {env: NOC}}}
grafana: {url: "https://grafana.example.org"}
"""


def test_a_converged_fabric_is_told_which_line_to_write() -> None:
    (line,) = advice(parse_cluster(CONVERGED))
    assert line == (
        "groups.model_storage.plane: storage, but training has addresses on compute alone: what they exchange is a "
        "violation (wrong_plane); one fabric for both? Write plane: compute there"
    )
    written = CONVERGED.replace("plane: storage", "plane: compute")
    assert advice(parse_cluster(written)) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("plane: compute, rail: 0}]", 'plane: compute, rail: 0}, {address: "10.20.1.{1..4}", plane: storage}]'),
        ("{name: a, plane: compute}", "{name: a, plane: storage}"),
        ("allowed: [{from: training, to: model_storage}]", "allowed: [{from: model_storage, to: model_storage}]"),
        ("prefixes: [10.40.0.0/24], plane: storage", "prefixes: [10.40.0.0/24]"),
    ],
)
def test_no_fabric_is_called_converged_that_need_not_be(old: str, new: str) -> None:
    changed = CONVERGED.replace(old, new)
    assert changed != CONVERGED
    assert not any("wrong_plane" in line for line in advice(parse_cluster(changed)))


def test_hundreds_of_switches_take_no_longer_than_their_description() -> None:
    """Each interface was looked at once a switch, by a pattern: half a minute for 512 of them."""
    interfaces = ", ".join(f"{port}: {{name: rack-{port}}}" for port in range(1, 33))
    switches = "".join(
        f"  leaf-{n}: {{address: 10.9.{n // 200}.{n % 200 + 1}, interfaces: {{{interfaces}}}}}\n" for n in range(300)
    )
    cluster = parse_cluster(
        f"cluster: a\ngroups: {{t: {{role: training, prefixes: [10.1.0.0/16]}}}}\nexporters:\n{switches}"
    )
    began = time.process_time()
    advice(cluster)
    assert time.process_time() - began < 1.5
