"""Writes the page of scenarios: ``python -m simulate.scenarios.reference docs/reference/scenarios.md``."""

import sys
from collections.abc import Iterator
from pathlib import Path

from cluster.reference import key_rows, table
from simulate.incidents.incident_kinds import KINDS
from simulate.scenarios.script import Script, library, load_script
from simulate.scenarios.script_fields import CHECKPOINTS, INCIDENT, JOB, SCRIPT

_INTRODUCTION = """\
# Scenarios

<!-- Written by `python -m simulate.scenarios.reference`; edit simulate/scenarios/library/*.yaml,
     simulate/scenarios/script_fields.py and simulate/incidents/incident_kinds.py instead. -->

A scenario is a short file: a cluster, job plans, incidents, a seed. It is played through the real bridge, analysis and
rules, and everything about it is known beforehand: each byte, each checkpoint, each alert that must fire and when its
evidence is complete. What must fire follows from the cluster's own thresholds; the files say it once more, and a test
compares both. Near misses are part of every file: just under a threshold, outside a window, an approved
destination, business hours.

```sh
clusterflow simulate --list                                     # the library
clusterflow simulate --scenario node-death --into-store --truth truth.json --write-cluster scenario.yaml
clusterflow backtest -c scenario.yaml --from ... --to ... --truth truth.json
clusterflow simulate --scenario node-death --spool files        # as nfacctd would have left them
clusterflow simulate --scenario template-loss                   # the part around its first incident, as packets, now
clusterflow simulate --scenario mine.yaml --into-store          # your own file
clusterflow demo --scenario wrong-mtu                           # live, with boards: its first incident in a few minutes
```

`--into-store` writes into a separate database (`scenario_NAME`, beside that of cluster.yaml) and analyses it;
boards and `clusterflow explore` work with the cluster.yaml that `--write-cluster` leaves. Scenarios have fixed dates,
so that a run is the same every time; `--seed` makes another draw.

## What is real, and what is not

- Records go into the bridge's own normaliser, aggregator, windows and rollups, with the clock of a live bridge. What is
  left out is what carries them there: packets, pmacct, files. `--spool` and packets put that back in.
- Exporters cut flows after 60 s, and a record's bytes are spread over the windows that it covers, as they would be.
- The `routine` background has few conversations, at fixed rhythms, so that a week of 64 nodes fits into a minute of
  recording. What alerts look at (volumes, peers, hours) is as it would be; the number of records is not.
- A template that is missing does not show in records: in `--into-store` and `--spool` what could not be read is lost.
  As packets, an exporter restarts with other template numbers and withholds them.
- The bridge's heartbeat is written every 30 s and the age of its exporters every minute, as by one that works off a
  backlog; the analysis' heartbeat, every 30 s.
- A bridge that is away or behind writes no readings, or late ones. What it would have written late is in the store in
  time: rules are evaluated over what is stored, whenever that was written.
- Played as packets, only the part around the first incident is sent: alerts that rest on earlier days are not owed.
"""

_WRITING = """\
## How to write one

```yaml
title: A node dies, a partner gets data
about: >
  A node dies in the sixth run. On the second night, a transfer goes to a partner.
days: 2
jobs:
  - {at: ["02:00", "08:00", "14:00", "20:00"], lasting: 20m, checkpoints: {every: 5m}}
incidents:
  - {kind: node_dropout, run: 6, after: 8m, lasting: 5m, share: 0, expect: [node_dropout]}
  - {kind: off_hours_transfer, on: 2, at: "23:30", lasting: 10m, expect: [off_hours_transfer]}
```

A faulty file is reported in full: each fault with its line, value, expectation and a hint.
What must fire follows from thresholds, off-hours, who has met whom, and earlier runs. `expect` says it once more, for
readers: if it disagrees, the file is refused. It may also name rules of your own.
`may` lists what is too close to a limit to predict, such as a node that falls by hardly more than its noise.

An alert that comes before its evidence is complete is false, and so is a second one where there is reason for one: the
file of the truth says for each alert from when (`earliest`), when (`due`), until when and how often (`most`).

What rests on history needs some: three earlier runs of the class before a node or a cohort is judged
(`thresholds.dropout_min_runs`), a day before a contact, or a network, is new (`thresholds.contact_learning`), two weeks
before the load of inference is judged (`thresholds.inference_min_weeks`). Incidents in jobs should begin on whole
minutes: records of 60 s cannot tell the seconds between.
"""


def reference() -> str:
    """Return the documentation of scenarios as Markdown."""
    scripts = [load_script(path) for path in library()]
    parts = [
        _INTRODUCTION,
        "## The library\n",
        table([["Scenario", "Cluster", "Days", "Must fire", "What happens"], *(_row(script) for script in scripts)]),
        _WRITING,
        "## Keys\n",
        table(key_rows(SCRIPT)),
        "### `jobs[]`\n",
        f"{JOB.text}\n",
        table(key_rows(JOB)),
        "### `jobs[].checkpoints`\n",
        table(key_rows(CHECKPOINTS)),
        *_kinds(),
    ]
    return "\n".join(parts)


def _row(script: Script) -> list[str]:
    rules = dict.fromkeys(rule for incident in script.incidents for rule in incident.expected)
    nodes = sum(node.gpus > 0 for node in script.cluster.nodes)
    days = (script.end - script.start) / 86_400
    near = sum(incident.is_near_miss for incident in script.incidents)
    misses = f" ({near} near miss{'es' if near > 1 else ''})" if near else ""
    fires = ", ".join(f"`{rule}`" for rule in rules) or "nothing"
    return [
        f"`{script.name}`",
        f"{nodes:,} nodes",
        f"{days:g}",
        f"{fires}{misses}",
        f"**{script.title}.** {script.about}",
    ]


def _kinds() -> Iterator[str]:
    """Yield the chapters about incidents: the keys that all have, then those of each kind."""
    first = next(iter(INCIDENT.sections.values()))
    own = {key.name for play in KINDS.values() for key in play.keys}
    shared = [row for row in key_rows(first) if row[0].strip("`") not in own]
    yield "### `incidents[]`\n"
    yield "Each has a `kind`, says when it happens, and has the keys of its kind.\n"
    yield table(shared)
    for kind, play in KINDS.items():
        yield f"#### `kind: {kind.value}`\n"
        yield f"{play.text}\n"
        if play.keys:
            rows = key_rows(INCIDENT.sections[kind.value])
            names = {key.name for key in play.keys}
            yield table([rows[0], *(row for row in rows[1:] if row[0].strip("`") in names)])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(reference(), encoding="utf-8")
