"""What outside addresses are: lists of our own and of cloud providers, by prefix and by name, and what is refused."""

import json
import time
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

import pytest
from name_server import NameServer

from app.errors import ConfigError, UserError
from cluster.dump import dump_cluster
from cluster.load import parse_cluster
from cluster.model import (
    ApplicationFile,
    ApplicationFormat,
    Applications,
    HostNaming,
    ListSettings,
    NamesFile,
    ReverseDns,
)
from enrichment.addresses.application_files import load_applications
from enrichment.addresses.applications import ApplicationLists
from enrichment.addresses.host_names import HostNames
from enrichment.list_states import list_state
from enrichment.providers import labels_of
from store import schema

HEAD = "cluster: one\ngroups: {nodes: {role: training, prefixes: [10.0.0.0/8]}}\n"

LIST = """\
source: a test
dated: 2026-01-31
applications:
  - application: model  hub
    hosts: [hub.example, CDN.Hub.Example.]
    prefixes: [203.0.113.0/24, 2001:db8::/32]
  - application: mirror
    hosts: [mirror.hub.example]
    prefixes: [203.0.113.128/25]
"""
AWS = {
    "syncToken": "1700000000",
    "createDate": "2026-02-03-04-05-06",
    "prefixes": [
        {"ip_prefix": "198.51.100.0/24", "region": "eu-west-1", "service": "AMAZON", "network_border_group": "x"},
        {"ip_prefix": "198.51.100.0/24", "region": "eu-west-1", "service": "S3", "network_border_group": "x"},
        {"ip_prefix": "192.0.2.0/24", "region": "GLOBAL", "service": "AMAZON", "network_border_group": "GLOBAL"},
        {"ip_prefix": "192.0.2.64/26", "region": "GLOBAL", "service": "CLOUDFRONT", "network_border_group": "GLOBAL"},
    ],
    "ipv6_prefixes": [{"ipv6_prefix": "2001:db8:aaaa::/48", "region": "x", "service": "EC2"}],
}
GOOGLE = {
    "syncToken": "1",
    "creationTime": "2026-02-03T04:05:06.7890",
    "prefixes": [
        {"ipv4Prefix": "198.51.100.0/24", "service": "Google Cloud", "scope": "us-east1"},
        {"ipv6Prefix": "2001:db8:bbb0::/44", "service": "Google Cloud", "scope": "us-east1"},
    ],
}
AZURE = {
    "changeNumber": 391,
    "cloud": "Public",
    "values": [
        {
            "name": "AzureCloud",
            "properties": {"systemService": "", "addressPrefixes": ["192.0.2.0/24"]},
        },
        {
            "name": "Storage.WestEurope",
            "properties": {"systemService": "AzureStorage", "addressPrefixes": ["192.0.2.0/24", "2001:db8:cccc::/48"]},
        },
    ],
}
FASTLY = {"addresses": ["192.0.2.0/24"], "ipv6_addresses": ["2001:db8:dddd::/48"]}


def lists_of(tmp_path: Path, names: HostNames | None = None, **texts: str) -> ApplicationLists:
    """Return lists by file name, which begins with the format."""
    files = []
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        form = ApplicationFormat(name.split("_")[0])
        told = "" if form is ApplicationFormat.LIST else "Cloud"
        files.append(ApplicationFile(name, str(tmp_path / name), form, told))
    lists = ApplicationLists(Applications(files=tuple(files)), names)
    lists.refresh()
    return lists


def labels(lists: ApplicationLists, *addresses: str) -> list[str]:
    return list(lists.label(addresses)[schema.APPLICATION])


def moment(*parts: int) -> float:
    return datetime(*parts, tzinfo=UTC).timestamp()  # type: ignore[misc,arg-type]


def test_of_prefixes_the_longest_counts_in_both_families(tmp_path: Path) -> None:
    lists = lists_of(tmp_path, list=LIST)
    addresses = ("203.0.113.1", "203.0.113.200", "2001:db8::1", "198.51.100.1", "gpu-01")
    assert labels(lists, *addresses) == ["model hub", "mirror", "model hub", "", ""]
    (reading,) = (file.reading() for file in lists.files)
    assert (reading.origin, reading.dated, reading.entries) == ("a test", moment(2026, 1, 31), 6)
    assert labels(lists) == []


@pytest.mark.parametrize(
    ("form", "document", "found", "dated"),
    [
        (
            "aws",
            AWS,
            {"198.51.100.9": "Cloud S3", "192.0.2.1": "Cloud", "192.0.2.65": "Cloud CLOUDFRONT",
             "2001:db8:aaaa::1": "Cloud EC2", "203.0.113.1": ""},
            moment(2026, 2, 3, 4, 5, 6),
        ),
        (
            "google",
            GOOGLE,
            {"198.51.100.9": "Cloud", "2001:db8:bbbb::1": "Cloud", "192.0.2.1": ""},
            moment(2026, 2, 3, 4, 5, 6) + 0.789,
        ),
        ("azure", AZURE, {"192.0.2.1": "Cloud Storage", "2001:db8:cccc::1": "Cloud Storage"}, None),
        ("fastly", FASTLY, {"192.0.2.1": "Cloud", "2001:db8:dddd::1": "Cloud"}, None),
    ],
)  # fmt: skip
def test_what_providers_publish_is_read_as_it_is(
    tmp_path: Path, form: str, document: object, found: dict[str, str], dated: float | None
) -> None:
    lists = lists_of(tmp_path, **{form: json.dumps(document)})
    assert dict(zip(found, labels(lists, *found), strict=True)) == found
    (reading,) = (file.reading() for file in lists.files)
    assert not reading.error
    assert reading.dated == pytest.approx(dated or (tmp_path / form).stat().st_mtime)


def test_a_plain_list_of_prefixes(tmp_path: Path) -> None:
    lists = lists_of(
        tmp_path, prefixes="# ours\n192.0.2.0/24 # one\n\n2001:db8::/32\n198.51.100.7\n10.1.2.3/8\n0.0.0.0/0\n"
    )
    assert labels(lists, "192.0.2.9", "198.51.100.7", "198.51.100.8", "203.0.113.1") == ["Cloud", "Cloud", "", ""]
    (reading,) = (file.reading() for file in lists.files)
    assert (reading.entries, reading.skipped, reading.broken) == (3, 2, False)
    assert "line 6: '10.1.2.3/8': expected 10.0.0.0/8" in reading.error


def test_a_name_that_somebody_vouches_for_says_more_than_a_range(tmp_path: Path) -> None:
    text = "192.0.2.1 lfs.cdn.hub.example\n192.0.2.2 mirror.hub.example\n192.0.2.3 nothub.example\n192.0.2.4 example\n"
    (tmp_path / "hosts").write_text(text, encoding="ascii")
    names = HostNames(HostNaming((NamesFile("hosts", str(tmp_path / "hosts")),)))
    names.refresh()
    lists = lists_of(tmp_path, names, aws=json.dumps(AWS), list=LIST)
    addresses = [f"192.0.2.{number}" for number in range(1, 6)]
    assert labels(lists, *addresses) == ["model hub", "mirror", "Cloud", "Cloud", "Cloud"]


def test_a_ptr_record_alone_makes_no_model_hub_and_one_that_leads_back_does(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(LIST, encoding="utf-8")
    with NameServer() as server:
        for number, name in ((7, "cdn.hub.example."), (8, "fake.hub.example.")):
            server.records[f"{number}.100.51.198.in-addr.arpa.", "PTR"] = 3600, (name,)
        server.records["cdn.hub.example.", "A"] = 3600, ("198.51.100.7",)
        server.records["fake.hub.example.", "A"] = 3600, ("203.0.113.1",)
        names = HostNames(HostNaming((), ReverseDns((ip_address("127.0.0.1"),), server.port, 2.0, rate=1000)))
        lists = ApplicationLists(Applications(files=(ApplicationFile("own", str(tmp_path / "own.yaml")),)), names)
        assert lists.refresh()
        both = ["198.51.100.7", "198.51.100.8"]
        assert labels(lists, *both) == ["", ""]
        for _ in range(1000):
            if None not in names.of(both):
                break
            time.sleep(0.01)
        assert [one and one.name for one in names.of(both)] == ["cdn.hub.example", "fake.hub.example"]
        assert lists.refresh(), "what was said before is to be forgotten"
        assert not lists.refresh()
        assert labels(lists, *both) == ["model hub", ""]


@pytest.mark.parametrize(
    ("form", "text", "why"),
    [
        ("list", "[]", "expected a mapping"),
        ("list", "applications: 3", "not of the format list"),
        ("list", "applications: [{hosts: [a.example]}]", "not of the format list: KeyError: 'application'"),
        ("list", "applications: [{application: a, hosts: [a b]}]", "hosts of entry 1: 'a b': expected a host name"),
        ("list", "applications: []", "lists nothing"),
        ("list", "applications: [", "while parsing"),
        ("list", "applications: " + "[" * 5000, "nested too deeply"),
        ("aws", "{}", "not of the format aws: KeyError: 'prefixes'"),
        ("aws", '{"prefixes": [], "ipv6_prefixes": []}', "lists nothing"),
        ("aws", json.dumps(GOOGLE), "not of the format aws: KeyError: 'ip_prefix'"),
        ("google", json.dumps(AWS), "not of the format google"),
        ("azure", '{"values": ["a"]}', "not of the format azure"),
        ("fastly", "<html>", "Expecting value"),
        ("prefixes", "<html>\n", "line 1: '<html>': expected an address or a prefix"),
        ("prefixes", "", "lists nothing"),
    ],
)
def test_what_is_no_such_file_is_told_in_one_line_and_not_used(tmp_path: Path, form: str, text: str, why: str) -> None:
    lists = lists_of(tmp_path, **{form: text})
    (reading,) = (file.reading() for file in lists.files)
    assert reading.broken
    assert why in reading.error
    assert "\n" not in reading.error
    assert labels(lists, "192.0.2.1") == [""]


def test_the_list_that_comes_with_clusterflow_is_whole_and_never_stale(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(
        "192.0.2.1 cdn-lfs.huggingface.co\n192.0.2.2 conda.anaconda.org\n", encoding="ascii"
    )
    text = f"{HEAD}names: {{files: {{hosts: hosts}}}}\napplications: {{builtin: true}}\n"
    found = labels_of(parse_cluster(text, folder=tmp_path))
    position = schema.LABELS.index(schema.APPLICATION)
    rows = found.of(["192.0.2.1", "192.0.2.2", "151.101.0.223", "104.16.1.1", "203.0.113.1"])
    wanted = ["model hub", "package index", "content network", "content network", ""]
    assert [row[position] for row in rows] == wanted
    reading = found.files[-1].reading()
    assert (reading.name, reading.skipped, reading.error) == ("built-in", 0, "")
    assert reading.dated == moment(2026, 11, 22)
    assert list_state(reading, ListSettings(), moment(2036, 1, 1)) == schema.ListState.OK


def test_configuration(tmp_path: Path) -> None:
    text = f"""{HEAD}
applications:
  files:
    own: lists/own.yaml
    aws: {{file: /lists/aws.json, format: aws}}
    edge: {{file: edge.txt, format: prefixes, application: content network}}
"""
    cluster = parse_cluster(text, folder=tmp_path)
    assert cluster.applications == Applications(
        files=(
            ApplicationFile("own", str(tmp_path / "lists/own.yaml")),
            ApplicationFile("aws", "/lists/aws.json", ApplicationFormat.AWS, "AWS"),
            ApplicationFile("edge", str(tmp_path / "edge.txt"), ApplicationFormat.PREFIXES, "content network"),
        )
    )
    assert parse_cluster(dump_cluster(cluster)) == cluster
    assert not labels_of(parse_cluster(HEAD))
    wrong = "applications: {files: {a: {file: a, format: prefixes}, b: {file: b, application: c}}}\n"
    with pytest.raises(ConfigError) as caught:
        parse_cluster(HEAD + wrong)
    assert [problem.path for problem in caught.value.problems] == [
        "applications.files.a.application",
        "applications.files.b.application",
    ]


def test_lists_that_hold_themselves_a_million_times_are_told_in_no_time(tmp_path: Path) -> None:
    tens = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    lists = "\n".join(["a0: &a0 [x, x, x, x, x, x, x, x, x, x]", *tens, "source: *a8", ""])
    merged = [f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 10)}]}}" for n in range(1, 9)]
    mappings = "\n".join(["m0: &m0 {k: v}", *merged, ""])
    for number, (text, told) in enumerate(
        [
            (f"{lists}applications: [{{application: x, prefixes: [*a8]}}]", "'<list>': expected an address"),
            (f"{lists}applications: [{{application: x, hosts: [*a8]}}]", "'<list>': expected a host name"),
            (f"{lists}applications: [{{application: *a8}}]", "entry 1: expected a text as application"),
            (f"{mappings}applications: []", "could not determine a constructor"),
        ]
    ):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text)
        begun = time.monotonic()
        with pytest.raises(UserError) as refused:
            load_applications(ApplicationFile("own", str(path), ApplicationFormat.LIST), path)
        assert told in refused.value.message
        assert time.monotonic() - begun < 2
