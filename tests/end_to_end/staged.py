"""A minute of the demo cluster for end-to-end tests: its cluster.yaml, its spool, and the truth about both."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from cluster.load import load_cluster
from cluster.model import Cluster
from ingest.collect.counter_files import FOLDER
from simulate.demo.plan import Places, demo_cluster, demo_scenario, live_start
from simulate.packets.spool_files import SpoolFormat, SpoolWriter
from simulate.scenarios.scenario import Phase, Scenario
from simulate.traffic.workload import Workload
from simulate.truth.ground_truth import GroundTruth
from store.local_influxdb import free_port

REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Staged:
    """A cluster of its own for one test.

    Attributes:
        config: its cluster.yaml.
        cluster: the same, loaded.
        scenario: what is played.
        workload: the traffic.
    """

    config: Path
    cluster: Cluster
    scenario: Scenario
    workload: Workload

    @property
    def spool(self) -> Path:
        return Path(self.cluster.collector.spool)

    def fill(self, folder: Path, file_format: SpoolFormat = SpoolFormat.CSV) -> dict[str, Any]:
        """Write the live phase as spool files; return the truth."""
        truth = GroundTruth(self.workload)
        with SpoolWriter(self.workload, folder, truth, file_format=file_format, file_records=800) as writer:
            for batch in self.workload.batches(self.scenario.live):
                writer.write(batch)
        return truth.document()


def record_files(folder: Path) -> list[Path]:
    """Return the files of flow records in a folder, in the order of their names."""
    return sorted(path for path in folder.iterdir() if path.is_file())


def move_counters(folder: Path, spool: Path) -> None:
    """Move the files of interface counters from one spool to another."""
    (folder / FOLDER).rename(spool / FOLDER)


def stage(
    tmp_path: Path,
    store_url: str,
    database: str,
    *,
    begins_in: int = -300,
    seconds: int = 60,
    bridge: dict[str, str] | None = None,
    store: dict[str, Any] | None = None,
) -> Staged:
    """Return a staged minute that begins so many seconds from now."""
    places = Places(
        store_url=store_url,
        netflow_port=free_port(),
        sflow_port=free_port(),
        metrics_port=free_port(),
        spool=tmp_path / "spool",
        state=tmp_path / "state",
    )
    places.spool.mkdir()
    start = live_start(datetime.fromtimestamp(time.time() + begins_in, UTC))
    text = demo_cluster(load_cluster(REPOSITORY / "cluster.yaml"), start=start, places=places, history_days=0)
    document = yaml.safe_load(text)
    document["store"] |= {"database": database} | (store or {})
    document["bridge"] |= bridge or {}
    config = tmp_path / "cluster.yaml"
    config.write_text(yaml.safe_dump(document))
    cluster = load_cluster(config)
    scenario = demo_scenario(cluster, start=start, seconds=seconds, history_days=0)
    assert isinstance(scenario.live, Phase)
    return Staged(config, cluster, scenario, Workload(cluster, scenario))


def start(name: str, staged: Staged, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    """Start one of our commands on a staged cluster; its output goes to a log beside the configuration."""
    log = staged.config.with_name(f"{name}.log")
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "clusterflow", name, "--config", str(staged.config), *arguments],
            cwd=REPOSITORY,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )


def finish(process: subprocess.Popen[bytes], staged: Staged, name: str, seconds: float = 120) -> None:
    """Wait for a command to end well."""
    code = process.wait(seconds)
    assert code == 0, staged.config.with_name(f"{name}.log").read_text()
