"""What ``clusterflow simulate`` does with scenarios: lists them, plays them into a store, or now."""

import tempfile
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from app.errors import UserError
from app.progress import progress
from cluster.dump import dump_cluster
from cluster.model import Cluster, StoreApi
from simulate.recording import Recorded
from simulate.scenarios.scenario import Phase
from simulate.scenarios.script import Script, find_script, library, load_script
from simulate.trial import analyse, put
from simulate.truth.ground_truth import GroundTruth
from simulate.truth.matching import truth_of
from simulate.truth.written_moments import iso
from store.influx import Store

_AHEAD = 60
"""Seconds of an ordinary background before the first incident, where a scenario is played live."""
_LEAD = 3


def list_scenarios(console: Console) -> None:
    """Print the library: name, cluster, days, what must fire, title."""
    for path in library():
        script = load_script(path)
        owed = list(dict.fromkeys(one.rule for one in truth_of(script.incidents).owed if one.must))
        days = (script.end - script.start) / 86_400
        console.print(f"{script.name:28} {days:4.3g} d  {script.title}", highlight=False)
        console.print(f"{'':28} must fire: {', '.join(owed) or 'nothing'}", highlight=False, style="dim")


def into_store(
    script: Script, base: Cluster, *, url: str | None, database: str | None, console: Console
) -> tuple[Cluster, GroundTruth]:
    """Play a scenario into a database of its own and analyse it; return the cluster that fits, and the truth.

    Args:
        script: the scenario.
        base: cluster.yaml, which says where the store is.
        url: another store.
        database: its name; by default ``scenario_NAME``.
        console: where to tell how far it is.

    Raises:
        UserError: the database is the one of cluster.yaml, or holds something that is not ours to take away.
    """
    name = database or f"scenario_{script.name.replace('-', '_')}"
    if name == base.store.database:
        raise UserError(
            f"--database {name}: cluster.yaml's own", "simulated flows would mix with real ones; choose another name"
        )
    settings = replace(base.store, database=name)
    kept = script.cluster.store
    settings = replace(settings, keep_raw=kept.keep_raw, keep_1m=kept.keep_1m, keep_1h=kept.keep_1h)
    if url is not None:
        settings = replace(settings, url=url)
    cluster = replace(script.cluster, store=settings)
    began = time.monotonic()
    with Store(settings) as store:
        _empty(store, cluster, is_ours=database is None)
        with progress(console) as told:
            recorded, truth = put(script, store, told)
            written = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="clusterflow-scenario-") as folder:
                analyse(script, cluster, store, Path(folder), told)
    _tell(script, recorded, name, console, seconds=(written - began, time.monotonic() - written))
    return cluster, truth


def _empty(store: Store, cluster: Cluster, *, is_ours: bool) -> None:
    """Take away what an earlier run left in a database that is named after the scenario; refuse any other's points."""
    name = store.settings.database
    if is_ours and store.api() is StoreApi.V1:
        store.execute(f'DROP DATABASE "{name}"')
        return
    store.ensure(cluster.retentions())
    if store.query(f'SHOW MEASUREMENTS ON "{name}"'):
        raise UserError(f"database {name}: it holds points already", "choose another --database, or drop it")


def _tell(script: Script, recorded: Recorded, name: str, console: Console, *, seconds: tuple[float, float]) -> None:
    begin, end = (iso(moment * 1000).replace(".000", "") for moment in (script.start, script.end))
    console.print(
        f"{recorded.records:,} flow records, {recorded.points:,} points and {recorded.rolled_up:,} of rollups in "
        f"{seconds[0]:.0f} s, analysed in {seconds[1]:.0f} s: database {name}, {begin} to {end}",
        highlight=False,
        soft_wrap=True,
    )


def live_part(name: str, seed: int | None, seconds: int) -> tuple[Script, Phase]:
    """Return a scenario as if it began in a moment, and the part of it to send: from shortly before its first incident.

    Args:
        name: of the library, or a file.
        seed: instead of the file's.
        seconds: how long it lasts.
    """
    path = find_script(name)
    script = load_script(path, seed=seed)
    first = min((incident.start for incident in script.incidents), default=script.start)
    before = max(first - _AHEAD - script.start, 0)
    now = (int(time.time()) + _LEAD) // 10 * 10 + 10
    shifted = load_script(path, seed=seed, begin=now - before)
    phase = shifted.scenario.live
    end = min(now + -(-seconds // phase.timeout) * phase.timeout, phase.end)
    return shifted, replace(phase, start=now, end=end)


def write_cluster(cluster: Cluster, path: Path, console: Console, script: Script) -> None:
    """Write the cluster.yaml that fits, and say what it is good for."""
    path.write_text(dump_cluster(cluster), encoding="utf-8")
    begin, end = (iso(moment * 1000).replace(".000", "") for moment in (script.start, script.end))
    console.print(
        f"cluster: {path}; look with `clusterflow explore -c {path}`, judge again with "
        f"`clusterflow analyze -c {path} --from {begin} --to {end}`",
        highlight=False,
        soft_wrap=True,
    )
