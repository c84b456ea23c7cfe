"""A scenario's file -> what is played: a cluster with job windows, and a `Scenario`; or every fault in it at once."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from app.errors import ConfigError, Problem, UserError
from app.units import format_duration
from app.words import some
from cluster.document import Faults, Mapping, parse, read_text
from cluster.load import load_cluster
from cluster.model import CheckpointMode, CheckpointPlan, Cluster, ExportProtocol, Job, JobClass, Outcome, Role
from cluster.scalars.kinds import Bad, Placed, Table, closest
from cluster.scalars.ranges import expand
from rules.registry import IDS
from simulate.incidents.exfiltration_evidence import with_exfiltration
from simulate.incidents.expect import RESTS_ON_HISTORY
from simulate.incidents.incident import Expected, Incident, IncidentKind
from simulate.incidents.incident_kinds import KINDS
from simulate.incidents.stage import Stage
from simulate.scenarios.clusters import SIZES, built_in, ipv6_only, with_settings
from simulate.scenarios.scenario import Phase, Profile, Run, Scenario, default_styles
from simulate.scenarios.script_fields import SCRIPT, Addresses, default_of
from simulate.traffic.cast import Cast, nodes_with
from simulate.truth.matching import unique_ids

LIBRARY = Path(__file__).with_name("library")
"""The scenarios that come with us: NAME.yaml."""

_TIMEOUT, _SLICE = 60, 3600
"""Seconds: active timeout of the exporters, and what is drawn at once."""
_COARSE = 60
"""How many small conversations of a dense background become one."""
_POLL = 300
"""Seconds between two polls of interface counters."""
_FINE = 10
"""The same times where it is played live."""

_DAY = 86_400
_LATE = 3600
"""Seconds in which an alert counts that nothing but the file asks for."""
_MAY = "or list it under `may`"
_WORKWEEK = 5
_KEEP = 3650 * _DAY


@dataclass(frozen=True, slots=True)
class Script:
    """One scenario, ready to be played.

    Attributes:
        name: as it is asked for.
        title, about: for people.
        path: its file.
        cluster: with the job windows and job classes of the scenario.
        scenario: everything that is played; its live phase is all of it.
    """

    name: str
    title: str
    about: str
    path: Path
    cluster: Cluster
    scenario: Scenario

    @property
    def start(self) -> int:
        """Begin, epoch seconds."""
        return self.scenario.live.start

    @property
    def end(self) -> int:
        """End, epoch seconds."""
        return self.scenario.live.end

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """What is staged, near misses included."""
        return self.scenario.incidents


def library() -> tuple[Path, ...]:
    """Return the files of our own scenarios, in order."""
    return tuple(sorted(LIBRARY.glob("*.yaml")))


def find_script(name: str) -> Path:
    """Return the file of a scenario of the library, or the file itself that is named; UserError if there is none."""
    if name.endswith((".yaml", ".yml")) or "/" in name:
        return Path(name)
    path = LIBRARY / f"{name}.yaml"
    if not path.is_file():
        hint = closest(name, (other.stem for other in library()))
        raise UserError(
            f"{name}: no such scenario", hint or "clusterflow simulate --list shows all; files end in .yaml"
        )
    return path


def load_script(path: Path, *, seed: int | None = None, begin: int | None = None) -> Script:
    """Return the scenario of a file.

    Args:
        path: the file.
        seed: instead of the file's.
        begin: epoch second that takes the place of midnight of the first day, to play it now; exporters then have the
            short active timeout that a live phase needs.

    Raises:
        ConfigError: the file cannot be read or has faults; it lists all of them.
    """
    faults = Faults(str(path))
    root = parse(read_text(path), faults)
    if root is None and not faults.problems:
        raise ConfigError(
            str(path), [Problem("", "an empty file", "a scenario", "docs/reference/scenarios.md shows one")]
        )
    try:
        table = SCRIPT.read(root or Mapping(), "", faults)
    except Bad:
        faults.add("", root.shown() if root else "nothing", "a mapping that begins with `title: ...`")
        faults.raise_if_any()
        raise
    faults.raise_if_any()
    return _Builder(path, table, faults, seed=seed, begin=begin).script()


@dataclass(frozen=True, slots=True)
class _Plan:
    """One entry of `jobs`, and its runs in the order of time."""

    path: str
    table: Table
    profile: Profile
    runs: tuple[Run, ...]


class _Builder:
    """Builds a script from a table without faults of form; finds those of meaning."""

    def __init__(self, path: Path, table: Table, faults: Faults, *, seed: int | None, begin: int | None) -> None:
        self._path, self._table, self._faults = path, table, faults
        self._seed = table["seed"] if seed is None else seed
        self._begin = begin
        self._cluster = self._built_cluster()
        self._zone = self._cluster.site.time_zone
        self._first: date = table["start"]

    def script(self) -> Script:
        """Return it; ConfigError with all faults."""
        table = self._table
        step = _TIMEOUT if self._begin is None else _FINE
        start = self._moment(1, 0)
        end = start + max(round(table["days"] * _DAY) // step, 1) * step
        phase = (
            Phase(start, end, _TIMEOUT, _SLICE, _COARSE, _POLL)
            if self._begin is None
            else Phase(start, end, _FINE, _FINE)
        )
        plans = [self._plan(placed, phase) for placed in table["jobs"]]
        runs = tuple(sorted((run for plan in plans for run in plan.runs), key=lambda run: (run.start, run.job)))
        self._check_overlaps(runs)
        self._faults.raise_if_any()
        cluster = replace(
            self._cluster,
            jobs=(*self._cluster.jobs, *(_job(run) for run in runs)),
            job_classes=(*self._cluster.job_classes, *_classes(plans)),
        )
        default = Profile() if not plans else plans[0].profile
        stage = Stage(cluster, Cast(cluster), default, runs, phase, self._seed, background=table["background"])
        staged = [
            (incident, placed)
            for number, placed in enumerate(table["incidents"])
            for incident in self._incident(replace(stage, number=number), placed, plans)
        ]
        owing = with_exfiltration(stage, [incident for incident, _ in staged], self._styles(stage.cluster))
        incidents = [self._owed(incident, placed) for incident, (_, placed) in zip(owing, staged, strict=True)]
        self._faults.raise_if_any()
        scenario = Scenario(
            self._seed,
            phase,
            profile=default,
            runs=runs,
            incidents=unique_ids(incidents),
            styles=self._styles(cluster),
            background=table["background"],
        )
        return Script(self._path.stem, table["title"], table["about"], self._path, cluster, scenario)

    # -- where ---------------------------------------------------------------------------------------

    def _built_cluster(self) -> Cluster:
        table = self._table
        name: str = table["cluster"]
        cluster = built_in(name) if name in SIZES else load_cluster(self._path.parent / name)
        if table["addresses"] is Addresses.IPV6:
            cluster = ipv6_only(cluster)
        cluster = with_settings(cluster, table["settings"] or {}, f"{self._path}: settings")
        # Scenarios have days of their own, however long ago: nothing of them expires.
        kept = replace(cluster.store, keep_raw=_KEEP, keep_1m=_KEEP, keep_1h=_KEEP)
        return replace(cluster, store=kept)

    def _styles(self, cluster: Cluster) -> tuple[tuple[str, Any], ...]:
        """Return how exporters speak: without sampling, or all that count with the rate of the file."""
        return tuple(
            (exporter.name, replace(style, rate=self._table["sampling"]))
            for exporter in cluster.exporters
            for style in [default_styles(cluster)[exporter.name]]
            if exporter.protocol is ExportProtocol.NETFLOW and exporter.counts
        )

    # -- when ----------------------------------------------------------------------------------------

    def _moment(self, day: int, second: int) -> int:
        """Return the epoch second at which the site's clock shows a second of a day, counted from 1."""
        if self._begin is not None:
            return self._begin + (day - 1) * _DAY + second
        local = datetime.combine(self._first + timedelta(days=day - 1), time(), self._zone)
        hours, rest = divmod(second, 3600)
        return int(local.replace(hour=hours, minute=rest // 60, second=rest % 60).timestamp())

    def _days(self, phase: Phase) -> Iterator[int]:
        day = 1
        while self._moment(day, 0) < phase.end:
            yield day
            day += 1

    # -- jobs ----------------------------------------------------------------------------------------

    def _plan(self, placed: Placed[Table], phase: Phase) -> _Plan:
        table = placed.value
        nodes = self._nodes(table["nodes"], placed.path)
        saves = table["checkpoints"] or {}
        profile = Profile(
            job_class=table["class"],
            algorithm=table["algorithm"],
            rate=table["rate"],
            step=table["step"],
            noise=table["noise"],
            shares=tuple((name, one.value) for name, one in table["shares"].items()),
            dataset=table["dataset"],
            prefetch=table["prefetch"],
            checkpoint=default_of(saves, "bytes", Profile().checkpoint),
            checkpoint_seconds=default_of(saves, "lasting", Profile().checkpoint_seconds),
        )
        runs: list[Run] = []
        for day in self._days(phase):
            weekday = (self._first + timedelta(days=day - 1)).weekday()
            if weekday >= _WORKWEEK and not table["weekends"]:
                continue
            for moment in sorted({item.value for item in table["at"]}):
                start = self._moment(day, moment.hour * 3600 + moment.minute * 60)
                end = start + table["lasting"]
                if nodes and phase.start <= start and end <= phase.end:
                    # What overlaps is a fault, and there may be very many such runs.
                    overlaps = bool(runs) and start < runs[-1].end
                    times = () if overlaps else self._checkpoints(saves, start, end)
                    name = f"{profile.job_class}-{datetime.fromtimestamp(start, UTC):%m%d-%H%M}"
                    runs.append(Run(name, nodes, start, end, checkpoints=times, profile=profile))
        return _Plan(placed.path, table, profile, tuple(runs))

    def _nodes(self, given: int | tuple[str, ...] | None, path: str) -> tuple[str, ...]:
        names = tuple(node.name for node in nodes_with(self._cluster, Role.TRAINING))
        if given is None:
            return names
        if isinstance(given, int):
            if given > len(names):
                self._faults.add(f"{path}.nodes", str(given), f"at most {len(names)}, all training nodes")
            return names[:given]
        chosen: dict[str, None] = {}
        for pattern in given:
            try:
                chosen |= dict.fromkeys(expand(pattern))
            except ValueError as error:
                self._faults.add(f"{path}.nodes", pattern, str(error))
        known = set(names)
        if missing := [name for name in chosen if name not in known]:
            self._faults.add(f"{path}.nodes", some(missing), "a training node", closest(missing[0], names))
        return tuple(name for name in names if name in chosen)

    def _checkpoints(self, saves: Table, start: int, end: int) -> tuple[int, ...]:
        """Return when the checkpoints of a run begin."""
        if not saves:
            return ()
        every: int = saves["every"]
        if saves["mode"] is not CheckpointMode.IRREGULAR:
            return tuple(range(start + every, end, every))
        rng = np.random.default_rng([self._seed, 4, start])
        found: list[int] = []
        at = start
        while True:
            # Whole windows, so that what is seen is what is planned.
            at += max(int(every * rng.uniform(1 / 3, 2)) // 10, 1) * 10
            if at >= end:
                return tuple(found)
            found.append(at)

    def _check_overlaps(self, runs: tuple[Run, ...]) -> None:
        """Refuse runs that share a node at the same time: their traffic could not be told apart."""
        for number, run in enumerate(runs):
            for later in range(number + 1, len(runs)):
                other = runs[later]
                if other.start >= run.end:
                    # They are in the order of time.
                    break
                if set(run.nodes) & set(other.nodes):
                    expected = "runs that share no node at the same time"
                    self._faults.add("jobs", f"{run.job} and {other.job} overlap", expected, "other times or nodes")
                    return

    # -- incidents -----------------------------------------------------------------------------------

    def _incident(self, stage: Stage, placed: Placed[Table], plans: list[_Plan]) -> list[Incident]:
        """Return the incident as a list of one; an empty list where it has a fault."""
        table, path = placed.value, placed.path
        when = self._when(table, path, plans)
        if when is None:
            return []
        start, run = when
        phase = stage.history
        end = start + table["lasting"]
        if phase is None or start < phase.start or end > phase.end:
            self._faults.add(path, f"day {_days(start - self._moment(1, 0))}", f"a time within the {_days_of(phase)}")
            return []
        play = KINDS[IncidentKind(table["kind"])]
        given = {"job": run.job if run else "", **table}
        try:
            incident = play.stage(stage, start, end, given)
        except UserError as error:
            self._faults.add(path, error.message, "something that can be staged", error.hint)
            return []
        return [incident]

    def _owed(self, incident: Incident, placed: Placed[Table]) -> Incident:
        """Return an incident with what the file says that it owes."""
        incident = self._with_expectations(incident, placed.value, placed.path)
        if self._begin is not None:
            # Only the time from here on is sent: nothing knows of earlier runs, weeks and contacts.
            alerts = (
                replace(alert, must=alert.must and alert.rule not in RESTS_ON_HISTORY) for alert in incident.alerts
            )
            incident = replace(incident, alerts=tuple(alerts))
        return incident

    def _with_expectations(self, incident: Incident, table: Table, path: str) -> Incident:
        """Return the incident with what the file says of its alerts: `expect` asserts, `may` leaves either open."""
        may = dict.fromkeys(item.value for item in table["may"])
        alerts = [replace(alert, must=alert.must and alert.rule not in may) for alert in incident.alerts]
        derived = {alert.rule for alert in alerts if alert.must}
        for rule in dict.fromkeys(alert.rule for alert in alerts if not alert.must and alert.rule not in may):
            self._faults.add(path, f"{rule} may fire or not", "something clearly beyond its limit, or within it", _MAY)
        own: list[str] = []
        if table["expect"] is not None:
            stated = [item.value for item in table["expect"]]
            own = [rule for rule in stated if rule not in IDS]
            # Played now it is another time of day, and nobody has met anybody.
            if self._begin is None and set(stated) - set(own) != derived:
                listed = ", ".join(dict.fromkeys(alert.rule for alert in alerts if alert.rule in derived))
                hint = "that is what follows from the thresholds"
                self._faults.add(f"{path}.expect", f"[{', '.join(stated)}]", f"[{listed}]", hint)
        known = {alert.rule for alert in alerts}
        # Nothing of ours knows when these are due, or about whom: a site's own rules, and what comes along.
        others = [*((rule, True) for rule in own), *((rule, False) for rule in may if rule not in {*known, *own})]
        alerts += [Expected(rule, (), incident.start, incident.end + _LATE, must=must) for rule, must in others]
        return replace(incident, alerts=tuple(alerts))

    def _when(self, table: Table, path: str, plans: list[_Plan]) -> tuple[int, Run | None] | None:
        """Return when an incident begins, and in which run if the file says so."""
        if (table["at"] is None) is (table["run"] is None):
            given = "neither at nor run" if table["at"] is None else "at and run"
            self._faults.add(path, given, "either `on` and `at`, or `run` and `after`")
            return None
        if table["at"] is not None:
            moment: time = table["at"]
            day = 1 if table["on"] is None else table["on"]
            return self._moment(day, moment.hour * 3600 + moment.minute * 60), None
        names = [plan.profile.job_class for plan in plans]
        wanted = table["class"] if table["class"] is not None else (names[0] if names else "")
        if wanted not in names:
            self._faults.add(f"{path}.class", wanted or "missing", "a class of `jobs`", closest(wanted, names))
            return None
        runs = sorted(
            (run for plan in plans if plan.profile.job_class == wanted for run in plan.runs), key=lambda run: run.start
        )
        number: int = table["run"]
        if number > len(runs):
            self._faults.add(f"{path}.run", str(number), f"a run of {wanted}: there are {len(runs)}")
            return None
        run = runs[number - 1]
        if table["after"] >= run.end - run.start:
            length = format_duration(run.end - run.start)
            self._faults.add(f"{path}.after", format_duration(table["after"]), f"less than the run's {length}")
            return None
        return run.start + table["after"], run


def _days(seconds: int) -> str:
    return f"{seconds / _DAY + 1:.2f}".rstrip("0").rstrip(".")


def _days_of(phase: Phase | None) -> str:
    return "" if phase is None else f"{(phase.end - phase.start) / _DAY:g} days"


def _job(run: Run) -> Job:
    profile = run.profile or Profile()
    start, end = (datetime.fromtimestamp(moment, UTC) for moment in (run.start, run.end))
    return Job(run.job, profile.job_class, run.nodes, start, end, Outcome.COMPLETED)


def _classes(plans: list[_Plan]) -> Iterator[JobClass]:
    """Yield what `job_classes` declares of each class: its checkpoints, unless they are to be learnt."""
    seen: set[str] = set()
    for plan in plans:
        saves, name = plan.table["checkpoints"], plan.profile.job_class
        if not saves or name in seen or saves["mode"] is CheckpointMode.LEARN:
            continue
        seen.add(name)
        every = saves["every"] if saves["mode"] is CheckpointMode.SCHEDULED else None
        tolerance = CheckpointPlan().tolerance if every is None else min(CheckpointPlan().tolerance, every // 4)
        yield JobClass(name, checkpoint=CheckpointPlan(saves["mode"], every, tolerance))
