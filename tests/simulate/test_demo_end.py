"""How a run of the demo ends: what it waits for, and what it then holds against it."""

import sys
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

from app.errors import ClusterflowError, StoreError
from cluster.model import Cluster, StoreSettings
from rules.evaluate.evaluator import Evaluator
from simulate.demo import live
from simulate.demo.live import Demo
from simulate.demo.stack import Part
from simulate.incidents.incident import Expected, Incident, IncidentKind
from simulate.truth.watch import Watch
from store.influx import Store
from store.local_influxdb import free_port

SLOW = """
import signal, sys, time
time.sleep(1)
signal.signal(signal.SIGTERM, lambda *_: sys.exit({code}))
print("time=now level=info event=started", file=sys.stderr, flush=True)
time.sleep(60)
"""


@pytest.fixture
def demo(tmp_path: Path) -> Demo:
    return Demo(tmp_path, tmp_path, seconds=10, days=2, seed=None, grafana=None, console=Console(quiet=True))


@pytest.mark.service
@pytest.mark.parametrize("code", [0, 3])
def test_deliver_has_begun_before_it_is_told_to_stop(code: int, demo: Demo, tmp_path: Path) -> None:
    """Ten seconds on a busy machine are over while it is still starting: killed then, it seemed to end badly."""
    part = Part("deliver", [sys.executable, "-c", SLOW.format(code=code)], tmp_path / "deliver.log")
    demo._parts["deliver"] = part
    part.start()
    said = f"deliver ended with {code}: time=now level=info event=started"
    assert demo._end_delivery() == ((said,) if code else ())


def test_what_is_ready_by_its_end_may_end_at_any_moment(tmp_path: Path) -> None:
    """Grafana's files are built by a command that ends: also between two looks at it."""
    part = Part("build", [sys.executable, "-c", ""], tmp_path / "build.log")
    part.start()

    def is_built() -> bool:
        found = part.exit_code == 0
        assert part.process
        part.process.wait()
        return found

    part.wait_until(is_built, 30)
    with pytest.raises(ClusterflowError, match="build did not start: it said nothing"):
        part.wait_until(lambda: False, 30)


def test_a_deliver_that_ended_by_itself_is_told(demo: Demo, tmp_path: Path) -> None:
    part = Part("deliver", [sys.executable, "-c", "raise SystemExit('no disk')"], tmp_path / "deliver.log")
    demo._parts["deliver"] = part
    assert demo._end_delivery() == ()
    part.start()
    assert part.process
    part.process.wait()
    assert demo._end_delivery() == ("deliver ended with 1: no disk",)


class Quiet:
    """An evaluator in which nothing fires."""

    def tick(self, now: int) -> None:
        """Find nothing."""

    def alerts(self) -> list[object]:
        return []


BOTH = ["soon", "late"]


@pytest.mark.parametrize(
    ("cut", "owed"), [(None, BOTH), (1_110, []), (1_116, ["soon"]), (1_400, ["soon"]), (9_100, BOTH)]
)
def test_what_was_cut_short_owes_no_alert(cut: float | None, owed: list[str], demo: Demo) -> None:
    """Also where --for asked for more: of one the evidence was complete after 100 s, of the other after two hours."""
    incidents = [
        Incident(name, IncidentKind.FIRST_CONTACT, 1_000, 9_000, alerts=(Expected("r", (), due, 9_999),))
        for name, due in (("soon", 1_100), ("late", 8_200))
    ]
    demo._cut = cut
    found = demo._missing(Watch(cast("Evaluator", Quiet()), incidents))
    assert [one.incident for one in found] == owed


def test_a_store_that_is_away_for_a_moment_ends_no_run_and_one_that_is_gone_does(
    demo: Demo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is live, rules wait for it; at the end there is nothing to compare, however long one waits."""
    store, watch = Store(StoreSettings(url=f"http://127.0.0.1:{free_port()}")), Watch(cast("Evaluator", Quiet()), [])
    assert demo._evaluate(watch, 1_000, store) == []
    truth: dict[str, Any] = {
        part: [] for part in ("group_pairs", "egress", "nodes", "rails", "storage", "interfaces", "conversations")
    }
    truth |= {"incidents": [], "totals": Counter()}
    for name in ("_DELIVER_SECONDS", "_LOOK_SECONDS"):
        monkeypatch.setattr(live, name, 0.1)
    with pytest.raises(StoreError, match="InfluxDB at"):
        demo._settle(store, Cluster("x", ()), truth, watch, lambda: pytest.fail("nothing is compared"))
    store.close()
