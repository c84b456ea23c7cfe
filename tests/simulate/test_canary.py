"""What the canary needs of cluster.yaml, what it sends, and what it says when nothing comes back."""

import json
import re
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from app.errors import UserError
from cluster.load import load_cluster, parse_cluster
from cluster.model import Cluster, Retention
from rules.evaluate.evaluator import Evaluator
from rules.registry import rules_of
from simulate.canary import DOMAIN, alert_rule, plan, records
from simulate.canary_cli import canary
from simulate.packets.own_exporter import collector, send
from simulate.packets.udp import Target
from store.influx import Store
from store.local_influxdb import LocalInfluxDB, free_port

DOCS = Path(__file__).parents[2] / "docs/operations.md"
(LINES,) = re.findall(r"```yaml\n(groups:\n  canary:.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
HEAD = "cluster: x\n"


def _cluster(text: str = LINES) -> Cluster:
    return parse_cluster(HEAD + text)


def test_the_lines_of_the_docs_are_enough() -> None:
    found = plan(_cluster())
    assert (found.group, str(found.src), str(found.dst)) == ("canary", "192.0.2.249", "192.0.2.250")
    assert found.exporter.name == "canary"
    assert 1_000 <= found.octets == found.stored < 1_000_000
    assert "exporter_silent" not in {rule.id for rule in rules_of(_cluster()).rules}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("role: canary", "role: custom", "groups: 0 of role canary"),
        (", 192.0.2.250]", "]", "nodes: 1 addresses in group canary: expected two of one family"),
        ("127.0.0.1", "203.0.113.99", r"exporters: canary \(203.0.113.99\): none has an address of this machine"),
        ("watched: false", "protocol: sflow", "exporters: none that counts: none has an address of this machine"),
    ],
)
def test_what_is_missing_is_said(old: str, new: str, said: str) -> None:
    assert old in LINES
    with pytest.raises(UserError, match=said):
        plan(_cluster(LINES.replace(old, new)))


def test_an_exporter_that_is_named() -> None:
    more = LINES + "  leaf: {address: 127.0.0.2, sampling: 100}\n"
    assert plan(_cluster(more)).exporter.name == "canary", "one that is not watched is meant for it"
    named = plan(_cluster(more), "leaf")
    assert named.stored == 100 * named.octets
    with pytest.raises(UserError, match="expected a NetFlow exporter"):
        plan(_cluster(more), "nobody")


def test_two_datagrams_from_the_exporters_address() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(5)
        what = plan(_cluster(LINES.replace("127.0.0.1", "127.0.0.77")))
        at = 1_770_120_000.5
        send(what.exporter, records(what, at), Target("127.0.0.1", receiver.getsockname()[1]), domain=DOMAIN, at=at)
        messages = [receiver.recvfrom(2000) for _ in range(2)]
    assert {address[0] for _, address in messages} == {"127.0.0.77"}
    assert [message[:2] for message, _ in messages] == [b"\x00\x0a"] * 2, "IPFIX"
    # Sequence numbers begin anew each time, behind those of before: nothing is taken for lost.
    assert [int.from_bytes(message[8:12]) for message, _ in messages] == [0, 1]
    assert what.src.packed + what.dst.packed in messages[1][0]


@pytest.mark.parametrize(("exporter", "host"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1")])
def test_a_collector_of_both_ip_versions_is_reached_by_either(exporter: str, host: str) -> None:
    cluster = _cluster(LINES.replace("127.0.0.1", f'"{exporter}"') + 'collector: {listen: "::"}\n')
    assert collector(cluster, plan(cluster).exporter).host == host


def test_its_rule_fires_at_the_bytes_it_waits_for(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    cluster = load_cluster(Path(__file__).parents[2] / "cluster.yaml")
    store = Store(type(cluster.store)(url=influxdb_v1.url, database=fresh_database))
    store.ensure((Retention("raw", 10, 0),))
    begin = 1_770_120_000
    line = "traffic,src_group=canary,dst_group=canary,proto=udp,service=other,plane=unknown,shard=0 bytes=5000i"
    store.write(f"{line} {begin}".encode(), "raw")
    for expected, fires in ((5000, True), (5001, False)):
        evaluator = Evaluator(store, [alert_rule("canary", 20, expected)])
        evaluator.tick(begin + 20)
        assert [alert.annotations["summary"] for alert in evaluator.alerts()] == (
            ["The canary of 5kB has arrived."] if fires else []
        )


def _run(folder: Path, url: str, database: str, *arguments: str) -> tuple[int, str]:
    config = folder / "cluster.yaml"
    port = free_port()
    config.write_text(
        f"{HEAD}{LINES}\nstore: {{url: '{url}', database: {database}}}\ncollector: {{netflow_port: {port}}}\n"
    )
    result = CliRunner().invoke(canary, ["-c", str(config), *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout


def test_nothing_comes_back(tmp_path: Path, influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    store = Store(_cluster().store.__class__(url=influxdb_v1.url, database=fresh_database))
    store.ensure((Retention("raw", 10, 0),))
    code, text = _run(tmp_path, influxdb_v1.url, fresh_database, "--within", "1s", "--json")
    found = json.loads(text)
    assert code == 1
    assert (found["ok"], found["queryable_seconds"], found["alert_seconds"]) == (False, None, None)
    assert found["trouble"].startswith("it is not in InfluxDB after 1 s")


def test_a_store_that_is_away(tmp_path: Path) -> None:
    code, text = _run(tmp_path, f"http://127.0.0.1:{free_port()}", "x", "--within", "1s")
    assert (code, len(text.splitlines())) == (1, 1)
    assert text.startswith("canary: InfluxDB at http://127.0.0.1:")
