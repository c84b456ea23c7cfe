"""Drills: what is sent, what is refused, and that what came of it is kept."""

import json
import time
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from analysis.audit import Period
from app.errors import UserError
from cluster.load import parse_cluster
from cluster.model import EXTERNAL, NOBODYS_PREFIXES, Cluster, Role
from reporting.content import Table
from reporting.look import Look
from reporting.sections import gaps
from rules.alerts.security import exfiltration
from rules.grafana.encode import policies
from rules.registry import rules_of
from simulate.drill import Shape, plan, records
from simulate.drill_cli import drill
from simulate.packets.addresses import group_of
from store.influx import Store
from store.local_influxdb import LocalInfluxDB, free_port

LINES = """
cluster: lab
groups:
  training: {role: training, prefixes: [10.20.0.0/16]}
  models: {role: model_storage, prefixes: [10.40.0.0/24]}
  drill: {title: Drill, role: drill, prefixes: [192.0.2.0/28]}
exporters:
  drill: {address: 127.0.0.1, watched: false, sampling: 100}
notify:
  noc: {type: email, addresses: [noc@example.org]}
  pager: {type: email, addresses: [pager@example.org], severities: [critical], drills: false}
"""


def _cluster(lines: str = LINES) -> Cluster:
    return parse_cluster(lines, "cluster.yaml")


@pytest.mark.parametrize("shape", Shape)
def test_the_parts_of_a_theft_are_the_whole(shape: Shape) -> None:
    cluster = _cluster()
    what = plan(cluster, shape, 140_000_000_000)
    sent = records(what, 1_770_120_000.5)
    assert int(sent.octets.sum()) * 100 == what.stored, "the exporter samples 1 in 100"
    assert 0 <= what.stored - 140_000_000_000 < 100 * len(what.pairs)
    assert len(set(what.pairs)) == len(sent) == (100 if shape is Shape.SPLIT else 1)
    assert {group_of(cluster.groups, src) for src, _ in what.pairs} == {"drill"}
    assert {group_of(cluster.groups, dst) for _, dst in what.pairs} == {EXTERNAL}
    assert set(np.unique(sent.proto).tolist()) == ({47} if shape is Shape.TUNNEL else {6})


def test_by_default_it_is_the_smallest_artefact_that_may_not_leave() -> None:
    plain = _cluster()
    named = _cluster(LINES + "artefacts: {tiny: 1GB, llama-8b: 60GB, llama-70b: 141GB}\n")
    limit = plain.thresholds.exfil_volume
    assert plan(plain, Shape.BULK).stored > limit
    assert plan(named, Shape.BULK).stored == min(one.size for one in named.artefacts if one.size > limit)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("role: drill", "role: custom", "groups: 0 of role drill: expected one"),
        ("192.0.2.0/28", "192.0.2.0/31", "2 IPv4 addresses: expected 5"),
        ("192.0.2.0/28", "2001:db8::/64", "0 IPv4 addresses"),
        ("address: 127.0.0.1", "address: 203.0.113.99", "none has an address of this machine"),
    ],
)
def test_what_is_missing_is_said(old: str, new: str, said: str) -> None:
    assert old in LINES
    with pytest.raises(UserError, match=said):
        plan(_cluster(LINES.replace(old, new)), Shape.SPLIT)


def test_what_may_leave_is_no_drill() -> None:
    with pytest.raises(UserError, match="--size 1 GB: expected more than 50 GB"):
        plan(_cluster(), Shape.BULK, 10**9)


def test_destinations_are_in_no_group() -> None:
    cluster = _cluster()
    partner = replace(cluster.groups[0], id="partner", role=Role.APPROVED_EXTERNAL, prefixes=(NOBODYS_PREFIXES[0],))
    (pair,) = plan(replace(cluster, groups=(*cluster.groups, partner)), Shape.BULK).pairs
    assert pair[1] in NOBODYS_PREFIXES[1]
    everything = replace(partner, prefixes=(ip_network("0.0.0.0/0"),))
    with pytest.raises(UserError, match="expected one outside"):
        plan(replace(cluster, groups=(*cluster.groups, everything)), Shape.BULK)


def test_its_alert_is_marked_and_wakes_only_whom_it_may() -> None:
    cluster = _cluster()
    (rule,) = exfiltration.build(cluster).rules
    summary = dict(rule.annotations)["summary"]
    assert summary.startswith('{{ if eq $labels.src_group "drill" }}DRILL: {{ end }}')
    noc, pager = policies(cluster, rules_of(cluster))["routes"]
    assert "object_matchers" not in noc
    assert ["src_group", "!=", "drill"] in pager["object_matchers"]
    # Nobody who takes all: what no route takes goes to a mailbox that nobody has, and not to the pager.
    alone = replace(cluster, notify=tuple(replace(one, severities=()) for one in cluster.notify if not one.drills))
    assert policies(alone, rules_of(alone))["receiver"] != "pager"
    (without,) = exfiltration.build(_cluster(LINES.replace("role: drill", "role: custom"))).rules
    assert "DRILL" not in dict(without.annotations)["summary"]


def test_what_does_not_arrive_is_said_and_kept(tmp_path: Path, influxdb_v1: LocalInfluxDB, fresh_database: str) -> None:
    config = tmp_path / "cluster.yaml"
    store = f"store: {{url: '{influxdb_v1.url}', database: {fresh_database}}}\n"
    config.write_text(f"{LINES}\n{store}collector: {{netflow_port: {free_port()}}}\n")
    cluster = _cluster(config.read_text())
    database = Store(cluster.store)
    database.ensure(cluster.retentions())
    result = CliRunner().invoke(drill, ["-c", str(config), "tunnel", "--within", "1s", "--json"])
    assert result.exit_code == 1, result.output
    told = json.loads(result.stdout)
    assert (told["ok"], told["shape"], told["stored_after"]) == (False, "tunnel", None)
    assert told["trouble"].startswith("InfluxDB has not got it after 1 s")
    kept = database.frame('SELECT * FROM "1h"."drill"')
    assert kept.select("kind", "bytes", "drill_trouble").rows() == [("tunnel", told["bytes"], told["trouble"])]
    now = int(time.time()) // 60 * 60
    shown = gaps.section(Look(cluster, database, Period(now - 3600, now + 60, "1m", 60), now + 60))
    (table,) = (block for block in shown.blocks if isinstance(block, Table) and block.key == "drills")
    assert [row[1:3] for row in table.rows] == [("tunnel", told["bytes"])]
    assert str(table.rows[0][-1].text).startswith("InfluxDB has not got it")
    database.close()
