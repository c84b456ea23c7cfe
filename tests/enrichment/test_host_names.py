"""Names from files: /etc/hosts, CSV, NetBox; which file counts, and what is refused."""

import os
import time
from ipaddress import ip_address
from pathlib import Path

import pytest
from name_server import NameServer

from app.errors import ConfigError
from cluster.dump import dump_cluster
from cluster.load import parse_cluster
from cluster.model import HostNaming, NamesFile, NamesFormat, ReverseDns
from enrichment.addresses.host_files import host_name
from enrichment.addresses.host_names import HostName, HostNames
from enrichment.list_states import HOSTS

HEAD = "cluster: one\ngroups: {nodes: {role: training, prefixes: [10.0.0.0/8]}}\n"
HOSTS_TEXT = """\
# outside machines
203.0.113.9   mirror.example.org mirror   # the first name counts
2001:DB8:0::9 Mirror6.Example.ORG.
203.0.113.10  bad;name
203.0.113.9   second.example.org
::ffff:198.51.100.7 mapped.example.org
"""
NETBOX_CSV = """\
address,vrf,status,dns_name,description
203.0.113.9/32,,Active,from-netbox.example.org,"a ""quoted"" text, with a comma"
203.0.113.11/24,,Active,api.example.org,
203.0.113.12/24,,Active,,nameless
"""
NETBOX_JSON = """\
{"count": 2, "next": null, "results": [
  {"id": 1, "address": "203.0.113.20/24", "dns_name": "json.example.org", "status": {"value": "active"}},
  {"id": 2, "address": "203.0.113.21/24", "dns_name": ""}]}
"""


def names_of(tmp_path: Path, **texts: str) -> HostNames:
    files = []
    for name, text in texts.items():
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        files.append(NamesFile(name, str(path), NamesFormat(name.split("_")[0])))
    names = HostNames(HostNaming(tuple(files)))
    names.refresh()
    return names


def test_files_name_addresses_and_the_first_that_knows_one_counts(tmp_path: Path) -> None:
    names = names_of(tmp_path, hosts=HOSTS_TEXT, csv=NETBOX_CSV, json=NETBOX_JSON)
    wanted = {
        "203.0.113.9": HostName("mirror.example.org", "hosts", is_vouched=True),
        "2001:db8::9": HostName("mirror6.example.org", "hosts", is_vouched=True),
        "198.51.100.7": HostName("mapped.example.org", "hosts", is_vouched=True),
        "203.0.113.10": None,
        "203.0.113.11": HostName("api.example.org", "csv", is_vouched=True),
        "203.0.113.12": None,
        "203.0.113.20": HostName("json.example.org", "json", is_vouched=True),
        "192.0.2.1": None,
    }
    assert dict(zip(wanted, names.of(list(wanted)), strict=True)) == wanted
    hosts, table, document = (file.reading() for file in names.files)
    assert [one.kind for one in (hosts, table, document)] == [HOSTS, "names", "names"]
    assert (hosts.entries, hosts.skipped, hosts.broken) == (3, 1, False)
    assert "line 4" in hosts.error
    assert "bad;name" in hosts.error
    assert (table.entries, table.skipped, document.entries, document.skipped) == (2, 0, 1, 0)


def test_columns_are_those_that_cluster_yaml_names(tmp_path: Path) -> None:
    path = tmp_path / "ipam.csv"
    path.write_text("Hostname;IP Address\nstore.example.org;203.0.113.9\n", encoding="utf-8")
    text = f"{HEAD}names: {{files: {{ipam: {{file: ipam.csv, address_column: IP Address, name_column: Hostname}}}}}}\n"
    cluster = parse_cluster(text, folder=tmp_path)
    names = HostNames(cluster.names)
    assert names.refresh()
    assert names.of(["203.0.113.9"]) == [HostName("store.example.org", "ipam", is_vouched=True)]
    assert not names.refresh()
    path.write_text("Hostname;IP Address\nother.example.org;203.0.113.9\n", encoding="utf-8")
    os.utime(path, (1, 1))
    assert names.refresh()
    assert names.of(["203.0.113.9"]) == [HostName("other.example.org", "ipam", is_vouched=True)]


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        ("csv", "ip,name\n203.0.113.9,a.example\n", "no column address, dns_name; there are ip, name"),
        ("csv", "address,dns_name\nnothing,here\n", "line 2: 'nothing' 'here': expected an address and a host name"),
        ("csv", f"address,dns_name\n203.0.113.9,{'x' * 200_000}\n", "line 2: field larger than field limit"),
        ("csv", "address,dns_name\n203.0.113.8,a.example\n203.0.113.9", "line 3: a row that ends too early"),
        ("json", '{"results": {}}', "expected a list of objects"),
        ("json", '[{"ip": 1}]', "no object has the key address"),
        ("json", "[" * 100_000, "recursion"),
        ("json", "{", "Expecting property name"),
        ("hosts", "mirror.example.org 203.0.113.9\n", "line 1: 'mirror.example.org' '203.0.113.9'"),
        *((kind, "\n", "an empty file") for kind in ("hosts", "csv", "json")),
        ("hosts", "\x00\x01\n", "expected an address and a host name"),
    ],
)
def test_what_is_no_such_file_is_told_in_one_line_and_not_used(tmp_path: Path, kind: str, text: str, why: str) -> None:
    names = names_of(tmp_path, **{kind: text})
    (reading,) = (file.reading() for file in names.files)
    assert reading.broken
    assert not reading.in_use
    assert why in reading.error
    assert "\n" not in reading.error
    assert names.of(["203.0.113.9"]) == [None]


def test_dns_is_asked_only_for_what_no_file_knows(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("203.0.113.9 file.example\n", encoding="utf-8")
    with NameServer() as server:
        server.records["10.113.0.203.in-addr.arpa.", "PTR"] = 3600, ("dns.example.",)
        dns = ReverseDns((ip_address("127.0.0.1"),), server.port, 2.0, confirm=True, rate=1000)
        names = HostNames(HostNaming((NamesFile("hosts", str(tmp_path / "hosts")),), dns))
        names.refresh()
        for _ in range(500):
            first, second = names.of(["203.0.113.9", "203.0.113.10"])
            if second is not None:
                break
            time.sleep(0.01)
        assert first == HostName("file.example", "hosts", is_vouched=True)
        assert second == HostName("dns.example", "reverse DNS", is_vouched=False)
        assert {name for name, _ in server.asked} == {"10.113.0.203.in-addr.arpa.", "dns.example."}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a.example", "a.example"),
        ("A.Example.", "a.example"),
        ("a..example", ""),
        ("a b", ""),
        ("", ""),
        (".", ""),
        ("1.2.3.4", ""),
        ("ünïcode.example", ""),
        ("x" * 64 + ".example", ""),
        (".".join(["x" * 60] * 5), ""),
        ("a", "a"),
    ],
)
def test_host_name(text: str, name: str) -> None:
    assert host_name(text) == name


def test_configuration(tmp_path: Path) -> None:
    text = f"""{HEAD}
names:
  files: {{hosts: /etc/hosts, netbox: exports/ip.csv, api: {{file: ip.JSON, name_column: host}}}}
  reverse_dns: {{resolvers: [10.60.0.53, "2001:db8::53", 10.60.0.53], timeout: 500ms, confirm: false, rate: 10}}
"""
    cluster = parse_cluster(text, folder=tmp_path)
    assert cluster.names == HostNaming(
        (
            NamesFile("hosts", "/etc/hosts"),
            NamesFile("netbox", str(tmp_path / "exports/ip.csv"), NamesFormat.CSV),
            NamesFile("api", str(tmp_path / "ip.JSON"), NamesFormat.JSON, name_column="host"),
        ),
        ReverseDns((ip_address("10.60.0.53"), ip_address("2001:db8::53")), timeout=0.5, confirm=False, rate=10),
    )
    assert parse_cluster(dump_cluster(cluster)) == cluster
    assert parse_cluster(HEAD).names == HostNaming()
    with pytest.raises(ConfigError) as caught:
        parse_cluster(f"{HEAD}names: {{reverse_dns: {{resolvers: []}}}}\n")
    assert [problem.path for problem in caught.value.problems] == ["names.reverse_dns.resolvers"]
