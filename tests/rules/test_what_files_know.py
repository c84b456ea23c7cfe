"""Rules that rest on files of the user: not there, or with fewer words, where there are none."""

from dataclasses import replace
from pathlib import Path

from cluster.load import load_cluster
from cluster.model import (
    EXTERNAL,
    DeclaredTransport,
    Geography,
    GroupPair,
    IdentitySettings,
    SignInFormat,
    SignInSource,
    Transport,
)
from rules.alerts.security import egress_new_asn
from rules.alerts.segmentation import unexpected_management_connection
from rules.rule import built

CLUSTER = load_cluster(Path(__file__).parent / "cluster.yaml")


def test_without_files_of_places_no_network_is_new() -> None:
    found = built(egress_new_asn.build, replace(CLUSTER, geography=Geography()))
    assert found.rules == ()
    assert [skipped.reason for skipped in found.skipped] == ["cluster.yaml has no geography"]


def test_without_groups_to_look_at_no_network_is_new() -> None:
    found = built(egress_new_asn.build, replace(CLUSTER, groups=(CLUSTER.group("users"),), nodes=(), exporters=()))
    assert found.rules == ()
    assert [skipped.subject for skipped in found.skipped] == ["the whole rule"]


def test_a_pair_that_flow_records_do_not_see_is_left_out() -> None:
    hidden = DeclaredTransport(GroupPair("training", EXTERNAL), Transport.INFINIBAND)
    found = built(egress_new_asn.build, replace(CLUSTER, transport=(hidden,)))
    assert "training" not in found.rules[0].measures[0].query.influxql
    assert [skipped.subject for skipped in found.skipped] == ["training -> external"]


def test_whoever_reads_sign_ins_is_told_where_users_stand() -> None:
    signing_in = IdentitySettings((SignInSource("vpn", SignInFormat.CSV, "vpn.csv"),))
    for cluster, is_told in ((CLUSTER, False), (replace(CLUSTER, identity=signing_in), True)):
        (rule,) = built(unexpected_management_connection.build, cluster).rules
        assert ("names the user" in dict(rule.annotations)["what_to_do"]) is is_told
