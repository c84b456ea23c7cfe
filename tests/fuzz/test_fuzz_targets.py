"""What scripts/fuzz feeds, without atheris: each target reads its own seeds, and what once broke one breaks none."""

from pathlib import Path

import pytest
from targets import TARGETS, check

PATIENCE = 30.0
"""Seconds of processor time, where others keep the processor's caches busy. What broke took minutes, or all memory."""

TWICE = b"".join(b"      a%d: &a%d {x: *a%d, y: *a%d}\n" % (n, n, n - 1, n - 1) for n in range(1, 40))
NESTED = b"".join(b"      a%d: &a%d {x: *a%d}\n" % (n, n, n - 1) for n in range(1, 2_000))

FOUND = {
    "a range that is written out to gigabytes": (
        "configuration",
        b"cluster: lab\ngroups: {a: {role: training, prefixes: [10.0.0.0/8]}}\nnodes:\n"
        b"  " + b"a" * 900 + b"{1..65536}: {group: a}\n",
    ),
    "ranges in a range": (
        "configuration",
        b"cluster: lab\ngroups: {a: {role: training, prefixes: [10.0.0.0/8]}}\nnodes:\n"
        b"  a" + b"{1..65536}" * 90 + b": {group: a}\n",
    ),
    "millions of nodes in a few lines": (
        "configuration",
        b"cluster: lab\ngroups: {a: {role: training, prefixes: [10.0.0.0/8]}}\nnodes:\n"
        + b"".join(b'  "n%dx{1..65536}": {group: a}\n' % n for n in range(300)),
    ),
    "settings that double with each line": (
        "scenario",
        b"title: t\nabout: a\ndays: 1\nsettings:\n  thresholds:\n      a0: &a0 {x: 1}\n" + TWICE,
    ),
    "settings deeper than anybody counts": (
        "scenario",
        b"title: t\nabout: a\ndays: 1\nsettings:\n  thresholds:\n      a0: &a0 {x: 1}\n" + NESTED,
    ),
    "a range that is none": (
        "scenario",
        b"title: t\nabout: a\ndays: 1\njobs: [{nodes: ['gpu-{1-4}'], at: ['04:00'], lasting: 1h}]\n",
    ),
    "a range of nodes that are not there": (
        "scenario",
        b"title: t\nabout: a\ndays: 1\njobs: [{nodes: ['x{1..65536}'], at: ['04:00'], lasting: 1h}]\n",
    ),
    "runs at each minute, with checkpoints": (
        "scenario",
        b"title: t\nabout: a\ndays: 62\njobs:\n  - lasting: 7d\n    checkpoints: {every: 30s}\n    at: ["
        + b", ".join(b"'%02d:%02d'" % divmod(minute, 60) for minute in range(1_440))
        + b"]\n",
    ),
    "a column's name for the terminal": ("names", b"\x01addr\x1b[2J,vrf\n203.0.113.9,x\n"),
    "a sign of YAML's that is not printed": ("applications", b"\x00a: b: \xe2\x80\xae\n"),
    "numbers in brackets, again and again": (
        "jobs",
        b'\x00[{"id": 1, "start": 1772352060, "nodes": "a[' + b",".join([b"1-65536"] * 1_900) + b']"}]',
    ),
    "a list of nodes, again and again": (
        "jobs",
        b'\x00[{"id": 1, "start": 1772352060, "nodes": "' + b",".join([b"a[1-60000]"] * 1_400) + b'"}]',
    ),
    "a long name in as many forms as a range counts": (
        "jobs",
        b'\x00[{"id": 1, "start": 1772352060, "nodes": "' + b"a" * 15_000 + b'[1-60000]"}]',
    ),
    "lists of nodes in a list": (
        "jobs",
        b'\x00[{"id": 1, "start": 1772352060, "nodes": ['
        + b", ".join(b'"a%d[1-60000]"' % n for n in range(900))
        + b"]}]",
    ),
    "a record of events that is a list": ("events", b"\x00[]"),
    "events that are none": ("events", b'\x00{"first": 0, "events": {"a": 1}}'),
    "a record of events without end": ("events", b"\x00" + b"[" * 5_000),
    "notes of workers that are a number": ("worker-state", b"\x000"),
    "notes of workers without end": ("worker-state", b"\x00" + b"[" * 5_000),
    "a backup whose description has no end": ("backup", b"\x02" + b"[" * 5_000),
    "jobs on all nodes of the world": (
        "jobs",
        b"\x00["
        + b", ".join(
            b'{"id": %d, "start": 1772352060, "end": 1772352070, "nodes": "n%dx[1-60000]"}' % (n, n) for n in range(190)
        )
        + b"]",
    ),
}


@pytest.mark.parametrize("name", TARGETS)
def test_seeds(name: str, tmp_path: Path) -> None:
    seeds = list(TARGETS[name].seeds())
    assert seeds
    for seed in seeds:
        check(TARGETS[name], seed, tmp_path, PATIENCE)


@pytest.mark.parametrize(("target", "data"), FOUND.values(), ids=FOUND)
def test_what_once_broke_a_reader(target: str, data: bytes, tmp_path: Path) -> None:
    check(TARGETS[target], data, tmp_path, PATIENCE)


@pytest.mark.parametrize("depth", [17, 500, 950, 5_000])
def test_nested_sign_ins(depth: int, tmp_path: Path) -> None:
    """From Python 3.12 on, the parser of JSON goes deeper than who looks into what it found."""
    kind = next(seed[:1] for seed in TARGETS["sign-ins"].seeds() if b"user.session" in seed)
    check(TARGETS["sign-ins"], kind + b"[" * depth + b"]" * depth + b"\n{}\n", tmp_path, PATIENCE)
