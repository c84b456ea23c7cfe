"""What benches measure with: processes and what descends from them, nfacctd's own count, filled stores."""

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from bench.boards import Filled, _timed, misses
from bench.costs.processes import Meter, Usage, descendants, usage
from bench.load.fill import EVERY, fill, series
from bench.load.probe import percentiles
from bench.peer import _whole
from bench.pipelines import differences, printed_records
from cluster.load import load_cluster
from cluster.model import StoreSettings
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB

REPOSITORY = Path(__file__).parents[2]
CLUSTER = load_cluster(REPOSITORY / "cluster.yaml")
BURN = "import time; end = time.process_time() + {cpu}\nwhile time.process_time() < end: pass\n"
PARENT = """
import subprocess, sys, time
block = bytearray(64 << 20)
sys.stdin.readline()
subprocess.run([sys.executable, "-c", sys.argv[1]])
print("done", flush=True)
time.sleep(60)
"""


FORGETFUL = "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n" + PARENT


@pytest.fixture
def family(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A process of 64 MiB whose child, started by a line, uses 0.3 s of CPU and ends."""
    code = [sys.executable, "-c", getattr(request, "param", PARENT), BURN.format(cpu=0.3)]
    with subprocess.Popen(code, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        yield parent
        parent.kill()


@pytest.mark.parametrize("family", [PARENT, FORGETFUL], ids=["waited-for", "forgotten"], indirect=True)
def test_children_that_ended_count(family: subprocess.Popen[str], request: pytest.FixtureRequest) -> None:
    meter = Meter({"family": family.pid})
    meter.start()
    if request.node.callspec.id == "forgotten" and not meter.counts_forgotten:
        pytest.skip("no control groups, or not root")
    assert family.stdin
    assert family.stdout
    print(file=family.stdin, flush=True)
    family.stdout.readline()
    meter.sample()
    found = meter.document(1.0)["family"]
    assert 0.25 < found["cpu_seconds"] < 2
    assert 64 <= found["peak_mib"] < 200
    assert descendants([family.pid]) == [family.pid]


def test_a_process_that_is_gone_uses_nothing() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert usage([gone.pid]) == Usage(0.0, 0, 0, 0)


def test_growth_is_told() -> None:
    meter = Meter({"a": 1})
    for second in range(9):
        grown = (100 + 10 * second) << 20
        cached = min(100 + 25 * second, 200) << 20
        samples = {
            "flat": Usage(second, 100 << 20, 60 << 20, 0),
            "leak": Usage(0, grown, grown, 0),
            "cache": Usage(0, cached, cached, 0),
            # Pages of files that it has written come, and the kernel takes them when it likes.
            "store": Usage(second * (1 + second // 6), grown, grown, 10 * second << 20),
        }
        for name, sample in samples.items():
            meter._series.setdefault(name, []).append(sample)
    assert meter.thirds() == {
        "flat": thirds((100, 100, 100), 0, 1.0, flat=True),
        "leak": thirds((110, 140, 170), 0, None, flat=False),
        "store": thirds((100, 100, 100), 80, 2.0, flat=True),
        # Caches fill, and then are full.
        "cache": thirds((125, 200, 200), 0, None, flat=True),
    }


def thirds(medians: tuple[int, int, int], mapped: int, cpu: float | None, *, flat: bool) -> dict[str, object]:
    names = "first_third_mib", "middle_third_mib", "last_third_mib"
    return dict(zip(names, medians, strict=True)) | {"mapped_mib": mapped, "flat": flat, "cpu_last_to_first": cpu}


def test_what_nfacctd_says_it_printed() -> None:
    log = (
        b"INFO ( flows/print ): *** Purging cache - START (PID: 7) ***\n"
        b"INFO ( flows/print ): *** Purging cache - END (PID: 7, QN: 80/80, ET: 2) ***\n"
        b"INFO ( flows/print ): *** Purging cache - END (PID: 8, QN: 0/0, ET: X) ***\n"
        b"INFO ( flows/print ): *** Purging cache - END (PID: 9, QN: 180520/180520, ET: 5) ***\n"
    )
    assert printed_records(log) == 180_600


def test_what_is_written_after_the_last_record_counts_as_with_other_collectors() -> None:
    """Of 1 M flows in 10 s the bridge took 3 s of CPU while they came, and 1 s more until all of it was stored."""
    part = {"cpu_seconds": 3.0, "cores": 0.3, "peak_mib": 7, "cpu_us_a_flow": 4.0}
    counts = {"rate": 100_000, "sent": 1_000_000, "printed": 1_000_000, "seconds": 10.0, "exact": True}
    lost = {"lost_kernel_datagrams": 0, "sent_datagrams": 40_000, "other_cores": 0.0}
    found = _whole({**counts, **lost, "processes": {"bridge": part, "sender": part}})
    assert (found["cpu_us_a_flow"], found["cores_needed"], found["lost_share"]) == (4.0, 0.4, 0.0)


def test_differences_are_named() -> None:
    sent = {("a", "b"): (1, 1, 1), ("a", "c"): (2, 1, 1)}
    assert differences(sent, sent) == []
    assert differences(sent, {("a", "b"): (1, 1, 1)}) == [["a", "c", (2, 1, 1), None]]


def test_percentiles() -> None:
    assert percentiles([1.0]) == {"p50": None, "p95": None, "max": None}
    assert percentiles([float(n) for n in range(1, 102)]) == {"p50": 51.0, "p95": 96.0, "max": 101.0}


def test_a_filled_store_has_every_series(influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    """Each kept measurement has its series in each retention that it belongs to, and a point whenever it would live."""
    settings = StoreSettings(url=influxdb_v1.url, database=fresh_database)
    cluster = replace(CLUSTER, store=settings)
    store = Store(settings)
    store.ensure(cluster.retentions())
    rows = series(cluster)
    begin = int(time.time()) // 300 * 300 - 300
    raw = cluster.retentions()[0]
    written = sum(count for _, count in fill(store, raw, rows, begin, begin + 30))
    kept = {one: len(found) for one, found in rows.items() if schema.RAW in one.retentions}
    assert written == sum(count * (1 if one in EVERY else 3) for one, count in kept.items())
    # Of what is written once in a while, at starts and changes, no board draws a curve.
    missing = [one.name for one in schema.MEASUREMENTS if one.kept != schema.META and one not in rows]
    assert not missing, f"bench/load/fill.py: series() has none of {missing}"
    nodes = store.query(f'SELECT count("tx_bytes") FROM "raw"."{schema.NODE_TRAFFIC.name}" GROUP BY *')
    assert len(nodes) == len(rows[schema.NODE_TRAFFIC])
    assert {one.values[0][1] for one in nodes} == {3}
    store.close()


def test_a_server_that_waits_for_its_disk_is_slow_where_its_cache_is_cold() -> None:
    """Warm, what it does not work is other work on the machine."""

    class Disk:
        def query(self, _text: str) -> None:
            time.sleep(0.05)

    idle = cast("Filled", SimpleNamespace(worked=lambda: 0.0))
    cold, warm = (_timed(idle, cast("Store", Disk()), [("panel", "q")], is_cold=one)[0] for one in (True, False))
    assert cold.seconds >= 0.05 > warm.seconds


def test_what_is_over_its_budget_is_listed() -> None:
    wall = {"step": "board", "board": "noc_wall", "nodes": 4096, "span": "1h", "warm_seconds": 1.2}
    slow = {"slow": [["Nodes by bytes sent", 1.5, "SELECT"]]}
    explore = {"step": "board", "board": "explore", "nodes": 4096, "span": "24h", "warm_seconds": 2.9, **slow}
    rules = {"step": "rules", "nodes": 4096, "seconds": 0.9}
    assert misses([wall, explore, rules, {"step": "boards_fill", "nodes": 4096}]) == [
        "noc_wall, 1h, 4,096 nodes: 1.20 s, budget 1 s",
        "explore, 24h, Nodes by bytes sent, 4,096 nodes: 1.50 s, budget 1 s",
    ]
    assert misses([wall | {"warm_seconds": 0.9}, rules | {"seconds": 1.1}]) == [
        "all rules, 4,096 nodes: 1.10 s, budget 1 s"
    ]
