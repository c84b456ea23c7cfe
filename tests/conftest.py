"""Services that tests of every part may ask for: real InfluxDB servers, found on the machine, one a test process.

A test takes `influxdb_v1` (Debian's 1.6, written to by /write) or `influxdb_v2` (1.8, which also has the v2 write
API) together with `fresh_database`, so that tests share a server without seeing each other's points.
"""

import os

# Read when polars is imported. Frames of tests are small: a second thread saves nothing, and costs a tenth of the
# processor time where there are many.
os.environ["POLARS_MAX_THREADS"] = "1"

import gc
import re
import shutil
import signal
import subprocess
import uuid
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from app.errors import StoreError
from bench.faults import RESULTS, Record, Result, note
from cluster.model import StoreSettings
from simulate.truth.reckoning import Reckoning
from store import schema
from store.influx import Store
from store.local_influxdb import LocalInfluxDB

# What a test starts has as many threads as a user's.
del os.environ["POLARS_MAX_THREADS"]

REPOSITORY = Path(__file__).resolve().parent.parent

# The same examples in every run: a check of a change must not turn red by what it did not touch. CLUSTERFLOW_FUZZ=1, as
# scripts/faults sets it, looks for new ones.
settings.register_profile("same", derandomize=True, database=None)
settings.register_profile("new")
settings.load_profile("new" if os.environ.get("CLUSTERFLOW_FUZZ") else "same")

# Servers of tests hold little: they need not look for garbage all the time, nor share the work among threads.
os.environ.setdefault("GOGC", "400")
os.environ.setdefault("GOMAXPROCS", "1")

# A run in the background of a script ignores SIGINT, and so would the commands and daemons that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_RUNNING: list[LocalInfluxDB] = []


@cache
def _version(binary: str) -> str:
    """Return what `influxd version` prints, or nothing where it does not run."""
    try:
        return subprocess.run([binary, "version"], capture_output=True, text=True, timeout=20, check=False).stdout
    except OSError:
        return ""


def _speaks_v2(binary: str) -> bool:
    """Whether this 1.x server has the v2 write API: since 1.8. One built by `go install` may not know its version."""
    return re.search(r"\bv?1\.[0-7]\.", _version(binary)) is None


def _on_path(name: str) -> Iterator[str]:
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if folder and (found := shutil.which(name, path=folder)):
            yield found


def _influxd(variable: str, *, v2: bool) -> str | None:
    """Return the influxd to test with: the one the variable names, or the first of the right kind on the machine."""
    if named := os.environ.get(variable):
        return named
    built_here = [str(REPOSITORY / "var/tools/bin/influxd"), str(Path.home() / "go/bin/influxd")]
    for binary in [*_on_path("influxd"), *built_here]:
        if Path(binary).is_file() and _version(binary) and _speaks_v2(binary) is v2:
            return binary
    return None


def _server(folder: Path, binary: str | None, reason: str) -> Iterator[LocalInfluxDB]:
    if binary is None:
        pytest.skip(reason)
    # No test waits for many writes to share an fsync.
    with LocalInfluxDB(folder, binary=binary, data={"wal-fsync-delay": "0s"}) as server:
        _RUNNING.append(server)
        yield server
        _RUNNING.remove(server)


@pytest.fixture(scope="session")
def influxdb_v1(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalInfluxDB]:
    """A running InfluxDB of Debian's version, which has the v1 API only."""
    binary = _influxd("CLUSTERFLOW_INFLUXD_V1", v2=False)
    yield from _server(
        tmp_path_factory.mktemp("influxdb-v1"),
        binary,
        "no InfluxDB before 1.8: apt-get install influxdb, or set CLUSTERFLOW_INFLUXD_V1",
    )


@pytest.fixture(scope="session")
def influxdb_v2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalInfluxDB]:
    """A running InfluxDB 1.8, which has the v2 write API too."""
    binary = _influxd("CLUSTERFLOW_INFLUXD_V2", v2=True)
    yield from _server(
        tmp_path_factory.mktemp("influxdb-v2"),
        binary,
        "no InfluxDB 1.8: run scripts/test once, or set CLUSTERFLOW_INFLUXD_V2",
    )


@pytest.fixture
def fresh_database() -> Iterator[str]:
    """Name of a database that no other test uses; `Store.ensure` creates it.

    It is dropped after the test: hundreds of them, each with its shards, would keep a server busy.
    """
    name = f"test_{uuid.uuid4().hex[:12]}"
    yield name
    for server in _RUNNING:
        with suppress(StoreError), closing(Store(StoreSettings(url=server.url, database=name))) as store:
            store.execute(f'DROP DATABASE "{name}"')


@pytest.fixture
def record() -> Record:
    """Note what a fault did, for the table in docs/reference/faults.md, and fail unless it is what is stated."""

    def of(fault: str, result: Reckoning, *, trials: int = 1, stated: int = 0, counted: str = "") -> None:
        gaps = [one for one in result.differences if one.what.startswith("groups ") and one.unit == schema.BYTES.name]
        lost = sum(max(gap.sent - gap.stored, 0) for gap in gaps)
        doubled = sum(max(gap.stored - gap.sent, 0) for gap in gaps)
        note(RESULTS, Result(fault, trials, lost, doubled, counted))
        told = [str(difference) for difference in result.differences]
        assert (lost, doubled) == (stated, 0), told
        assert stated or not told, told
        assert result.checked > 50
        assert result.sent_bytes > 10**9

    return of


_SERVICES = {"influxdb_v1", "influxdb_v2", "kafka", "rsyslog"}
"""Fixtures that start a server."""

# What `scripts/test --fast` leaves out, by where it lies; tests that ask for a server, and those that Hypothesis
# makes many examples for, are known by themselves.
_MARKED = {
    "end_to_end": ("tests/end_to_end", "tests/faults"),
    "service": (
        "tests/kafka", "tests/ingest/test_pmacct_daemons.py", "tests/ingest/test_pmacct_captures.py",
        "tests/ingest/test_pmacct_config.py", "tests/ingest/test_pmacct_templates_path.py",
        "tests/simulate/test_simulate_pmacct.py", "tests/simulate/test_simulate_polls.py",
        "tests/simulate/test_packet_pool.py", "tests/simulate/test_stores.py", "tests/workshop/test_tee.py",
    ),
    "thorough": ("tests/fuzz", "tests/hostile"),
}  # fmt: skip


@cache
def _lies_in(file: str, places: tuple[str, ...]) -> bool:
    """Whether a file of the repository is one of these, or in one of these folders; asked for thousands of tests."""
    return not {file, *(parent.as_posix() for parent in Path(file).parents)}.isdisjoint(places)


_LONG = (
    "tests/end_to_end/test_demo.py", "tests/analysis/test_analysis_store.py", "tests/kafka/test_kafka_worker.py",
    "tests/analysis/test_exfiltration_store.py", "tests/kafka/test_relay.py", "tests/simulate/test_recording.py",
    "tests/faults/test_faults_collector.py", "tests/ingest/test_once.py", "tests/faults/test_faults_process.py",
    "tests/rules/test_rule_cases.py", "tests/simulate/test_simulate_pmacct.py", "tests/rules/test_floor.py",
    "tests/end_to_end/test_trial.py", "tests/rules/test_rules_cli.py", "tests/simulate/test_past.py",
    "tests/analysis/test_job_sources.py", "tests/kafka/test_relay_to_store.py", "tests/simulate/test_case_scenarios.py",
    "tests/faults/test_faults_store.py", "tests/delivery/test_delivery_sources.py",
    "tests/security/test_injection_stored.py", "tests/hostile/test_hostile_exporters.py", "tests/rules/test_replay.py",
    "tests/analysis/test_beacons_store.py", "tests/end_to_end/test_service_studies.py",
    "tests/delivery/test_delivery_pair.py", "tests/faults/test_faults_files.py", "tests/analysis/test_storage_store.py",
    "tests/end_to_end/test_ingest.py", "tests/store/test_lease.py", "tests/ingest/test_pmacct_daemons.py",
    "tests/analysis/test_analysis_cli.py", "tests/delivery/test_delivery_process.py",
    "tests/analysis/test_ledger_store.py", "tests/analysis/test_shapes_store.py", "tests/dashboards/test_own_boards.py",
    "tests/security/test_secrets_stay_secret.py", "tests/ingest/test_known_rates.py", "tests/cloud/test_process.py",
    "tests/workshop/test_wheel.py",
)  # fmt: skip
"""Files that take longest, the longest first: what begins last decides when a run ends."""


_WAITING = (
    *_MARKED["end_to_end"], *_MARKED["service"], "tests/cloud/test_process.py", "tests/delivery/test_delivery_pair.py",
    "tests/ingest/test_bridge.py", "tests/ingest/test_daemon_load.py", "tests/ingest/test_guard.py",
    "tests/ingest/test_known_rates.py", "tests/ingest/test_pipe_store_away.py", "tests/ingest/test_quick_printf.py",
    "tests/store/test_lease.py",
)  # fmt: skip
"""Files that wait for daemons for three quarters of their time, and folders of such."""


class _Mixed(LoadFileScheduling):
    """Shares whole files out so that half of the processes compute while the others wait for daemons."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        others = [files for other, files in self.assigned_work.items() if other is not node and files]
        waiting = sum(_lies_in(next(reversed(files)), _WAITING) for files in others)
        may_wait = 2 * waiting < len(self.assigned_work)
        fitting = (file for file in self.workqueue if _lies_in(file, _WAITING) is may_wait)
        if (file := next(fitting, None)) is not None:
            self.workqueue.move_to_end(file, last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    """Share files out, whatever `--dist` says: their tests share servers and stores."""
    return _Mixed(config, log)


def _name_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by where they lie and by what they ask for, and put them into the order in which they begin."""
    places = {name: place for place, name in enumerate(_LONG)}
    items.sort(key=lambda item: places.get(_name_of(item), len(places)))
    for item in items:
        for mark, where in _MARKED.items():
            if _lies_in(_name_of(item), where):
                item.add_marker(mark)
        # Some ask for a fixture by its name among their parameters.
        if _SERVICES.intersection((*getattr(item, "fixturenames", ()), *re.split(r"[\[\]-]", item.name))):
            item.add_marker(pytest.mark.service)
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.thorough)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect ten thousand tests, in each process, without looking for garbage among them, then or later.

    What tests make is looked through seldom: a fortieth of all the processor time went into it.
    """
    gc.disable()
    result = yield
    gc.freeze()
    gc.set_threshold(20_000)
    gc.enable()
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests did not run, also when it is none: a skip that nobody notices hides a missing install."""
    terminalreporter.write_line(f"skipped: {len(terminalreporter.stats.get('skipped', []))}")
