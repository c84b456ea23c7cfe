"""docker-compose.yml and docker/, as far as they can be judged without an engine."""

import os
import re
import shutil
import socket
import stat
import subprocess
import tomllib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from archive.query import archive_folder
from cluster.load import load_cluster
from cluster.model import Secret
from clusterflow import main
from dashboards.provision import artefacts
from store import schema

REPOSITORY = Path(__file__).resolve().parents[2]
KNOWN = {name: main.get_command(click.Context(main), name) for name in main.list_commands(click.Context(main))}
COMPOSE: dict[str, Any] = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text(encoding="utf-8"))
KAFKA: dict[str, Any] = yaml.safe_load((REPOSITORY / "docker-compose.kafka.yml").read_text(encoding="utf-8"))
CHANGED = ("bridge", "deliver")
"""Services of the first file of which the second says something else."""

SERVICES: dict[str, dict[str, Any]] = {
    **COMPOSE["services"],
    **{name: service for name, service in KAFKA["services"].items() if name not in CHANGED},
}
VOLUMES = {**COMPOSE["volumes"], **KAFKA["volumes"]}
DOCKERFILE = (REPOSITORY / "docker/Dockerfile").read_text(encoding="utf-8")
CLUSTER = load_cluster(REPOSITORY / "docker/cluster.yaml")

OURS = [name for name, service in SERVICES.items() if service["image"].startswith("clusterflow/")]
VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")

# What the images' own start scripts and servers read. InfluxDB: influxdata-docker, influxdb/2.7/entrypoint.sh and
# `influxd --help` (INFLUXD_ + option). Grafana: conf/defaults.ini (GF_SECTION_KEY), and packaging/docker/run.sh, which
# replaces GF_..._ _FILE by the file's content.
INFLUXDB_VARIABLES = {
    "DOCKER_INFLUXDB_INIT_MODE", "DOCKER_INFLUXDB_INIT_USERNAME", "DOCKER_INFLUXDB_INIT_PASSWORD_FILE",
    "DOCKER_INFLUXDB_INIT_ADMIN_TOKEN_FILE", "DOCKER_INFLUXDB_INIT_ORG", "DOCKER_INFLUXDB_INIT_BUCKET",
    "DOCKER_INFLUXDB_INIT_RETENTION", "INFLUXD_SQLITE_PATH", "INFLUXD_REPORTING_DISABLED", "INFLUX_CONFIGS_PATH",
}  # fmt: skip
GRAFANA_SETTINGS = {
    "SECURITY_ADMIN_USER", "SECURITY_ADMIN_PASSWORD__FILE", "SECURITY_DISABLE_GRAVATAR", "USERS_ALLOW_SIGN_UP",
    "AUTH_ANONYMOUS_ENABLED", "AUTH_ANONYMOUS_ORG_ROLE", "DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH", "SERVER_ROOT_URL",
    "ANALYTICS_REPORTING_ENABLED", "ANALYTICS_CHECK_FOR_UPDATES", "ANALYTICS_CHECK_FOR_PLUGIN_UPDATES",
    "NEWS_NEWS_FEED_ENABLED", "PLUGINS_PREINSTALL_DISABLED", "PLUGINS_PUBLIC_KEY_RETRIEVAL_DISABLED",
}  # fmt: skip

ASKERS = ("bridge", "analysis", "deliver", "grafana")
"""Who asks InfluxDB, each with a token of its own."""

MADE_FOLDERS = {"tokens", *(f"tokens/{name}" for name in ASKERS)}
"""Folders of secrets/ in which InfluxDB leaves a token for each who asks it."""

each_service = pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES)


def _mounts(service: dict[str, Any]) -> list[tuple[str, str]]:
    """Return source and target of each mount; a source is a volume's name or a path."""
    mounts = []
    for mount in service.get("volumes", []):
        if isinstance(mount, dict):
            mounts.append((mount["source"], mount["target"]))
        else:
            source, target, *_ = mount.split(":")
            mounts.append((source, target))
    return mounts


def _default(text: str) -> str:
    """Return what a value is where no variable is set."""
    return VARIABLE.sub(lambda match: match[2], text)


@pytest.mark.skipif(
    shutil.which("docker") is None
    or subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode != 0,
    reason="no docker compose: the file is checked without it",
)
def test_compose_accepts_the_file() -> None:
    both = ["-f", "docker-compose.yml", "-f", "docker-compose.kafka.yml"]
    for files in ([], both):
        subprocess.run(
            ["docker", "compose", *files, "--profile", "demo", "config", "--quiet"], cwd=REPOSITORY, check=True
        )


@each_service
def test_images_have_one_exact_version(service: dict[str, Any]) -> None:
    assert re.fullmatch(r"[a-z/]+:\d+\.\d+\.\d+(@sha256:[0-9a-f]{64})?", service["image"])


@each_service
def test_containers_are_closed(service: dict[str, Any]) -> None:
    """No root, no capability, no new privilege, nothing to write to but volumes and a small temporary folder."""
    user = service["user"].split(":")[0]
    assert user.isdecimal()
    assert int(user) > 0
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service
    assert "privileged" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["read_only"] is True
    assert [mount.split(":")[0] for mount in service["tmpfs"]] == ["/" + "tmp"]


@each_service
def test_services_have_a_health_check_and_bounded_logs(service: dict[str, Any]) -> None:
    check = service["healthcheck"]
    assert check["test"][0] in {"CMD", "CMD-SHELL"}
    assert {"interval", "timeout", "retries", "start_period"} <= check.keys()
    assert service["logging"]["options"]["max-size"]
    assert service["restart"] == "unless-stopped"


@each_service
def test_dependencies_wait_for_health(service: dict[str, Any]) -> None:
    for needed, how in service.get("depends_on", {}).items():
        assert needed in SERVICES
        assert how == {"condition": "service_healthy"}


def test_only_flow_records_come_from_outside() -> None:
    """UDP from exporters is open to the network; everything with a web page is reached from this host alone."""
    for name, service in SERVICES.items():
        for port in service.get("ports", []):
            assert port.endswith("/udp") or port.startswith("127.0.0.1:"), f"{name}: {port}"
    assert SERVICES["collector"]["ports"] == [
        f"{port}:{port}/udp" for port in (CLUSTER.collector.netflow_port, CLUSTER.collector.sflow_port)
    ]


@pytest.mark.parametrize(
    ("configured", "bound", "code"),
    [
        ((), (), 1),
        (("nfacctd",), (), 1),
        (("nfacctd",), ("nfacctd",), 0),
        (("sfacctd",), ("nfacctd",), 1),
        (("sfacctd",), ("sfacctd",), 0),
        (("nfacctd", "sfacctd"), ("nfacctd",), 1),
        (("nfacctd", "sfacctd"), ("nfacctd", "sfacctd"), 0),
    ],
)
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_health_check_of_the_collector_asks_for_the_daemons_that_the_cluster_needs(
    host: str, configured: tuple[str, ...], bound: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    """A cluster that exports sFlow alone has no nfacctd: it would never be healthy, and the simulator never start."""
    kind, test = SERVICES["collector"]["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    (tmp_path / ".collect").mkdir()
    for daemon in configured:
        (tmp_path / ".collect" / f"{daemon}.conf").touch()
    script = test.replace("$$", "$").replace(CLUSTER.collector.spool, str(tmp_path))
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    ports = {"nfacctd": CLUSTER.collector.netflow_port, "sfacctd": CLUSTER.collector.sflow_port}
    with ExitStack() as cleanup:
        for daemon, port in ports.items():
            holder = cleanup.enter_context(socket.socket(family, socket.SOCK_DGRAM))
            try:
                holder.bind((host, 0))
            except OSError as error:
                pytest.skip(f"no {host}: {error}")
            # One that sends there, as the simulator does, is not one that listens.
            sender = cleanup.enter_context(socket.socket(family, socket.SOCK_DGRAM))
            sender.connect(holder.getsockname())
            assert script.count(f" {port:04X};") == 1
            script = script.replace(f" {port:04X};", f" {holder.getsockname()[1]:04X};")
            if daemon not in bound:
                holder.close()
        result = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == code, result.stderr


@each_service
def test_mounts_exist(service: dict[str, Any]) -> None:
    targets = [target for _, target in _mounts(service)]
    assert len(set(targets)) == len(targets)
    for source, _ in _mounts(service):
        path = _default(source)
        if path.startswith("./secrets/"):
            assert path.removeprefix("./secrets/") in MADE_FOLDERS
        elif path.startswith("."):
            assert (REPOSITORY / path).exists(), f"{path} is not in the repository"
        else:
            assert source in VOLUMES


def test_every_volume_and_secret_is_used() -> None:
    mounted = {source for service in SERVICES.values() for source, _ in _mounts(service)}
    assert set(VOLUMES) <= mounted
    assert set(COMPOSE["secrets"]) == {name for service in SERVICES.values() for name in service.get("secrets", [])}


def test_secrets_are_files_that_make_secrets_makes(tmp_path: Path) -> None:
    subprocess.run(
        ["bash", str(REPOSITORY / "docker/make-secrets"), str(tmp_path / "secrets")], check=True, capture_output=True
    )
    made = {path.name for path in (tmp_path / "secrets").iterdir() if path.is_file()}
    assert {name: secret["file"] for name, secret in COMPOSE["secrets"].items()} == {
        name: f"./secrets/{name}" for name in made
    }
    folders = {path for path in (tmp_path / "secrets").rglob("*") if path.is_dir()}
    assert {path.relative_to(tmp_path / "secrets").as_posix() for path in folders} == MADE_FOLDERS
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700
    assert "/secrets/" in (REPOSITORY / ".gitignore").read_text(encoding="utf-8").splitlines()


@each_service
def test_no_secret_stands_in_the_environment(service: dict[str, Any]) -> None:
    for name, value in service.get("environment", {}).items():
        if re.search("PASSWORD|TOKEN|SECRET", name):
            assert name.endswith("_FILE")
            assert Path(value).parent == Path("/run/secrets")
            assert Path(value).name in service["secrets"]


def test_environment_names_are_those_the_images_read() -> None:
    assert set(SERVICES["influxdb"]["environment"]) == INFLUXDB_VARIABLES
    grafana = {name.removeprefix("GF_") for name in SERVICES["grafana"]["environment"] if name.startswith("GF_")}
    assert grafana == GRAFANA_SETTINGS


def test_grafana_finds_the_secrets_of_the_contact_points() -> None:
    """An empty one would keep Grafana from starting."""
    environment, files = SERVICES["grafana"]["environment"], SERVICES["grafana"]["secrets"]
    for target in CLUSTER.notify:
        for _, secret in target.secrets:
            assert _default(environment[secret.env]) if secret.env else Path(secret.file or "").name in files


def test_the_folder_of_the_documentation_is_mounted_in_all_that_read_cluster_yaml() -> None:
    """Compose refuses services that the first file does not know."""
    page = (REPOSITORY / "docs/deployment.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```yaml\n(x-site: .*?)^```", page, re.MULTILINE | re.DOTALL)
    services = yaml.safe_load(block)["services"]
    readers = {
        name
        for name, service in COMPOSE["services"].items()
        if "/etc/clusterflow/cluster.yaml" in [target for _, target in _mounts(service)]
    }
    assert set(services) == readers - {"simulator"}
    for service in services.values():
        assert service == {"volumes": ["./site:/etc/clusterflow:ro"]}


def test_grafana_asks_the_store_of_the_containers() -> None:
    """The mounted data source is the one generated for docker/cluster.yaml, and hides the demo's in the same folder."""
    mounted = {target: source for source, target in _mounts(SERVICES["grafana"])}
    wanted = artefacts(CLUSTER)["grafana/datasources/clusterflow.yaml"]
    folder = REPOSITORY / mounted["/etc/grafana/provisioning/datasources"]
    assert (folder / "clusterflow.yaml").read_text(encoding="utf-8") == wanted, "write this file anew: see `wanted`"
    hidden = REPOSITORY / mounted["/etc/grafana/provisioning"] / "datasources"
    assert [path.name for path in hidden.iterdir()] == [path.name for path in folder.iterdir()]
    (source,) = yaml.safe_load(wanted)["datasources"]
    assert CLUSTER.grafana.token is not None
    assert source["secureJsonData"]["httpHeaderValue1"] == f"Token $__file{{{CLUSTER.grafana.token.file}}}"
    assert mounted["/run/tokens"] == "./secrets/tokens/grafana"


def test_nobody_but_influxdb_has_its_administrators_token() -> None:
    holders = [name for name, service in SERVICES.items() if "influxdb_admin_token" in service.get("secrets", [])]
    assert holders == ["influxdb"]
    mounts = {name: {target: source for source, target in _mounts(service)} for name, service in SERVICES.items()}
    tokens = {name: found["/run/tokens"] for name, found in mounts.items() if "/run/tokens" in found}
    assert tokens == {
        "influxdb": "./secrets/tokens",
        "bridge": "./secrets/tokens/bridge",
        "analysis": "./secrets/tokens/analysis",
        "deliver": "./secrets/tokens/deliver",
        "worker": "./secrets/tokens/bridge",
        "grafana": "./secrets/tokens/grafana",
    }


FAKE_INFLUX = """\
#!/bin/sh
echo "$*" >>"$RECORD"
case "$1 $2" in
"bucket list") printf 'id-of-%s\\tname\\n' "$6" ;;
"auth create") printf '{\\n\\t"id": "1",\\n\\t"token": "t-%s==",\\n\\t"status": "active"\\n}\\n' "${6#clusterflow }" ;;
esac
"""


def test_each_who_asks_influxdb_gets_a_token_with_no_more_rights_than_it_needs(tmp_path: Path) -> None:
    """The script that InfluxDB's image runs, with a stand-in for its command line that notes what is asked of it."""
    (tmp_path / "influx").write_text(FAKE_INFLUX)
    (tmp_path / "influx").chmod(0o755)
    for name in ASKERS:
        (tmp_path / "tokens" / name).mkdir(parents=True)
    script = (REPOSITORY / "docker/influxdb-tokens.sh").read_text().replace("/run/tokens", str(tmp_path / "tokens"))
    environment = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "RECORD": str(tmp_path / "asked"),
        "DOCKER_INFLUXDB_INIT_ORG": "clusterflow",
    }
    subprocess.run(["bash", "-c", script], env=environment, check=True)
    created = [line for line in (tmp_path / "asked").read_text().splitlines() if line.startswith("auth create")]
    rights = {}
    for line in created:
        options = re.findall(r"--([a-z-]+) id-of-clusterflow/(\S+)", line)
        assert set(re.findall(r"--(\S+)", line)) <= {"org", "description", "json", "read-bucket", "write-bucket"}
        rights[line.split()[6]] = tuple(
            {bucket for option, bucket in options if option == f"{right}-bucket"} for right in ("read", "write")
        )
    every = {"raw", "1m", "1h", "meta"}
    assert rights == {
        "bridge": (every, every),
        "analysis": (every, {"raw", "1h", "meta"}),
        "deliver": (every, {"raw", "1h"}),
        "grafana": (every, set()),
    }
    tokens = {name: (tmp_path / "tokens" / name / "influxdb_token").read_text() for name in ASKERS}
    assert tokens == {name: f"t-{name}==" for name in ASKERS}


def test_a_new_database_beside_kept_secrets_makes_tokens_anew(tmp_path: Path) -> None:
    """As another user than root: the token before has mode 444, so that it can be replaced and not written to."""
    (tmp_path / "influx").write_text(FAKE_INFLUX)
    (tmp_path / "influx").chmod(0o755)
    for name in ASKERS:
        (tmp_path / "tokens" / name).mkdir(parents=True)
        (tmp_path / "tokens" / name).chmod(0o777)
        (tmp_path / "tokens" / name / "influxdb_token").write_text("of the database before")
        (tmp_path / "tokens" / name / "influxdb_token").chmod(0o444)
    script = (REPOSITORY / "docker/influxdb-tokens.sh").read_text().replace("/run/tokens", str(tmp_path / "tokens"))
    environment = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "RECORD": "/dev/null",
        "DOCKER_INFLUXDB_INIT_ORG": "clusterflow",
    }
    # Root may write to any file; without its capabilities it may not.
    as_another = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    subprocess.run([*as_another, "bash", "-c", script], env=environment, check=True)
    tokens = {name: (tmp_path / "tokens" / name / "influxdb_token").read_text() for name in ASKERS}
    assert tokens == {name: f"t-{name}==" for name in ASKERS}


def test_what_influxdbs_command_line_remembers_does_not_outlive_the_container() -> None:
    """Beside a new database the setup would refuse its name, and the container start anew for ever."""
    influxdb = SERVICES["influxdb"]
    place = Path(influxdb["environment"]["INFLUX_CONFIGS_PATH"])
    assert [str(place.parent)] == [mount.split(":")[0] for mount in influxdb["tmpfs"]]


def test_analysis_and_deliver_write_where_their_tokens_may() -> None:
    """The rights above, from what the code writes; InfluxDB 2 itself is not at hand."""
    assert schema.MINUTE not in {one.kept for one in schema.MEASUREMENTS if one.origin != "ingest"}
    sources = {
        folder: "".join(path.read_text(encoding="utf-8") for path in sorted((REPOSITORY / folder).rglob("*.py")))
        for folder in ("analysis", "delivery")
    }
    written = re.compile(r"(?:store|_writer)\.write\((?:[^()]|\([^()]*(?:\([^()]*\))*[^()]*\))*, ([\w.]+)\)")
    assert set(written.findall(sources["delivery"])) == {
        "schema.PIPELINE.kept", "schema.ALERT.kept", "schema.OUTBOX.kept",
    }  # fmt: skip
    assert (schema.PIPELINE.kept, schema.ALERT.kept, schema.OUTBOX.kept) == (schema.RAW, schema.HOUR, schema.RAW)
    assert set(written.findall(sources["analysis"])) == {
        "measurement.kept", "schema.RAW",
        "retention",  # of late_matches.py: RAW and HOUR
    }  # fmt: skip


def _neighbours(name: str) -> set[str]:
    """Return the services that one can reach, with both files: those that share a network."""
    networks = {other: set(service.get("networks", [])) for other, service in SERVICES.items()}
    for changed in CHANGED:
        networks[changed] |= set(KAFKA["services"][changed]["networks"])
    return {other for other, joined in networks.items() if joined & networks[name]} - {name}


def test_each_service_reaches_what_it_needs_only() -> None:
    """What takes over nfacctd finds neither InfluxDB nor a broker that asks for no password."""
    assert _neighbours("collector") == set()
    assert _neighbours("influxdb") == {"bridge", "worker", "analysis", "deliver", "grafana"}
    assert _neighbours("kafka") == {"relay", "bridge", "worker", "deliver"}
    assert _neighbours("relay") == {"kafka", "bridge", "worker", "deliver"}
    assert _neighbours("analysis") == {"influxdb"}
    assert _neighbours("grafana") == {"influxdb", "deliver"}
    assert KAFKA["networks"]["kafka"] == {"internal": True}
    # The first file alone.
    assert COMPOSE["services"]["bridge"]["networks"] == ["ingest"]
    assert set(COMPOSE["networks"]) | set(KAFKA["networks"]) == {
        name for service in SERVICES.values() for name in service.get("networks", [])
    }


@each_service
def test_services_are_on_networks_that_are_named(service: dict[str, Any]) -> None:
    """One without would be on the network that all share by default."""
    if service.get("network_mode") == "service:collector":
        assert "networks" not in service
    else:
        assert service["networks"]


@pytest.mark.parametrize("name", SERVICES)
def test_services_have_bounds_that_can_be_raised(name: str) -> None:
    service = SERVICES[name]
    assert service["pids_limit"] >= 1024
    match = VARIABLE.fullmatch(service["mem_limit"])
    assert match is not None
    assert match[1] == f"CLUSTERFLOW_{name.upper()}_MEMORY"
    assert re.fullmatch(r"\d+g", match[2])
    assert f"`{match[2][:-1]} GiB`" in _bounds()[name]


def _bounds() -> dict[str, str]:
    """Return the lines of the table of bounds in docs/deployment.md, by service."""
    page = (REPOSITORY / "docs/deployment.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^\| `([a-z]+)` (\|.*GiB`.*)\|$", page, re.MULTILINE))


def test_simulator_is_healthy_when_its_second_exporter_has_a_socket() -> None:
    """Where its first one's would be, Docker's name server listens."""
    assert str(CLUSTER.exporters[0].address) == "127.0.0.11"
    second = CLUSTER.exporters[1].address
    reversed_hexadecimal = second.packed[::-1].hex().upper()
    assert f"' {reversed_hexadecimal}:'" in SERVICES["simulator"]["healthcheck"]["test"][1]


def test_the_wall_is_open_only_when_asked() -> None:
    environment = SERVICES["grafana"]["environment"]
    assert _default(environment["GF_AUTH_ANONYMOUS_ENABLED"]) == "false"
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"


def test_home_board_is_a_generated_one() -> None:
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    (provisioning,) = [source for source, target in _mounts(SERVICES["grafana"]) if home.startswith(target)]
    assert (REPOSITORY / provisioning / Path(home).relative_to("/etc/grafana/provisioning")).is_file()


@pytest.mark.parametrize("name", OURS)
def test_commands_are_ours(name: str) -> None:
    command = SERVICES[name]["command"]
    assert command[0] in KNOWN
    options = {option for parameter in KNOWN[command[0]].params for option in parameter.opts}
    assert {word for word in command[1:] if word.startswith("-")} <= options
    check = SERVICES[name]["healthcheck"]["test"]
    if "clusterflow" in check:
        assert check[check.index("clusterflow") + 1] in KNOWN


def test_our_images_are_built_here() -> None:
    for name in OURS:
        service = SERVICES[name]
        assert service["build"]["dockerfile"] == "docker/Dockerfile"
        assert re.search(rf"^FROM \S+ AS {service['build']['target']}$", DOCKERFILE, re.MULTILINE)
        assert service["image"].split(":")[0] == f"clusterflow/{service['build']['target']}"
        assert service["user"] in DOCKERFILE  # the folders that volumes mount on belong to this user


def test_spool_and_state_are_volumes_where_cluster_yaml_has_them() -> None:
    mounts = {name: {target: source for source, target in _mounts(SERVICES[name])} for name in OURS}
    assert mounts["collector"][CLUSTER.collector.spool] == mounts["bridge"][CLUSTER.collector.spool] == "spool"
    assert mounts["relay"][CLUSTER.collector.spool] == "spool"
    assert mounts["bridge"][CLUSTER.bridge.state] == "bridge"
    assert mounts["analysis"][CLUSTER.bridge.state] == "analysis"
    archive = str(archive_folder(CLUSTER))
    assert mounts["bridge"][archive] == mounts["deliver"][archive] == "archive"
    assert re.search(rf"{CLUSTER.bridge.state} {CLUSTER.collector.spool} \\\s+{archive}\s", DOCKERFILE)


def test_cluster_yaml_reaches_the_other_containers() -> None:
    influxdb = SERVICES["influxdb"]
    assert CLUSTER.store.url == "http://influxdb:8086"
    assert CLUSTER.store.org == influxdb["environment"]["DOCKER_INFLUXDB_INIT_ORG"]
    assert f"{CLUSTER.store.database}/raw" == influxdb["environment"]["DOCKER_INFLUXDB_INIT_BUCKET"]
    assert CLUSTER.store.token == Secret(file="/run/tokens/influxdb_token")
    assert CLUSTER.bridge.metrics_listen == "0.0.0.0:9105"
    assert SERVICES["bridge"]["ports"] == ["127.0.0.1:9105:9105"]


def test_cluster_yaml_describes_the_demo_cluster() -> None:
    """It differs from the demo's file where containers differ from one machine, and nowhere else."""
    demo = load_cluster(REPOSITORY / "cluster.yaml")
    own = {"store", "collector", "bridge", "grafana", "kafka"}
    for name in CLUSTER.__dataclass_fields__:
        assert name in own or getattr(CLUSTER, name) == getattr(demo, name), name
    kept = ("window", "lateness", "grace", "named_per_window", "series_budget", "flush", "shard")
    for name in kept:
        assert getattr(CLUSTER.bridge, name) == getattr(demo.bridge, name)
    assert (CLUSTER.store.keep_raw, CLUSTER.store.keep_1m, CLUSTER.store.keep_1h) == (
        demo.store.keep_raw, demo.store.keep_1m, demo.store.keep_1h,
    )  # fmt: skip


def test_with_kafka_the_bridge_is_a_worker_and_the_relay_alone_reads_the_spool() -> None:
    services = KAFKA["services"]
    assert services["bridge"] == {
        "command": ["ingest", "--kafka"],
        "networks": ["ingest", "kafka"],
        "depends_on": {"kafka": {"condition": "service_healthy"}},
    }
    assert [name for name, service in services.items() if service.get("command") == ["ingest", "--kafka"]] == [
        "bridge",
        "worker",
    ]
    assert services["relay"]["command"][:2] == ["relay", "--id"], "a container's host name does not last"
    # Docker mounts a tmpfs noexec unless told otherwise, and the broker loads its libraries for compression from there.
    assert all(mount.split(",")[-1] == "exec" for mount in services["kafka"]["tmpfs"])
    (broker,) = CLUSTER.kafka.brokers
    assert f"CLIENTS://{broker}" == services["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]


def test_dockerfile_pins_and_steps_down() -> None:
    stages = re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, re.MULTILINE)
    names = {name for _, name in stages}
    assert all(base in names or re.fullmatch(r"\S+:\d+\.\d+\.\d+\S*", base) for base, _ in stages)
    for text in re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[2:]:
        users = re.findall(r"^USER (\S+)$", text, re.MULTILINE)
        assert users[-1] == "10001:10001"
    assert "--require-hashes" in DOCKERFILE


def test_the_image_gets_every_package() -> None:
    ignored = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert ignored[1] == "*"
    let_in = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    built = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    packages = {name.partition(".")[0] for name in built["packages"]}
    assert packages | {f"{name}.py" for name in built["py-modules"]} <= let_in
    assert all((REPOSITORY / name).exists() for name in let_in)
