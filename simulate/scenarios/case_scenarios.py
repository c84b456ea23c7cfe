"""Scenarios as the input of rule cases and backtests: each is played and analysed once, into a database of its own."""

import tempfile
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from app.errors import ConfigError, UserError
from cluster.model import Cluster, StoreSettings
from rules.evaluate.backtest import Told
from rules.evaluate.case_runs import NO_LOGIN, Stage
from rules.evaluate.cases import Case
from simulate.scenarios.script import Script, find_script, load_script
from simulate.trial import analyse, evaluate, play, settings_of
from store.influx import Store


@dataclass(frozen=True, slots=True)
class Played:
    """A scenario in a store.

    Attributes:
        script: the scenario.
        cluster: the same as the script's, with the store that was used.
        store: holds everything.
    """

    script: Script
    cluster: Cluster
    store: Store


def script_of(case: Case) -> Script:
    """Return the scenario of a case that has one; UserError says which case has none that can be played."""
    try:
        return load_script(case.file.parent / find_script(case.scenario), seed=case.seed)
    except ConfigError:
        raise
    except UserError as error:
        raise UserError(f"{case}: {error.message}", error.hint) from error


@dataclass(slots=True)
class Scenarios:
    """Plays scenarios, and takes their databases away at the end. Use it as a context manager.

    Args:
        url: an InfluxDB in which databases may be made.
        told: called with what is being done, and the share of it that is done.
        login: what to say there, and whom to trust.
    """

    url: str
    told: Told = lambda _what, _share: None
    login: StoreSettings = NO_LOGIN
    _played: dict[tuple[Path, int | None], Played] = field(default_factory=dict)
    _stores: list[Store] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for store in self._stores:
            store.execute(f'DROP DATABASE "{store.settings.database}"')
            store.close()

    def play(self, name: str, seed: int | None, folder: Path | None = None) -> Played:
        """Return a scenario in a store.

        Args:
            name: of the library, or a file.
            seed: instead of the scenario's own.
            folder: what a file is relative to; by default the present one.

        Raises:
            UserError: there is no such scenario, or it is not right.
        """
        path = (folder or Path()) / find_script(name)
        key = path.resolve(), seed
        if key not in self._played:
            self._played[key] = self._fresh(load_script(path, seed=seed))
        return self._played[key]

    def _fresh(self, script: Script) -> Played:
        # A name of its own: others may play on the same InfluxDB.
        settings = settings_of(script, self.login, self.url, f"scenario_{uuid.uuid4().hex[:12]}")
        cluster = replace(script.cluster, store=settings)
        store = Store(settings)
        # What is interrupted goes, too.
        self._stores.append(store)
        play(script, store, self.told)
        with tempfile.TemporaryDirectory(prefix="clusterflow-scenario-") as folder:
            analyse(script, cluster, store, Path(folder), self.told)
        return Played(script, cluster, store)

    def stage(self, case: Case) -> Stage:
        """Return what a case with a scenario is evaluated on; UserError says which case has none that can be played."""
        script_of(case)
        played = self.play(case.scenario, case.seed, case.file.parent)
        script = played.script
        return Stage(
            cluster=played.cluster,
            store=played.store,
            begins=script.start,
            firings=lambda rule: evaluate(script, played.cluster, played.store, (rule,), self.told).firings,
        )
