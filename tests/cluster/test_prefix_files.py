"""Groups whose prefixes stand in files, as providers publish them."""

import json
import os
import time
from pathlib import Path

import pytest

from app.errors import ConfigError
from app.log import Log
from cluster.advice import advice
from cluster.dump import dump_cluster
from cluster.load import load_cluster, parse_cluster
from cluster.reload import Reload
from cluster.sources import files_of, named_in
from enrichment.inventory.asking import Watcher
from enrichment.list_states import prefix_readings
from rules.alerts.security import first_external_contact

AWS = {
    "syncToken": "1",
    "prefixes": [
        {"ip_prefix": "3.5.140.0/22", "region": "ap-northeast-2", "service": "AMAZON"},
        {"ip_prefix": "3.5.140.0/22", "region": "ap-northeast-2", "service": "S3"},
        {"ip_prefix": "52.218.0.0/17", "region": "eu-west-1", "service": "S3"},
        {"ip_prefix": "52.218.128.0/17", "region": "eu-west-1", "service": "S3"},
    ],
    "ipv6_prefixes": [{"ipv6_prefix": "2a05:d07a:a000::/40", "region": "eu-west-1", "service": "EC2"}],
}
GOOGLE = {"prefixes": [{"ipv4Prefix": "34.1.208.0/20", "scope": "africa-south1"}, {"ipv6Prefix": "2600:1900::/35"}]}
AZURE = {
    "values": [
        {"name": "Storage.WestEurope", "properties": {"region": "westeurope", "addressPrefixes": ["13.69.40.0/24"]}},
        {"name": "Sql", "properties": {"region": "", "addressPrefixes": ["13.70.0.0/24", "2603:1000::/40"]}},
    ]
}
PLAIN = "# ours\n192.0.2.0/25\n192.0.2.128/25  # both halves\n198.51.100.7\n2001:db8:77::1\n"
RPSL = "route:      203.0.113.0/24\ndescr:      partner\norigin:     AS64500\n% RADB\n\nroute6: 2001:db8:5::/48\n"


def written(folder: Path, content: object, more: str = "") -> Path:
    (folder / "list").write_text(content if isinstance(content, str) else json.dumps(content))
    path = folder / "cluster.yaml"
    path.write_text(
        "cluster: it\ngroups:\n  train: {role: training, prefixes: [10.1.0.0/16]}\n"
        f"  cloud: {{role: approved_external, prefixes_from: [{{file: list{more}}}]}}\n"
    )
    return path


@pytest.mark.parametrize(
    ("content", "more", "prefixes"),
    [
        (AWS, "", ["3.5.140.0/22", "52.218.0.0/16", "2a05:d07a:a000::/40"]),
        (AWS, ", services: [S3], regions: [eu-west-1]", ["52.218.0.0/16"]),
        (GOOGLE, "", ["34.1.208.0/20", "2600:1900::/35"]),
        (GOOGLE, ", regions: [africa-south1]", ["34.1.208.0/20"]),
        (AZURE, ", services: [Storage]", ["13.69.40.0/24"]),
        (
            {"addresses": ["23.235.32.0/20"], "ipv6_addresses": ["2a04:4e40::/32"]},
            "",
            ["23.235.32.0/20", "2a04:4e40::/32"],
        ),
        ({"result": {"ipv4_cidrs": ["173.245.48.0/20"], "ipv6_cidrs": []}}, "", ["173.245.48.0/20"]),
        (PLAIN, "", ["192.0.2.0/24", "198.51.100.7/32", "2001:db8:77::1/128"]),
        (RPSL, "", ["203.0.113.0/24", "2001:db8:5::/48"]),
    ],
    ids=["aws", "aws, chosen", "google", "google, chosen", "azure", "fastly", "cloudflare", "plain", "rpsl"],
)
def test_what_a_file_lists_belongs_to_the_group(
    tmp_path: Path, content: object, more: str, prefixes: list[str]
) -> None:
    path = written(tmp_path, content, more)
    cluster = load_cluster(path)
    assert [str(prefix) for prefix in cluster.group("cloud").prefixes] == prefixes
    assert parse_cluster(dump_cluster(cluster)) == cluster
    assert tmp_path / "list" in files_of(path)
    assert "list" in named_in(path.read_text(), str(path))


def test_files_and_prefixes_of_a_group_may_overlap(tmp_path: Path) -> None:
    """Whoever publishes them does not ask: all of Google's holds its cloud's, and what a file adds may be here."""
    (tmp_path / "more").write_text("52.218.0.0/17\n198.51.100.0/24\n2001:db8:77::/48\n")
    path = written(tmp_path, "52.218.0.0/16\n192.0.2.0/24\n2001:db8:77::1\n")
    path.write_text(
        path.read_text().replace("{file: list}]", "list, more], prefixes: [192.0.2.64/26, 198.51.100.0/24]")
    )
    cluster = load_cluster(path)
    assert {str(prefix) for prefix in cluster.group("cloud").prefixes} == {
        "52.218.0.0/16", "192.0.2.0/24", "198.51.100.0/24", "2001:db8:77::/48",
    }  # fmt: skip
    assert parse_cluster(dump_cluster(cluster)) == cluster
    path.write_text(path.read_text().replace("[192.0.2.64/26,", "[203.0.113.0/24, 203.0.113.128/25,"))
    with pytest.raises(ConfigError, match="1 problem"):
        load_cluster(path)


@pytest.mark.parametrize(
    ("content", "more", "told"),
    [
        (AWS, ", services: [S4]", "prefixes_from[0].services: S4: expected one of the services in"),
        (PLAIN, ", regions: [eu]", "prefixes_from[0].regions: eu: expected one of the regions in"),
        (PLAIN + "192.0.2.0/33\n", "", "line 6: 192.0.2.0/33: expected an IPv4 or IPv6 prefix"),
        ({"prefixes": 3}, "", "expected one prefix a line, RPSL"),
        ('{"prefixes": [', "", "expected one prefix a line, RPSL"),
        ([], "", "expected one prefix a line, RPSL"),
        ("# nothing\n", "", "expected a file with prefixes (it lists none)"),
        ("10.1.4.0/24\n", "", "10.1.0.0/16 of group train covers it"),
        (PLAIN, "less", "no such file"),
    ],
)
def test_what_is_wrong_with_a_file_names_it(tmp_path: Path, content: object, more: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_cluster(written(tmp_path, content, more))
    assert any(told in line and "prefixes_from" in line for line in caught.value.lines()), caught.value.lines()


def test_a_file_that_is_replaced_is_taken_up_and_a_broken_one_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    path = written(tmp_path, PLAIN)
    cluster = load_cluster(path)
    reload = Reload(path, lambda fresh: fresh, Log(), lambda: now)
    now += 31
    assert reload.asked(cluster) is None, "nothing changed"
    (tmp_path / "list").write_text("192.0.2.0/33\n")
    long_since = time.time() - 600
    os.utime(tmp_path / "list", (long_since, long_since))
    assert reload.asked(cluster) is None, "not looked at so soon again"
    (reading,) = prefix_readings(cluster, time.time())
    assert (reading.name, reading.entries, reading.broken) == ("cloud.list", 3, True)
    assert "not taken up" in reading.error
    now += 31
    assert reload.asked(cluster) is None, "refused"
    assert capsys.readouterr().err.count("configuration_refused") == 1
    now += 31
    assert reload.asked(cluster) is None, "told once"
    assert "configuration_refused" not in capsys.readouterr().err
    (tmp_path / "list").write_text("198.18.0.0/15\n")
    now += 31
    fresh = reload.asked(cluster)
    assert fresh is not None
    assert [str(prefix) for prefix in fresh.group("cloud").prefixes] == ["198.18.0.0/15"]
    assert [one.error for one in prefix_readings(fresh, time.time())] == [""]


@pytest.mark.parametrize(
    "broken",
    ["groups: [", "groups: none\n", "WHOLE\nbridge: {window: 1s}\n", ""],
    ids=["no YAML", "a fault", "needs a restart", "empty"],
)
def test_a_cluster_yaml_that_was_broken_for_a_moment_is_read_again(tmp_path: Path, broken: str) -> None:
    now = 0.0
    path = written(tmp_path, PLAIN)
    cluster, whole = load_cluster(path), path.read_text()
    reload = Reload(path, lambda fresh: fresh, Log(), lambda: now)
    path.write_text(broken.replace("WHOLE", whole))
    (tmp_path / "list").write_text("198.18.0.0/15\n")
    now += 31
    assert reload.asked(cluster) is None, "refused"
    path.write_text(whole)
    now += 31
    fresh = reload.asked(cluster)
    assert fresh is not None
    assert [str(prefix) for prefix in fresh.group("cloud").prefixes] == ["198.18.0.0/15"]
    # The disk would let go of hours that nobody copies; what is asked once, at the start, would not be what is told.
    for more in (
        "archive: {keep: 2d, bucket: 's3://flows'}\n",
        "cloud: {skip_interfaces: [eni-1]}\n",
        "bridge: {metrics_token: {env: TOKEN}}\n",
    ):
        path.write_text(whole + more)
        reload.on_signal()
        assert reload.asked(cluster) is None
    path.write_text(whole + "archive: {keep: 2d}\n")
    reload.on_signal()
    assert reload.asked(cluster) is not None


def test_the_last_good_version_counts_after_a_restart_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, AWS, ", services: [S3], regions: [eu-west-1]")
    path.write_text(f"{path.read_text()}bridge: {{state: {tmp_path}/state}}\n")
    good = load_cluster(path)
    Watcher(Log()).look(good)
    for broken in ("<html>", json.dumps(AWS).replace('"S3"', '"S4"'), '{"prefixes": []}'):
        (tmp_path / "list").write_text(broken)
        cluster = load_cluster(path)
        assert cluster == good
        Watcher(Log()).look(cluster)
        assert "event=prefixes_refused" in capsys.readouterr().err
        (reading,) = prefix_readings(cluster, time.time())
        assert (reading.broken, reading.entries, reading.dated) == (True, 1, good.groups[1].files[0].dated)
        (line,) = (line for line in advice(cluster) if "prefixes_from" in line)
        assert line.endswith("; its last good version is in use")
    (tmp_path / "list").write_text(json.dumps(AWS))
    assert load_cluster(path).groups[1].files[0].error == ""


def test_a_new_version_that_overlaps_another_group_is_not_taken_up_nor_after_a_restart(tmp_path: Path) -> None:
    """Who publishes a list knows nothing of our groups: it kept the bridge from starting."""
    path = written(tmp_path, "192.0.2.0/24\n")
    path.write_text(f"{path.read_text()}bridge: {{state: {tmp_path}/state}}\n")
    good = load_cluster(path)
    Watcher(Log()).look(good)
    for content in ("192.0.2.0/24\n10.1.4.0/24\n", "192.0.2.0/24\n10.0.0.0/8\n"):
        (tmp_path / "list").write_text(content)
        for _ in range(2):
            cluster = load_cluster(path)
            Watcher(Log()).look(cluster)
            assert cluster == good
        (reading,) = prefix_readings(cluster, time.time())
        assert reading.broken
        assert reading.error.endswith("expected prefixes that do not overlap")
    (tmp_path / "list").write_text("198.18.0.0/15\n")
    assert [str(one) for one in load_cluster(path).group("cloud").prefixes] == ["198.18.0.0/15"]


def test_the_last_good_version_stays_while_one_of_two_groups_needs_it(tmp_path: Path) -> None:
    """The other one could use the new version, which took its place: after that no start came up."""
    path = written(tmp_path, AWS, ", services: [S3], regions: [eu-west-1]")
    path.write_text(
        f"{path.read_text()}  compute: {{role: custom, prefixes_from: [{{file: list, services: [EC2]}}]}}\n"
        f"bridge: {{state: {tmp_path}/state}}\n"
    )
    good = load_cluster(path)
    Watcher(Log()).look(good)
    (tmp_path / "list").write_text(json.dumps(AWS).replace('"S3"', '"S4"'))
    for _ in range(2):
        cluster = load_cluster(path)
        Watcher(Log()).look(cluster)
        assert cluster == good
        assert [bool(group.files[0].error) for group in cluster.groups[1:]] == [True, False]


def test_a_file_of_which_a_group_takes_two_parts_has_two_states(tmp_path: Path) -> None:
    """Under one name the store kept the last one, and what was wrong with the first was nowhere."""
    path = written(tmp_path, AWS, ", services: [S3], regions: [eu-west-1]}, {file: list, services: [EC2]")
    path.write_text(f"{path.read_text()}bridge: {{state: {tmp_path}/state}}\n")
    Watcher(Log()).look(load_cluster(path))
    (tmp_path / "list").write_text(json.dumps(AWS).replace('"S3"', '"S4"'))
    found = {one.name: one.broken for one in prefix_readings(load_cluster(path), time.time())}
    assert found == {"cloud.list": True, "cloud.list-2": False}


def test_first_contact_skips_an_approved_group_that_says_so(tmp_path: Path) -> None:
    path = written(tmp_path, PLAIN)
    cluster = load_cluster(path)
    (rule,) = first_external_contact.build(cluster).rules
    assert "'cloud'" in rule.measures[0].query.text
    path.write_text(path.read_text().replace("approved_external,", "approved_external, first_contact: skip,"))
    (rule,) = first_external_contact.build(load_cluster(path)).rules
    assert "'cloud'" not in rule.measures[0].query.text
    assert "'external'" in rule.measures[0].query.text
