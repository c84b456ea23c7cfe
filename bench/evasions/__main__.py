"""``python -m bench.evasions docs/reference/evasions.md``: play the whole library and write the page (ten minutes)."""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median

from app.words import amount, lasting
from bench.evasions.library import NEAR_MISSES, THEFTS
from bench.evasions.play import Outcome, play
from bench.evasions.scene import DAY, DAYS, MODEL, cluster_of, ordinary, put
from store.local_influxdb import LocalInfluxDB

SEEDS = (101, 102)
"""Of the usual days, of the minute at which a theft begins, and of sampling."""

_HEAD = """# Evasions

Written by `python -m bench.evasions docs/reference/evasions.md`: do not edit. Thefts of one model ({model}) by whoever
read the thresholds, and days that only look like one, beside three weeks of ordinary traffic to the outside, in a real
InfluxDB, judged by the detectors with default thresholds, not by whole pipelines: seconds of ingest and of Grafana come
on top ([scorecard](scorecard.md)). *Told* is an incident of the critical rule
[`exfiltration`](../runbook.md#exfiltration); of warnings only odd ways out are tried, without `steady` (no durations
are written) and, as this cluster names no services, without DNS and QUIC. Inside traffic (a roll-out of models,
a backup, a re-shard of checkpoints) is in no sum: it leaves nothing. Partners' days differ by a fifth: near misses of
35 to 40 GB on top of one are close to the limit (50 GB a day), and false once in a while. *Gone* is what was seen: of
sampled thefts an estimate.
"""

_TAIL = """
## Real recordings

`scripts/bench labelled FILE...` plays Zeek's conn.log or Argus' binetflow files, which stay yours, through bridge,
analysis and a backtest of all rules with an InfluxDB of its own, first contacts without a day of learning. Two
labelled ones could be had, from StratosphereLinuxIPS' `dataset/` at 12f4fd2 (repository: GPL-2.0), both of one machine:
CTU-SME-11 (test18, RemcosRAT, 8 minutes, 492,993 B) and test5 (malware, an hour, 2.8 MB). Where the first tried to send
stolen data (719 connections, none accepted) was named by `first_external_contact`, once, and so were six addresses
without that label; of the second's six alerts four name labelled pairs: a first contact tells strangers apart, not
thieves. No other rule on conversations fired. Neither holds bulk, so they say nothing of the table above. RITA's
day with dnscat2 and a beacon could not be had: its conn.log is not in the copy we can read.

## Known to get through

- **A path that only exporters with `counts: false` see**, or others than a pair's `authority`: its bytes count nowhere.
  *Coverage* calls such a pair partly seen; no rule does. Have each way out counted at one device at least.
- **A forged source in the name of networks that usually pass here.** What a public address answers past your
  exporters, and what partners send each other there, is learnt as people's days are: a model is beyond that within a
  day, unless such traffic is many times as large. Filter sources at the edge (BCP 38).
- **A destination inside a listed prefix that stands elsewhere** (an unused subnet, routed out of the house): inside is
  where cluster.yaml says, and multicast stays inside.
- **The first nine days.** Until then nobody knows what is usual: forged answers, and what partners send each other
  through your exporters, are learnt, not judged. What groups that hold weights send to unapproved addresses is judged
  from the first minute.
- **One conversation over two exporters that are compared** (one of them without `interfaces`, and no `authority`): what
  passes the other one counts as soon as it cannot be what the better one saw: *Coverage* says `saw more`. A sender with
  two ways out who sends a fifth of it past the better exporter still hides the rest (of samples: also what is less than
  a dozen in a quarter of an hour), and so does one at an exporter whose clock is not believed. List the `interfaces` of
  every device at the edge: then each packet counts where it enters, whatever else sends records.
- **Interfaces whose flow export is turned off**, where the device goes on exporting others: it is not silent. Only
  sFlow's counters tell (`unseen_bytes`); NetFlow has none.
- **While the exporter at the way out is silent**: `exporter_silent` fires, and what left meanwhile is nowhere.
- **Beneath an exfiltration that goes on**: while one group's alert is open day after day, less of another group is
  added to it, and is no alert of its own. Leave none open: list what belongs there, or give its group `exfil_scale`.
- **A device that samples very coarsely**, on whatever path: the sums wait until what left at least is too much. At 1
  packet in a million, 50 GB a day are told from 67 GB on, at 1 in 16 million from 150 GB. No rate lets out more than
  three times a limit.
- **Frames that are not IP**, and what is carried out by hand: flow records are of IP packets.
- **In a drill's name to where drills go**: the group `drill` may send to 198.51.100.0/24, 203.0.113.0/24 and
  198.18.0.0/15. No route leads there from the Internet; drop them at the edge."""


def main() -> int:
    """Play and write."""
    parser = argparse.ArgumentParser(prog="python -m bench.evasions", description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    given = parser.parse_args()
    found: dict[str, list[Outcome]] = {}
    with ProcessPoolExecutor() as pool:
        for outcomes in pool.map(_of_seed, given.seeds):
            for name, outcome in outcomes.items():
                found.setdefault(name, []).append(outcome)
    given.page.write_text("".join(f"{line}\n" for line in page(found)), encoding="utf-8")
    return 0


def _of_seed(seed: int) -> dict[str, Outcome]:
    """Play everything beside the days of one seed."""
    found = {}
    every = {**THEFTS, **NEAR_MISSES}
    with tempfile.TemporaryDirectory() as folder, LocalInfluxDB(Path(folder)) as influxdb:
        for busy in sorted({one.busy for one in every.values()}):
            cluster = cluster_of(influxdb.url, f"evasions_{busy:g}".replace(".", "_"))
            with put(cluster, ordinary(busy=busy, seed=seed, days=DAYS)) as store:
                for name, theft in every.items():
                    if theft.busy == busy:
                        found[name] = play(cluster, store, theft, seed)
                        sys.stderr.write(f"seed {seed}: {name}: {_said(found[name])}\n")
    return found


def page(found: Mapping[str, Sequence[Outcome]]) -> Iterator[str]:
    """Yield the lines of the page: outcomes by the name of the evasion."""
    yield _HEAD.format(model=amount(MODEL))
    thefts = {name: found[name] for name in THEFTS}
    within = [outcome for name, outcomes in thefts.items() if not THEFTS[name].is_slow for outcome in outcomes]
    told = [one for one in within if one.alerts]
    gone = [one.gone for one in told]
    seeds = len(next(iter(found.values())))
    yield (
        f"**{len(told)} of {len(within)} thefts within a day told** ({len(THEFTS)} thefts, {seeds} seeds each); "
        f"gone at the first alert: median {amount(median(gone))}, at worst {amount(max(gone))}."
    )
    twice = [name for name, outcomes in thefts.items() if any(one.alerts > 1 for one in outcomes)]
    near = [outcome for name in NEAR_MISSES for outcome in found[name]]
    alerts, warned = sum(one.alerts for one in near), sum(bool(one.warned) for one in near)
    days = sum(max(NEAR_MISSES[name].seconds, DAY) * len(found[name]) for name in NEAR_MISSES) / DAY
    yield f"More than one alert for one theft: {'; '.join(twice) or 'none'}."
    yield ""
    yield f"**{alerts} false alerts in {days:.0f} days that only look like one**, {warned} with a warning."
    yield ""
    missed = [name for name, outcomes in thefts.items() if not all(one.alerts for one in outcomes)]
    yield f"Not told: {'; '.join(missed)}." if missed else "Not told: none."
    yield ""
    yield "| theft | takes | told | by the sum | after (median) | gone (worst) | warnings besides |"
    yield "|---|---|---:|---|---:|---:|---|"
    for name, outcomes in thefts.items():
        yield f"| {name} | {lasting(THEFTS[name].seconds)} | {_row(outcomes)} |"
    yield ""
    yield "| near miss | sent | false alerts | warnings |"
    yield "|---|---:|---:|---|"
    for name, theft in NEAR_MISSES.items():
        volume = amount(theft.volume) if theft.pairs else "as usual"
        wrong = sum(one.alerts for one in found[name])
        yield f"| {name} | {volume} | {f'**{wrong}**' if wrong else 0} | {_warnings(found[name])} |"
    yield _TAIL


def _row(outcomes: Sequence[Outcome]) -> str:
    told = [one for one in outcomes if one.alerts]
    share = f"{len(told)} of {len(outcomes)}"
    if not told:
        return f"**{share}** | | | | {_warnings(outcomes)}"
    kinds = ", ".join(f"`{kind}`" for kind in dict.fromkeys(one.kind for one in told))
    after, gone = lasting(int(median(one.after for one in told))), amount(max(one.gone for one in told))
    if len(told) < len(outcomes):
        share = f"**{share}**"
    return f"{share} | {kinds} | {after} | {gone} | {_warnings(outcomes)}"


def _warnings(outcomes: Sequence[Outcome]) -> str:
    return ", ".join(f"`{kind}`" for kind in sorted({kind for one in outcomes for kind in one.warned}))


def _said(outcome: Outcome) -> str:
    if not outcome.alerts:
        return "nothing told"
    return f"{outcome.kind}, {amount(outcome.gone)} gone after {lasting(outcome.after)}, {outcome.alerts} alerts"


if __name__ == "__main__":
    sys.exit(main())
