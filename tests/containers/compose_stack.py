"""docker-compose.yml on a real engine, in a checkout of its own, as docs/deployment.md has it brought up."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from cluster.load import load_cluster
from cluster.model import Cluster
from store.influx import Store

REPOSITORY = Path(__file__).resolve().parents[2]
TESTED = ("collector", "influxdb", "bridge", "analysis", "simulator")
BRIDGE_IMAGE = "clusterflow/bridge:0.1.0"


def run(*command: str, cwd: Path | None = None, seconds: float = 300) -> str:
    """Return what a command prints; where it fails, fail with what it said."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return done.stdout


@cache
def compose_command() -> tuple[str, ...]:
    """Return the command of Compose 2: the engine's plugin, or what scripts/faults built; nothing without one."""
    for command in (("docker", "compose"), (str(REPOSITORY / "var/tools/bin/docker-compose"),)):
        if (
            shutil.which(command[0])
            and subprocess.run([*command, "version"], capture_output=True, check=False).returncode == 0
        ):
            return command
    return ()


def why_not() -> str:
    """Return why no container can be run here; nothing where they can."""
    if shutil.which("docker") is None:
        return "no Docker: apt-get install docker.io debootstrap, then scripts/faults containers as root"
    engine = subprocess.run(["docker", "version"], capture_output=True, text=True, check=False)
    if engine.returncode:
        return f"no Docker engine answers: scripts/faults containers starts one ({engine.stderr.strip()[-200:]})"
    if not compose_command():
        return "no Docker Compose 2: scripts/faults containers builds one where there is Go 1.24"
    return ""


class Stack:
    """The services of docker-compose.yml under a project's name of their own.

    Args:
        folder: gets the checkout: what git tracks, or would, as it is here now.
        project: Compose's name for containers, networks and volumes.
        files: Compose files of tests, behind docker-compose.yml.
    """

    def __init__(self, folder: Path, project: str, *files: str) -> None:
        self.folder, self.project = folder, project
        self._files = ["docker-compose.yml", *(f"tests/containers/{file}" for file in files)]
        tracked = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        umask = os.umask(0o022)
        try:
            for name in run(*tracked, cwd=REPOSITORY).split("\0"):
                if name and (REPOSITORY / name).is_file():
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(REPOSITORY / name, folder / name)
            self._describe()
        finally:
            os.umask(umask)
        run("docker/make-secrets", cwd=folder)

    def _describe(self) -> None:
        """Have cluster.yaml name an InfluxDB 1.x, which knows no tokens."""
        file = self.folder / "docker/cluster.yaml"
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
        del document["grafana"]
        document["store"] = {name: document["store"][name] for name in ("url", "database", "retention")}
        file.write_text(yaml.safe_dump(document), encoding="utf-8")

    # -- what Compose does --------------------------------------------------------------------------

    def compose(self, *arguments: str, seconds: float = 300) -> str:
        files = [word for file in self._files for word in ("-f", file)]
        command = [*compose_command(), "-p", self.project, "--project-directory", ".", *files, "--profile", "demo"]
        return run(*command, *arguments, cwd=self.folder, seconds=seconds)

    def up(self, *services: str) -> None:
        """Bring up these services, or all, and wait until they are healthy."""
        self.compose("up", "-d", "--no-build", *(services or TESTED))
        for service in services or TESTED:
            self.await_healthy(service)

    def down(self) -> None:
        self.compose("down", "--volumes", "--timeout", "40")

    def logs(self, service: str) -> str:
        return self.compose("logs", "--no-log-prefix", service)

    # -- its containers -----------------------------------------------------------------------------

    def container(self, service: str) -> str:
        return self.compose("ps", "--all", "--quiet", service).strip()

    def state(self, service: str) -> dict[str, Any]:
        (found,) = json.loads(run("docker", "inspect", self.container(service)))
        return dict(found)

    def health(self, service: str) -> str:
        return str(self.state(service)["State"].get("Health", {}).get("Status", "none"))

    def await_healthy(self, service: str, seconds: float = 240) -> None:
        try:
            await_that(lambda: self.health(service) == "healthy", f"{service} is healthy", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.state(service)['State']}\n{self.logs(service)[-3000:]}") from error

    def kill(self, service: str) -> None:
        """`docker kill`: the engine does not start it again, as somebody wanted it."""
        run("docker", "kill", self.container(service))

    def end(self, service: str, *processes: str) -> None:
        """Kill a container's first process, or those of these names, as the kernel does where memory is short.

        From a container that sees the host's processes: it need not be root's own engine, and inside a container nobody
        may kill its first process.
        """
        container = self.container(service)
        lines = run("docker", "top", container, "-eo", "pid,comm").splitlines()[1:]
        named = [pid for pid, _, name in (line.strip().partition(" ") for line in lines) if name.strip() in processes]
        pids = named if processes else [str(self.state(service)["State"]["Pid"])]
        assert pids, lines
        outside = ("docker", "run", "--rm", "--pid", "host", "--user", "0", "--entrypoint", "sh", BRIDGE_IMAGE)
        run(*outside, "-c", f"kill -9 {' '.join(pids)}")

    def restarts(self, service: str) -> int:
        return int(self.state(service)["RestartCount"])

    def changed_files(self, service: str) -> list[str]:
        """Return what a container has changed outside its volumes, without the places where these are mounted."""
        mounted = [Path(mount["Destination"]) for mount in self.state(service)["Mounts"]]
        places = {str(place) for mount in mounted for place in (mount, *mount.parents)}
        changes = [
            Path(line.split(maxsplit=1)[1]) for line in run("docker", "diff", self.container(service)).splitlines()
        ]
        # The engine puts that one there itself, where Compose says `init`.
        places |= {
            str(place) for change in changes if change.name == "docker-init" for place in (change, *change.parents)
        }
        return [str(change) for change in changes if str(change) not in places]

    # -- the account --------------------------------------------------------------------------------

    @property
    def cluster(self) -> Cluster:
        return load_cluster(self.folder / "docker/cluster.yaml")

    def store(self) -> Store:
        """Return the store as this machine reaches it; its port is another one with every start."""
        port = self.compose("port", "influxdb", "8086").strip().rpartition(":")[2]
        settings = self.cluster.store
        return Store(type(settings)(url=f"http://127.0.0.1:{port}", database=settings.database))

    def truth(self) -> dict[str, Any]:
        """Return what the simulator, which has stopped or started again, sent until then."""
        copied = self.folder / "truth.json"
        run("docker", "cp", f"{self.container('simulator')}:/var/lib/clusterflow/truth.json", str(copied))
        return dict(json.loads(copied.read_text(encoding="utf-8")))

    def stop_sending(self) -> dict[str, Any]:
        self.compose("stop", "--timeout", "120", "simulator")
        assert self.state("simulator")["State"]["ExitCode"] == 0, self.logs("simulator")
        return self.truth()


def together(truths: list[dict[str, Any]]) -> dict[str, Any]:
    """Return several truths as one, as `simulate.truth.reckoning` reads them."""
    lists = [part for part, rows in truths[0].items() if isinstance(rows, list)]
    sums = {name: sum(truth["totals"][name] for truth in truths) for name in truths[0]["totals"]}
    return {part: [row for truth in truths for row in truth[part]] for part in lists} | {"totals": sums}


def await_that(is_so: Callable[[], bool], what: str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(1)
