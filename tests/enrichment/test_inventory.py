"""Nodes from Slurm, Kubernetes, NetBox, Ansible: answers in the shape that each documents, moved and deleted live."""

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import CliRunner

from app.errors import ConfigError
from app.log import Log
from cluster.advice import advice
from cluster.dump import dump_cluster
from cluster.load import load_cluster, parse_cluster
from cluster.model import Cluster
from cluster.reload import Reload
from enrichment.inventory import reaching
from enrichment.inventory.asking import Watcher, configured_readings
from operations.cli import build
from operations.draft.draft_cli import init
from operations.inventory_cli import inventory

SLURM = """\
NodeName=gpu-01 Arch=x86_64 CoresPerSocket=56 CPUAlloc=0 CPUEfctv=224 CPUTot=224 CPULoad=0.31 AvailableFeatures=h100 \
Gres=gpu:h100:8(S:0-1),nic:8 NodeAddr=10.20.0.1 NodeHostName=gpu-01 Version=23.11.4 OS=Linux 5.15.0-101-generic \
#111-Ubuntu SMP Tue Mar 5 20:16:58 UTC 2024 RealMemory=2063000 State=IDLE Partitions=gpu,debug Reason=(null)
NodeName=gpu-02 Arch=x86_64 Gres=gpu:a100:4,gpu:h100:4 NodeAddr=10.20.0.2 NodeHostName=gpu-02 State=DOWN* Partitions=gpu
NodeName=login-1 Arch=x86_64 Gres=(null) NodeAddr=10.60.0.9 NodeHostName=login-1 State=IDLE
"""
SLURM_JSON = {
    "meta": {"plugin": {"type": "openapi/v0.0.39"}},
    "nodes": [
        {"name": "gpu-01", "hostname": "gpu-01", "address": "10.20.0.1", "gres": "gpu:8", "partitions": ["gpu"]},
        {"name": "cpu-1", "hostname": "cpu-1", "address": "10.20.9.1", "gres": "", "partitions": []},
    ],
}
INI = """\
# comment
ungrouped-1 ansible_host=10.60.0.5   ; and another
[gpu]
gpu-[01:03].example.org ansible_user=root
gpu-01.example.org ansible_host=10.20.0.1 rail1_ip=10.20.1.1/24
gpu-02.example.org ansible_host="10.20.0.2"
gpu-03.example.org ansible_host={{ lookup }} rail1_ip=10.20.1.3
[cluster:children]
gpu
[gpu:vars]
ansible_host=10.20.0.99
"""
YAML = """\
---
all:
  hosts: {mail.example.org: {ansible_host: 10.60.0.5}}
  children:
    gpu:
      hosts:
        gpu-[1:2]: {}
        gpu-1: {ansible_host: 10.20.0.1, rail1_ip: [10.20.1.1, 10.20.2.1]}
        gpu-2: {ansible_host: 10.20.0.2}
    prod: {children: {gpu: null}, hosts: {gpu-1: null}}
"""
HOSTS = """\
127.0.0.1 localhost
::1 localhost ip6-localhost
10.20.0.1 gpu-01.example.org gpu-01  # rack 1
10.20.0.2\tgpu-02
"""
VAULT = """\
gpu:
  hosts:
    gpu-1:
      ansible_host: 10.20.0.1
      ansible_password: !vault |
        $ANSIBLE_VAULT;1.1;AES256
        62313365396662343061393464336163
    gpu-2: {ansible_host: 10.20.0.2, motd: !unsafe "{{ 100 % }}"}
"""
CLOUD_INIT = f"{HOSTS}fe00::0 ip6-localnet\nff02::3 ip6-allhosts\n"
NETBOX_CSV = """\
\ufeffID,IP Address,Status,Role,Device,DNS Name
1,10.20.0.1/24,Active,,gpu-01,
2,10.20.0.9/24,Deprecated,,gpu-9,
"""
DEVICES_CSV = "name,status,role,primary_ip4,primary_ip6\ngpu-01,active,gpu-node,10.20.0.1/24,\nsw-1,active,leaf,,\n"

HEAD = """
cluster: lab
groups:
  training: {role: training, prefixes: [10.20.0.0/16, "fd00:20::/48"], nested_in: pods}
  inference: {role: inference, prefixes: [10.21.0.0/16]}
  management: {role: management, prefixes: [10.60.0.0/24]}
inventory:
  networks: {10.20.0.0/16: {plane: compute}, 10.20.1.0/24: {plane: compute, rail: 1}}
""".replace(", nested_in: pods", "")


def described(folder: Path, sources: str, more: str = "") -> Path:
    path = folder / "cluster.yaml"
    path.write_text(f"{HEAD}  sources:\n{sources}bridge: {{state: {folder}/state}}\n{more}")
    return path


def asked(path: Path, code: int = 0) -> Cluster:
    """Ask every source as the command does, and load what they told."""
    said = CliRunner().invoke(inventory, ["-c", str(path), "--json"])
    assert said.exit_code == code, (said.output, said.exception)
    return load_cluster(path)


def nodes_of(cluster: Cluster) -> dict[str, str]:
    return {node.name: f"{node.group} {' '.join(str(one.address) for one in node.addresses)}" for node in cluster.nodes}


@pytest.mark.parametrize(
    ("kind", "content", "nodes"),
    [
        ("slurm", SLURM, {
            "gpu-01": "training 10.20.0.1", "gpu-02": "training 10.20.0.2", "login-1": "management 10.60.0.9",
        }),
        ("slurm", SLURM.replace(" Arch", "\n   Arch"), {
            "gpu-01": "training 10.20.0.1", "gpu-02": "training 10.20.0.2", "login-1": "management 10.60.0.9",
        }),
        ("slurm", json.dumps(SLURM_JSON), {"gpu-01": "training 10.20.0.1", "cpu-1": "training 10.20.9.1"}),
        ("ansible, variables: [ansible_host, rail1_ip]", INI, {
            "ungrouped-1": "management 10.60.0.5", "gpu-01.example.org": "training 10.20.0.1 10.20.1.1",
            "gpu-02.example.org": "training 10.20.0.2", "gpu-03.example.org": "training 10.20.1.3",
        }),
        ("ansible, variables: [ansible_host, rail1_ip]", YAML, {
            "mail.example.org": "management 10.60.0.5", "gpu-1": "training 10.20.0.1 10.20.1.1 10.20.2.1",
            "gpu-2": "training 10.20.0.2",
        }),
        ("ansible", HOSTS, {"gpu-01.example.org": "training 10.20.0.1", "gpu-02": "training 10.20.0.2"}),
        ("ansible", f"\ufeff{HOSTS}", {"gpu-01.example.org": "training 10.20.0.1", "gpu-02": "training 10.20.0.2"}),
        ("ansible", CLOUD_INIT, {"gpu-01.example.org": "training 10.20.0.1", "gpu-02": "training 10.20.0.2"}),
        ("ansible", VAULT, {"gpu-1": "training 10.20.0.1", "gpu-2": "training 10.20.0.2"}),
        ("netbox", NETBOX_CSV, {"gpu-01": "training 10.20.0.1"}),
        ("netbox", DEVICES_CSV, {"gpu-01": "training 10.20.0.1"}),
        ("netbox", f"\ufeff{DEVICES_CSV}".replace(",", ";"), {"gpu-01": "training 10.20.0.1"}),
    ],
    ids=[
        "scontrol -o", "scontrol", "scontrol --json", "ini", "yaml", "hosts", "byte order mark", "cloud-init", "vault",
        "addresses.csv", "devices.csv", "semicolons",
    ],
)  # fmt: skip
def test_a_file_is_read_as_its_tool_writes_it(tmp_path: Path, kind: str, content: str, nodes: dict[str, str]) -> None:
    (tmp_path / "answer").write_text(content)
    cluster = asked(described(tmp_path, f"    it: {{type: {kind}, file: answer}}\n"))
    assert nodes_of(cluster) == dict(sorted(nodes.items()))
    assert parse_cluster(dump_cluster(cluster)) == cluster


def test_an_export_that_is_cut_off_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "answer").write_text(DEVICES_CSV[: DEVICES_CSV.rindex("leaf")])
    path = described(tmp_path, "    it: {type: netbox, file: answer}\n")
    said = CliRunner().invoke(inventory, ["-c", str(path), "--json"])
    assert said.exit_code == 1
    (row,) = json.loads(said.stdout)
    assert row["error"] == "line 3: a row that ends too early: expected CSV (is the file cut off? Copy it once more)"
    assert row["nodes"] == 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            '{"kind": "List", "items": [\n{"kind": "No',
            "line 2, column 10: unterminated string starting at: expected JSON (is the",
        ),
        ("[]", "its answer cannot be read: expected what kubernetes says (AttributeError"),
    ],
)
def test_a_file_that_is_none_of_its_kind_is_told_in_words(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "answer").write_text(text)
    path = described(tmp_path, "    it: {type: kubernetes, file: answer}\n")
    (row,) = json.loads(CliRunner().invoke(inventory, ["-c", str(path), "--json"]).stdout)
    assert row["error"].startswith(told)


def test_slurm_tells_gpus_and_names_are_resolved(tmp_path: Path) -> None:
    (tmp_path / "answer").write_text(f"{SLURM}NodeName=here NodeAddr=localhost Gres=gpu:2\n")
    cluster = asked(
        described(tmp_path, f"    it: {{type: slurm, command: cat {tmp_path}/answer, also: ['10.20.1.7']}}\n")
    )
    assert [(node.name, node.gpus) for node in cluster.nodes if node.group == "training"] == [
        ("gpu-01", 8), ("gpu-02", 8),
    ]  # fmt: skip
    assert [(str(one.address), one.plane, one.rail) for one in cluster.nodes[0].addresses] == [
        ("10.20.0.1", "compute", None), ("10.20.1.7", "compute", 1),
    ]  # fmt: skip
    (source,) = cluster.sources
    assert "10.20.1.7: gpu-01 and gpu-02 have it: gpu-01 keeps it" in source.conflicts
    assert f"inventory.sources.it: {source.conflicts[0]}" in advice(cluster), "check tells of it"


class Api:
    """A server with the objects of NetBox and Kubernetes, in pages, for who bears the token."""

    def __init__(self) -> None:
        self.lists: dict[str, list[Any]] = {}
        self.status, self.asked, self.pause = 200, 0, 0.0
        self.queries: list[dict[str, list[str]]] = []
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                api.asked += 1
                place, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
                api.queries.append(query)
                known = self.headers.get("Authorization") in {"Token secret", "Bearer secret"}
                body = json.dumps(api.page(place, query)).encode()
                self.send_response(api.status if known else 403)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                length = 1 if api.pause else len(body)
                with suppress(BrokenPipeError):
                    for start in range(0, len(body), length):
                        time.sleep(api.pause)
                        self.wfile.write(body[start : start + length])

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def page(self, place: str, query: dict[str, list[str]]) -> object:
        """Return two objects at most, and where the next ones are, as either API says it."""
        found = self.lists.get(place, [])
        if "/v1/" in place:
            start = int(query.get("continue", ["0"])[0])
            rest = {"continue": str(start + 2)} if len(found) > start + 2 else {}
            return {"kind": "List", "metadata": rest, "items": found[start : start + 2]}
        start = int(query["offset"][0])
        rest = {"next": "http://inside.example/next" if len(found) > start + 2 else None}
        return {"count": len(found), "previous": None, **rest, "results": found[start : start + 2]}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    found = Api()
    (tmp_path / "token").write_text("secret\n")
    thread = threading.Thread(target=found.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield found
    found.server.shutdown()
    found.server.server_close()


def k8s_node(name: str, address: str, gpus: str = "8") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"node-role.kubernetes.io/gpu": "", "kubernetes.io/hostname": name}},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
            "allocatable": {"cpu": "224", "memory": "2113Gi", "nvidia.com/gpu": gpus, "pods": "110"},
        },
    }


def k8s_pod(name: str, node: str, *addresses: str, phase: str = "Running", **networks: str) -> dict[str, Any]:
    status = [{"name": "k8s-pod-network", "ips": [*addresses], "default": True, "dns": {}}]
    status += [
        {"name": f"training/{net}", "interface": net, "ips": [ip], "mac": "02:00:00:00:00:01", "dns": {}}
        for net, ip in networks.items()
    ]
    return {
        "metadata": {
            "name": name, "namespace": "training",
            "annotations": {"k8s.v1.cni.cncf.io/network-status": json.dumps(status, indent=4)},
        },
        "spec": {"nodeName": node, "containers": []},
        "status": {"phase": phase, "podIP": addresses[0], "podIPs": [{"ip": one} for one in addresses]},
    }  # fmt: skip


def test_kubernetes_tells_nodes_pods_with_their_networks_and_services(tmp_path: Path, api: Api) -> None:
    api.lists["/api/v1/nodes"] = [k8s_node(f"gpu-{number}", f"10.60.0.{number}") for number in (1, 2, 3)]
    api.lists["/api/v1/namespaces/training/pods"] = [
        k8s_pod("run-0", "gpu-1", "10.20.5.1", "fd00:20::1", net1="10.20.1.1", net2="10.20.2.1"),
        k8s_pod("run-1", "gpu-2", "10.20.5.2", phase="Succeeded"),
        k8s_pod("host", "gpu-2", "10.60.0.2") | {"spec": {"nodeName": "gpu-2", "hostNetwork": True}},
        k8s_pod("waits", "", "10.20.5.3", phase="Pending"),
        k8s_pod("odd", "gpu-3", "10.20.5.4") | {
            "metadata": {
                "name": "odd", "namespace": "training",
                "annotations": {"k8s.v1.cni.cncf.io/network-status": "not json"},
            }
        },
    ]  # fmt: skip
    api.lists["/api/v1/namespaces/training/services"] = [
        {
            "metadata": {"name": "api", "namespace": "training"},
            "spec": {"clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"], "type": "LoadBalancer"},
            "status": {"loadBalancer": {"ingress": [{"ip": "10.21.0.7"}]}},
        },
        {"metadata": {"name": "headless", "namespace": "training"}, "spec": {"clusterIP": "None"}},
    ]
    path = described(
        tmp_path, f"    k8s: {{type: kubernetes, url: '{api.url}', token: {{file: token}}, namespaces: [training]}}\n"
    ).read_text().replace("file: token", f"file: {tmp_path}/token")  # fmt: skip
    (tmp_path / "cluster.yaml").write_text(path)
    cluster = asked(tmp_path / "cluster.yaml")
    expected = {
        "api.training": "inference 10.21.0.7",
        "gpu-1": "training 10.20.1.1 10.20.2.1 10.20.5.1 fd00:20::1",
        "gpu-1.management": "management 10.60.0.1",
        "gpu-2": "management 10.60.0.2",
        "gpu-3": "training 10.20.5.4",
        "gpu-3.management": "management 10.60.0.3",
    }
    assert {name: " ".join(sorted(text.split()[1:])) for name, text in nodes_of(cluster).items()} == {
        name: " ".join(sorted(text.split()[1:])) for name, text in expected.items()
    }
    assert {node.name: node.group for node in cluster.nodes} == {
        name: text.split()[0] for name, text in expected.items()
    }
    assert cluster.sources[0].left_out == 1, "a cluster IP is in no group"
    objects = [
        *({"kind": "Node", **one} for one in api.lists["/api/v1/nodes"]),
        *({"kind": "Pod", **one} for one in api.lists["/api/v1/namespaces/training/pods"]),
        *({"kind": "Service", **one} for one in api.lists["/api/v1/namespaces/training/services"]),
    ]
    (tmp_path / "all.json").write_text(json.dumps({"kind": "List", "items": objects}))
    same = asked(described(tmp_path, "    k8s: {type: kubernetes, file: all.json}\n"))
    assert same.nodes == cluster.nodes, "as kubectl prints it"
    draft = tmp_path / "draft.yaml"
    said = CliRunner().invoke(init, [str(draft), "--from", "kubernetes", "--at", str(tmp_path / "all.json")])
    assert said.exit_code == 0, said.output
    assert {group.id: group.role.value for group in load_cluster(draft).groups} == {
        "gpu": "training", "training": "training",
    }  # fmt: skip


def address(
    number: int, text: str, device: str | None, kind: str = "device", *, status: str = "active", owner: int = 0
) -> dict[str, Any]:
    port = {"id": number, "name": "eth0", kind: {"id": owner or number, "name": device}} if device else None
    return {"id": number, "address": text, "status": {"value": status}, "assigned_object": port, "role": None}


def netbox(tmp_path: Path, api: Api, more: str = "") -> Path:
    text = f"    nb: {{type: netbox, url: '{api.url}/', token: {{file: {tmp_path}/token}}{more}}}\n"
    return described(tmp_path, text)


def test_netbox_moves_and_deletes_while_the_bridge_runs(
    tmp_path: Path, api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    api.lists["/api/dcim/devices/"] = [
        {"id": 1, "name": "gpu-01", "role": {"slug": "gpu-node"}},
        {"id": 2, "name": "gpu-02", "device_role": {"slug": "gpu-node"}},
        {"id": 9, "name": None, "role": {"slug": "spare"}},
    ]  # fmt: skip
    addresses = api.lists["/api/ipam/ip-addresses/"] = [
        address(1, "10.20.0.1/24", "gpu-01"), address(2, "10.20.1.1/24", "gpu-01", owner=1),
        address(3, "10.20.0.2/24", "gpu-02", owner=2), address(4, "10.60.0.4/24", "vm-1", "virtual_machine"),
        address(5, "10.20.0.5/24", "gpu-02", status="deprecated", owner=2), address(6, "10.20.0.6/24", None),
    ]  # fmt: skip
    path = netbox(tmp_path, api)
    now = 0.0
    watcher = Watcher(Log(), lambda: now)
    reload = Reload(path, lambda fresh: fresh, Log(), lambda: now, beside=watcher.look)
    cluster = load_cluster(path)
    assert cluster.nodes == ()
    assert "has not answered yet" in cluster.sources[0].conflicts[0]

    def next_look() -> Cluster | None:
        """One minute later: the source was asked, and its answer looked at."""
        nonlocal now
        now += 61
        before = api.asked
        reload.asked(cluster)
        for thread in threading.enumerate():
            if thread.name == "inventory nb":
                thread.join(10)
        assert api.asked > before
        now += 31
        return reload.asked(cluster)

    cluster = next_look() or cluster
    first = {
        "gpu-01": "training 10.20.0.1 10.20.1.1", "gpu-02": "training 10.20.0.2", "vm-1": "management 10.60.0.4",
    }  # fmt: skip
    assert nodes_of(cluster) == first
    assert next_look() is None, "the same answer changes nothing"

    addresses[2]["address"] = "10.20.7.7/24"
    del addresses[3]
    cluster = next_look() or cluster
    assert nodes_of(cluster) == {"gpu-01": "training 10.20.0.1 10.20.1.1", "gpu-02": "training 10.20.7.7"}
    kept = nodes_of(cluster)

    api.status = 503
    assert next_look() is None, "a source that is away changes nothing"
    assert nodes_of(load_cluster(path)) == kept, "nor does a restart while it is"
    (reading,) = configured_readings(cluster, time.time())
    assert (reading.broken, reading.entries, "answers 503" in reading.error) == (True, 2, True)
    api.status, api.lists["/api/ipam/ip-addresses/"] = 200, []
    assert next_look() is None, "an answer without any address is none"
    told = capsys.readouterr().err
    assert told.count("inventory_away") == 2
    assert told.count("inventory_answered") == 2

    api.lists["/api/ipam/ip-addresses/"] = [*addresses, address(7, "10.20.0.1/32", "gpu-02", owner=2)]
    (tmp_path / "cluster.yaml").write_text(
        path.read_text() + "nodes: {gpu-9: {group: training, addresses: [10.20.7.7]}}\n"
    )
    cluster = next_look() or cluster
    assert set(cluster.sources[0].conflicts) == {
        "10.20.7.7: gpu-9 and gpu-02 have it: gpu-9 keeps it", "10.20.0.1: gpu-01 and gpu-02 have it: gpu-01 keeps it",
    }  # fmt: skip
    (reading,) = configured_readings(cluster, time.time())
    assert (reading.broken, reading.skipped, "and 1 more" in reading.error) == (False, 2, True)


def test_what_cannot_be_asked_is_told(tmp_path: Path, api: Api) -> None:
    asked(netbox(tmp_path, api), 1)
    (tmp_path / "token").write_text("other\n")
    assert "answers 403 Forbidden (may the token list it?)" in CliRunner().invoke(
        inventory, ["-c", str(tmp_path / "cluster.yaml"), "--json"]
    ).output  # fmt: skip
    remote = load_cluster(described(tmp_path, "    it: {type: netbox, url: 'http://nb.example', token: {env: X}}\n"))
    assert "inventory.sources.it.url: http://nb.example without TLS: the token can be read on the way" in advice(remote)
    for sources, told in (
        ("    it: {type: netbox}\n", "inventory.sources.it.file: missing: expected a file, or url"),
        ("    it: {type: ansible}\n", "inventory.sources.it.file: missing: expected a file"),
        ("    it: {type: slurm, command: off}\n", "inventory.sources.it.file: missing: expected a file, or command"),
        ("    it: {type: slrm}\n", "did you mean slurm?"),
    ):
        with pytest.raises(ConfigError) as caught:
            load_cluster(described(tmp_path, sources))
        assert any(told in line for line in caught.value.lines()), caught.value.lines()
    asked(described(tmp_path, "    it: {type: slurm, command: 'false'}\n"), 1)
    (tmp_path / "loop").write_text("all: &all\n  hosts: {a1: {ansible_host: 10.20.0.1}}\n  children: {again: *all}\n")
    assert len(asked(described(tmp_path, "    it: {type: ansible, file: loop}\n")).nodes) == 1
    (tmp_path / "bad").write_text('{"nodes": 3}')
    assert len(asked(described(tmp_path, "    it: {type: slurm, file: bad}\n"), 1).nodes) == 1, (
        "the answer before holds"
    )


def test_names_of_strangers_and_answers_that_do_not_end_do_no_harm(
    tmp_path: Path, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = netbox(tmp_path, api)
    names = ("gpu-1", "a\rb", "c\nrules: [x]", "\ud800", None, "x" * 200_000)
    api.lists["/api/ipam/ip-addresses/"] = [address(n, f"10.20.0.{n}/24", name) for n, name in enumerate(names, 1)]
    api.lists["/api/dcim/devices/"] = [
        {"id": n, "name": name, "role": {"slug": "gpu"}} for n, name in enumerate(names, 1)
    ]
    cluster = asked(path)
    assert {*nodes_of(cluster)} == {"gpu-1"}
    assert [conflict[:7] for conflict in cluster.sources[0].conflicts] == ["a b: ex", "c rules", "xxxxxxx"]
    kept = tmp_path / "state/inventory/nb.csv"
    before = kept.stat().st_mtime_ns
    asked(path)
    assert kept.stat().st_mtime_ns == before, "an equal answer is none that changed"
    kept.write_text("name,address,word,gpus\n" + "x" * 200_000 + ",10.20.0.1,,\n")
    assert nodes_of(load_cluster(path)) == {}
    monkeypatch.setattr(reaching, "_MOST_BYTES", 100)
    said = CliRunner().invoke(inventory, ["-c", str(path), "--json"])
    assert "its answer does not end" in said.output


def test_what_is_wrong_is_shown_as_it_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table takes what stands in brackets for a style, and some parts of addresses for pictures."""
    monkeypatch.chdir(tmp_path)
    path = described(Path(), "    it: {type: slurm, file: 'lists/[gpu]/a:b:c'}\n")
    assert "lists/[gpu]/a:b:c" in CliRunner().invoke(inventory, ["-c", str(path)]).output


def test_a_build_without_the_nodes_of_a_source_says_so(tmp_path: Path) -> None:
    """On another machine, or where the state may not be read: rules about listed nodes are then left out."""
    (tmp_path / "answer").write_text(SLURM)
    path = described(tmp_path, "    it: {type: slurm, file: answer}\n")
    asked_for = ["-c", str(path), "--out", str(tmp_path / "out")]
    told = CliRunner().invoke(build, asked_for)
    assert told.exit_code == 0, told.output
    line = "warning: inventory.sources.it: has not answered yet: `clusterflow inventory` asks it: none of its nodes"
    assert line in told.stderr
    asked(path)
    assert "inventory.sources" not in CliRunner().invoke(build, asked_for).stderr


def test_a_filter_of_netbox_may_name_a_field_twice(tmp_path: Path, api: Api) -> None:
    """Its own pages write two sites so; of the first one no machine was known."""
    api.lists["/api/dcim/devices/"] = [{"id": 1, "name": "gpu-01", "role": {"slug": "gpu"}}]
    api.lists["/api/ipam/ip-addresses/"] = [address(1, "10.20.0.1/24", "gpu-01")]
    asked(netbox(tmp_path, api, ", query: '?site=ams1&site=ams2&role=gpu'"))
    assert (api.queries[0]["site"], api.queries[0]["role"]) == (["ams1", "ams2"], ["gpu"])


def test_an_address_that_netbox_deletes_between_two_pages_hides_no_other(
    tmp_path: Path, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All behind it move up by one: the first of the next page was in none, and its node was gone for a minute."""
    api.lists["/api/dcim/devices/"] = [{"id": n, "name": f"gpu-{n}", "role": {"slug": "gpu"}} for n in range(1, 6)]
    addresses = [address(n, f"10.20.0.{n}/24", f"gpu-{n}") for n in range(1, 6)]
    api.lists["/api/ipam/ip-addresses/"] = addresses
    path = netbox(tmp_path, api)
    before = nodes_of(asked(path))
    assert len(before) == 5
    page = api.page

    def deleting(place: str, query: dict[str, list[str]]) -> object:
        found = page(place, query)
        if "addresses" in place and len(addresses) == 5:
            del addresses[0]
        return found

    monkeypatch.setattr(api, "page", deleting)
    assert nodes_of(asked(path, 1)) == before, "half an answer is none"
    del before["gpu-1"]
    assert nodes_of(asked(path)) == before


def test_two_sites_may_have_machines_of_one_name(tmp_path: Path, api: Api) -> None:
    """The filter chose one of them; addresses of the other one were taken for its own."""
    api.lists["/api/dcim/devices/"] = [{"id": 1, "name": "gpu-01", "role": {"slug": "gpu"}}]
    api.lists["/api/ipam/ip-addresses/"] = [
        address(1, "10.20.0.1/24", "gpu-01"), address(2, "10.20.0.2/24", "gpu-01"),
    ]  # fmt: skip
    assert nodes_of(asked(netbox(tmp_path, api, ", query: site=ams1"))) == {"gpu-01": "training 10.20.0.1"}


def test_a_password_in_an_inventory_is_read_past_and_never_told(tmp_path: Path) -> None:
    play = tmp_path / "play"
    path = described(tmp_path, "    it: {type: ansible, file: play}\n")
    play.write_text("gpu-1 ansible_password='sec #ret' ansible_host=10.20.0.1  # it's in rack 1\n")
    assert nodes_of(asked(path)) == {"gpu-1": "training 10.20.0.1"}
    for broken, told in (
        ("gpu-1 ansible_password='secret ansible_host=10.20.0.1\n", "gpu-1: No closing quotation"),
        ("all:\n  hosts:\n    gpu-1: {ansible_password: secret: here}\n", "no YAML: line 3: expected"),
    ):
        play.write_text(broken)
        said = CliRunner().invoke(inventory, ["-c", str(path), "--json"])
        assert told in said.output, said.output
        assert "secret" not in said.output


def test_an_answer_that_drips_ends_with_its_time(tmp_path: Path, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte came in time, and 64 KiB were waited for: days."""
    monkeypatch.setattr(reaching, "_TIMEOUTS", 0.1)
    api.pause = 0.05
    path = netbox(tmp_path, api, ", timeout: 1s")
    said = CliRunner().invoke(inventory, ["-c", str(path), "--json"])
    (got,) = re.findall(r"its answer does not end: ([0-9]+) bytes so far", said.output)
    assert int(got) < 30, "of 70"


def test_no_message_repeats_a_token(tmp_path: Path, api: Api) -> None:
    """What the library says of a header that cannot be repeats it: in logs, in the store, on boards."""
    for token in ("secret\nanother", "secr€t"):
        (tmp_path / "token").write_text(token)
        said = CliRunner().invoke(inventory, ["-c", str(netbox(tmp_path, api)), "--json"])
        assert said.exit_code == 1
        assert "secr" not in said.output
        assert "inventory.sources.nb.token: expected one line of ASCII" in said.output, said.output


def test_a_node_that_no_source_knows_any_more_is_told_and_stops_nothing(tmp_path: Path) -> None:
    """Drained, it was deleted: nothing new was taken up while its maintenance stood there, and no restart came up."""
    more = """\
site:
  maintenance:
    - {from: "2026-12-01 22:00", to: "2026-12-02 04:00", nodes: [gpu-02, gpu-01], why: boards}
    - {from: "2026-12-01 22:00", to: "2026-12-02 04:00", nodes: [gpu-02], why: it alone}
jobs:
  - {id: both, nodes: ["gpu-{01..02}"], start: 2026-03-01 08:00}
  - {id: gone, nodes: [gpu-02], start: 2026-03-01 08:00}
"""
    (tmp_path / "answer").write_text(SLURM)
    path = described(tmp_path, "    it: {type: slurm, file: answer}\n", more)
    CliRunner().invoke(inventory, ["-c", str(path)])
    assert [job.nodes for job in load_cluster(path).jobs] == [("gpu-01", "gpu-02"), ("gpu-02",)]
    (tmp_path / "answer").write_text("".join(line for line in SLURM.splitlines(True) if "gpu-02" not in line))
    cluster = asked(path)
    assert [(job.id, job.nodes) for job in cluster.jobs] == [("both", ("gpu-01",))]
    assert [one.nodes for one in cluster.site.maintenance] == [("gpu-01",)], "and never the whole site"
    assert sum("no source knows gpu-02" in line for line in advice(cluster)) == 4
    with pytest.raises(ConfigError, match="4 problems"):
        parse_cluster(f"{HEAD}{more}nodes: {{gpu-01: {{group: training, addresses: [10.20.0.1]}}}}\n")


def test_a_source_that_cluster_yaml_says_something_else_of_is_asked_at_once(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    text = f"""\
cluster: lab
groups: {{training: {{role: training, prefixes: [10.20.0.0/16]}}}}
inventory: {{sources: {{play: {{type: ansible, file: NAME, every: 1d}}}}}}
bridge: {{state: "{tmp_path}"}}
"""
    (tmp_path / "good.ini").write_text("gpu-01 ansible_host=10.20.0.1\n")
    watcher = Watcher(Log())

    def asked(name: str) -> tuple[str, ...]:
        path.write_text(text.replace("NAME", name))
        watcher.look(load_cluster(path))
        for thread in threading.enumerate():
            if thread.name == "inventory play":
                thread.join(10)
        return tuple(node.name for node in load_cluster(path).nodes)

    assert [asked("bad.ini"), asked("good.ini")] == [(), ("gpu-01",)]
