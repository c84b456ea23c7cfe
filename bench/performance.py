"""Writes docs/reference/performance.md from what the benches printed: tables, targets, sizes computed from unit costs.

performance.json beside it keeps the newest line of each kind; ``scripts/bench report FILES`` adds new ones.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bench.boards import BOARD, BUDGETS, PANEL, RULES
from bench.sizing import sizing

FIGURES = Path("docs/reference/performance.json")
PAGE = Path("docs/reference/performance.md")

Line = dict[str, Any]

_KEYS: dict[str, tuple[str, ...]] = {
    "memory": ("format",),
    "result": ("format",),
    "cloud": ("aggregation",),
    "enrichment": (),
    "once": (),
    "enrichment_part": ("part",),
    "live": ("rate",),
    "live_shared": ("rate", "daemons"),
    "print_cost": ("variant",),
    "live_kafka": ("workers", "rate"),
    "soak": (),
    "relay": (),
    "kafka": ("workers",),
    "boards_fill": ("nodes",),
    "store": ("server", "exports"),
    "board": ("board", "nodes", "span"),
    "rules": ("nodes",),
    "archive": ("records", "untold"),
    "archive_cost": ("through",),
    "archive_question": ("records", "untold", "question"),
    "peer": ("peer", "rate"),
    "peer_versions": (),
    "rerun": ("nodes",),
    "tick": ("nodes",),
    "tick_whole": (),
    "tick_many": ("nodes", "jobs"),
}
"""Steps that the page shows, and which of their fields tell one line from another."""

_WHO = {False: "cluster.yaml", True: "the archive"}
"""Of two exporters that saw the same packets; by `untold`."""
_DROPPED = ("memory_series", "run")
_SPANS = ("1h", "24h", "7d")
_MACHINE = "machine"
_LATE_SECONDS = 15
"""From a record to the first query that finds it, beyond nfacctd's print interval."""
_BUDGET_NODES = 4096
_DAY_AGAIN = {1024: 60, 4096: 240}
"""Seconds in which a day of so many nodes is to be judged again."""
_MOST_MIB = 954
"""As the kernel counts: 1 GB."""
_DEARER = 1.1
"""A flow may cost so many times what it cost half an hour before."""

_HEAD = """\
# Performance

Written by `scripts/bench report` from [performance.json](performance.json), which the benches printed: do not edit.
Every figure is of this repository's own code on one machine; a bench's line says what else ran there. Measure your own
with `scripts/bench`: one line of JSON a measurement, `--help` for sizes.
"""


def merged(known: Sequence[Line], printed: Iterable[str]) -> list[Line]:
    """Return the known lines with those of a bench's output in place of older ones; each bears its machine.

    Args:
        known: lines of performance.json.
        printed: what a bench printed, a line each; what is no JSON object or not shown is left out.
    """
    found = {_key(one): one for one in known}
    machine: Line = {}
    for text in printed:
        if not text.startswith("{"):
            continue
        one: Line = json.loads(text)
        if one["step"] == _MACHINE:
            machine = {name: value for name, value in one.items() if name != "step"}
        elif one["step"] in _KEYS:
            kept = {name: value for name, value in one.items() if name not in _DROPPED}
            found[_key(kept)] = kept | {_MACHINE: machine}
    return [found[key] for key in sorted(found, key=_order)]


def _key(one: Line) -> tuple[Any, ...]:
    return one["step"], *(one[name] for name in _KEYS[one["step"]])


def _order(key: tuple[Any, ...]) -> tuple[Any, ...]:
    # Boards in the order in which they were measured; everything else by its numbers.
    return (list(_KEYS).index(key[0]), *(f"{part:012}" if isinstance(part, int) else str(part) for part in key[1:]))


@dataclass(frozen=True, slots=True)
class Book:
    """The lines of performance.json."""

    lines: tuple[Line, ...]

    def of(self, step: str) -> list[Line]:
        """Return the lines of a step."""
        return [one for one in self.lines if one["step"] == step]

    def one(self, step: str, **values: object) -> Line:
        """Return the line of a step with these values."""
        return next(one for one in self.of(step) if all(one.get(name) == value for name, value in values.items()))


def page(lines: Sequence[Line]) -> str:
    """Return the page's text."""
    book = Book(tuple(lines))
    parts = [
        _HEAD,
        *_targets(book),
        *_memory(book),
        *_cloud(book),
        *_enrichment(book),
        *_once(book),
        *_live(book),
        *_shared(book),
        *_print_cost(book),
        *_soak(book),
        *_kafka(book),
    ]
    parts += [*_boards(book), *_archive(book), *_analysis(book), *_peers(book), *_stores(book), *sizing(book.lines)]
    return "\n".join(parts).rstrip() + "\n"


# -- tables ----------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table, with an empty line behind it."""
    text = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    text += [f"| {' | '.join(map(str, row))} |" for row in rows]
    return "\n".join(text) + "\n"


def figures(lines: Iterable[Line], columns: Mapping[str, str | Callable[[Line], object]]) -> str:
    """Return a table with a row a line: each column by its name, and a format of the line's fields or a function."""
    return table(
        tuple(columns),
        ([of.format(**one) if isinstance(of, str) else of(one) for of in columns.values()] for one in lines),
    )


def _measured_on(lines: Sequence[Line]) -> str:
    """Say on what lines were measured, each machine once."""
    machines: list[Line] = [one[_MACHINE] for one in lines if one[_MACHINE]]
    texts = dict.fromkeys(
        f"{one['cores']} cores ({one['processor']}), {one['memory_gib']} GiB, Python {one['python']}, polars "
        f"{one['polars']}, {', '.join(str(one[name]) for name in ('influxd', 'nfacctd') if one.get(name))}"
        for one in machines
    )
    most = max(one["load"] for one in machines)
    busy = f" Load of the machine before it began: up to {most}: too low figures." if most > 1 else ""
    return f"*Measured on {'; '.join(texts)}.{busy}*\n"


_Part = Callable[[Book], Iterator[str]]


def _section(title: str) -> Callable[[_Part], _Part]:
    """Put a title before a part of the page."""

    def decorated(part: _Part) -> _Part:
        def titled(book: Book) -> Iterator[str]:
            yield f"## {title}\n"
            yield from part(book)

        return titled

    return decorated


def _millions(rate: float) -> str:
    return f"{rate / 1e6:.2f} M" if rate >= 1e6 else f"{rate / 1e3:,.0f} k"


def _targets(book: Book) -> Iterator[str]:
    yield "## Targets\n"
    rows = [*_target_rows(book)]
    yield table(("what", "target", "measured", "met"), rows)


_Row = tuple[str, str, str, str]


def row(what: str, target: str, measured: str, *, met: bool) -> _Row:
    """Return a row of the targets."""
    return what, target, measured, "yes" if met else "**no**"


def _analysis_rows(book: Book) -> Iterator[_Row]:
    for nodes, seconds in _DAY_AGAIN.items():
        again = book.one("rerun", nodes=nodes, hours=24.0)
        met = again["seconds"] <= seconds and again["peak_mib"] < _MOST_MIB
        text = f"{again['seconds']:.0f} s, {again['peak_mib']} MiB"
        yield row(f"a day of {nodes:,} nodes judged again", f"{seconds} s, 1 GB", text, met=met)
    tick = book.one("tick", nodes=_BUDGET_NODES)
    text = f"{tick['median']:.2f} s, {tick['slowest']:.2f} s at most"
    yield row(f"a live round of {_BUDGET_NODES:,} nodes", "1 s", text, met=tick["slowest"] <= 1)


def _target_rows(book: Book) -> Iterator[_Row]:
    live, soak = book.one("live", rate=200_000), book.one("soak")
    rate = book.one("memory", format="csv")["flows_per_second"]
    yield row("CSV to points", "1 M flows/s", f"{_millions(rate)} flows/s", met=rate >= 1e6)
    for kind, most in (("csv", 1.5), ("json", 2.0)):
        ratio = book.one("memory", format=kind)["ratio_to_polars_read"]
        yield row(f"{kind.upper()}, against a bare polars read", f"{most} x", f"{ratio} x", met=ratio <= most)
    share = book.one("enrichment")["ratio_of_processor_time"]
    without = "0.8 of the speed without"
    yield row("all enrichment on", without, f"{share:.2f} of the speed without", met=share >= 0.8)
    for case, where in (("apart", "none does"), ("threefold", "three see all")):
        times = book.one("once")[f"times_{case}"]
        what = f"finding what several exporters saw, where {where}"
        yield row(what, "1.1 x", f"{times} x the processor time", met=times <= 1.1)
    lost = _lost_records(live)
    is_whole = live["exact"] and lost == 0
    measured = "nothing, every byte stored" if is_whole else f"{lost:,} of {live['sent']:,}"
    yield row("lost at 200,000 flows/s on the wire", "nothing", measured, met=is_whole)
    late = live["delay"]["max"] - live["refresh_seconds"]
    what = "record to query, beyond nfacctd's print interval"
    yield row(what, f"{_LATE_SECONDS} s", f"{late:.1f} s at most", met=late <= _LATE_SECONDS)
    thirds = {name: one for name, one in soak["memory_thirds"].items() if name != "sender"}
    grown = ", ".join(name for name, one in thirds.items() if not one["flat"])
    text = f"{soak['seconds'] / 60:.0f} min: " + (f"{grown} grew" if grown else "flat")
    yield row("memory over time", "flat", text, met=not grown)
    dearer = {name: one["cpu_last_to_first"] for name, one in thirds.items() if one["cpu_last_to_first"]}
    text = ", ".join(f"{name} {ratio}" for name, ratio in dearer.items())
    what = "CPU of the soak's last third over its first"
    yield row(what, "flat", text, met=max(dearer.values()) <= _DEARER)
    for what, one in (("the soak", soak), ("at 200,000 flows/s", live)):
        parts = {name: part for name, part in one["processes"].items() if name != "sender"}
        peaks = {name: part.get("largest_mib", part["peak_mib"]) for name, part in parts.items()}
        text = ", ".join(f"{name} {value} MiB" for name, value in peaks.items())
        yield row(f"memory of each process, {what}", "1 GB", text, met=max(peaks.values()) < _MOST_MIB)
    for untold, who in _WHO.items():
        asked = (one for one in book.of("archive_question") if one["question"] == "one address, 24 h")
        address = max((one for one in asked if one["untold"] is untold), key=lambda one: int(one["records"]))
        yield row(
            f"one address over 24 h of the flow archive, cold / warm; {who} says who counts",
            "2 / 0.5 s, 500 MB of 100 M records",
            f"{_seconds(address)} s, {address['peak_mib']} MiB of {address['records'] / 1e6:.0f} M",
            met=address["records"] >= 1e8
            and address["cold_seconds"] <= 2
            and address["warm_seconds"] <= 0.5
            and address["peak_mib"] < 477,
        )
    for one in book.of("archive_cost"):
        ratio = one["ratio_of_processor_time"]
        yield row(f"{one['through']} with the flow archive", without, f"{ratio} of it", met=ratio >= 0.8)
    rate = book.one("relay")["flows_per_second"]
    yield row("relay to Kafka", "500 k flows/s", f"{_millions(rate)} flows/s", met=rate >= 5e5)
    yield from _analysis_rows(book)
    boards, rules = ([one for one in book.of(step) if one["nodes"] == _BUDGET_NODES] for step in ("board", "rules"))
    for budget, most in BUDGETS.items():
        took = {
            PANEL: [one["panel_max"] for one in boards],
            BOARD: [one["warm_seconds"] for one in boards],
            RULES: [one["seconds"] for one in rules],
        }.get(budget, [one["warm_seconds"] for one in boards if one["board"] == budget])
        what = f"{budget}, warm, {_BUDGET_NODES:,} nodes"
        yield row(what, f"{most:g} s", f"{max(took):.2f} s at most", met=max(took) <= most)


@_section("Files to points")
def _memory(book: Book) -> Iterator[str]:
    lines = [*book.of("memory"), *book.of("result")]
    yield (
        "The bridge reads spool files to their end, checkpoint included: into line protocol that nobody keeps,\n"
        "and into InfluxDB on the same cores. Beside it, in the same run, polars alone reads the same files.\n"
    )
    yield figures(
        lines,
        {
            "format": "{format}",
            "to": lambda one: "memory" if one["step"] == "memory" else "InfluxDB",
            "flow records": "{flows:,}",
            "flows/s": "{flows_per_second:,}",
            "times a bare read": "{ratio_to_polars_read}",
            "CPU a flow": lambda one: f"{one['cpu_us_a_flow']} µs" if "cpu_us_a_flow" in one else "",
            "peak memory": lambda one: f"{one.get('peak_mib') or one.get('bridge_peak_mib')} MiB",
        },
    )
    yield _measured_on(lines)


@_section("Flow logs of a cloud")
def _cloud(book: Book) -> Iterator[str]:
    lines = book.of("cloud")
    yield (
        "AWS VPC flow logs of 512 nodes, both ends of each flow, read once as `ingest --once` does, to points that\n"
        "nobody keeps: `scripts/bench cloud`. Their bytes were those that were sent, each flow once. Memory holds the\n"
        "windows of `bridge.lateness` (20 minutes) and `bridge.grace`, not all of the time that the logs cover.\n"
    )
    yield figures(
        lines,
        {
            "aggregation": "{aggregation} s",
            "lines": "{lines:,}",
            "of": "{hours} h",
            "lines/s": "{lines_per_second:,}",
            "CPU a line": "{cpu_us_a_line} µs",
            "peak memory": "{peak_mib:,} MiB",
        },
    )
    yield _measured_on(lines)


@_section("Enrichment")
def _enrichment(book: Book) -> Iterator[str]:
    (whole,), parts = book.of("enrichment"), book.of("enrichment_part")
    yield (
        f"{whole['flows']:,} flow records to points in memory, one in ten to an address outside, without lists and\n"
        "with them in the same run: what is left of the speed, by processor time (which other work on the machine\n"
        "changes less) and by the clock. Reading the lists is beside it: a bridge reads them as it starts, and in a\n"
        "thread of its own when they change.\n"
    )
    yield figures(
        [*parts, whole],
        {
            "lists": lambda one: one.get("part", "all of them").replace("_", " "),
            "of the speed without, by processor time": "{ratio_of_processor_time:.2f}",
            "by the clock": "{ratio_on_to_off:.2f}",
            "flows/s": "{flows_per_second:,}",
            "to read them": "{reading_cpu_seconds:.1f} s of CPU",
            "peak memory": "{peak_mib} MiB",
        },
    )
    yield _measured_on([whole])


@_section("Every byte once")
def _once(book: Book) -> Iterator[str]:
    (one,) = book.of("once")
    yield (
        f"{one['flows']:,} flow records of {one['exporters']} exporters to points in memory. Where cluster.yaml says\n"
        "nothing of who counts, and it must be found what several of them saw, the bridge takes so many times the\n"
        "processor time of one that `authority` has count all:\n\n"
        f"- {one['times_apart']:.2f} where each conversation is at one exporter. A record is kept for a second one\n"
        "  that may come: writing these to the checkpoint is half of it.\n"
        f"- {one['times_authority']:.2f} with the simulator's traffic, of which two switches see a quarter\n"
        f"  ({one['times_described']:.2f} of one that knows all interfaces).\n"
        f"- {one['times_threefold']:.2f} where three exporters see everything: each record is compared with theirs.\n"
        "  Live it is more: each flush looks again at what these conversations had in the minutes before. Lines of\n"
        "  `authority` save that: `clusterflow suggest` prints them.\n"
    )
    yield _measured_on([one])


@_section("From the wire to a query")
def _live(book: Book) -> Iterator[str]:
    lines = book.of("live")
    yield (
        "Real NetFlow v5, v9 and IPFIX datagrams of a cluster's exporters, sent to nfacctd at a steady rate, with\n"
        "everything on the same cores. *Delay* is from sending a record to the first query that finds it; nfacctd\n"
        f"prints every {lines[0]['refresh_seconds']} s. *Exact*: bytes, packets and flows of every group pair are\n"
        "those sent. *Others' cores* are those of the bench itself and of other work on the machine.\n"
    )
    yield from _without_writers(lines)
    yield figures(
        lines,
        {
            "flows/s": "{rate:,}",
            "sent": "{sent:,} in {seconds:.0f} s",
            "lost: kernel (datagrams)": "{lost_kernel_datagrams:,}",
            "nfacctd": lambda one: f"{_lost_records(one):,}",
            "bridge": lambda one: (
                "0" if one["stored_bytes"] == one["sent_bytes"] or one["sent"] != one["printed"] else "**some**"
            ),
            "exact": _exact,
            "delay p50 / p95 / max": _delay,
            "others' cores": "{other_cores}",
        },
    )
    yield "CPU, in cores while sending, and memory at its peak, of all processes of a part together:\n"
    names = [name for name in ("sender", "nfacctd", "bridge", "influxd") if name in lines[0]["processes"]]
    yield figures(lines, {"flows/s": "{rate:,}", **_costs(names)})
    yield from _shortage(lines)
    yield _measured_on(lines)


def _without_writers(lines: Sequence[Line]) -> Iterator[str]:
    if not all(one.get("writers_counted") for one in lines):
        yield "These runs left out nfacctd's writers, half of its CPU. As root, the bench counts them now.\n"


def _shortage(lines: Sequence[Line]) -> Iterator[str]:
    """Say what a rate that came late would have needed, by what a flow costs at the fastest rate that was in time."""
    in_time = [one for one in lines if (one["delay"]["max"] or math.inf) - one["refresh_seconds"] <= _LATE_SECONDS]
    late = [one for one in lines if one not in in_time]
    if not in_time or not late:
        return
    best = max(in_time, key=lambda one: int(one["rate"]))
    cores = sum(part["cores"] for part in best["processes"].values()) + best["other_cores"]
    for one in late:
        needed = cores * one["rate"] / best["rate"]
        yield (
            f"At {best['rate']:,} flows/s everything together, sender and writers included, takes "
            f"{cores / best['rate'] * 1e6:.1f} µs of CPU a flow. At that\ncost {one['rate']:,} flows/s need "
            f"{needed:.1f} cores; where there are fewer, records wait: none is lost, all are late.\n"
        )


@_section("Several nfacctd")
def _shared(book: Book) -> Iterator[str]:
    # scripts/bench live --daemons 1,2 --rate 200000,400000
    lines = book.of("live_shared")
    yield (
        "The same with so many nfacctd at one port (`collector.netflow_daemons`), in one run; *sent* is what the\n"
        "sender reached beside all others on these cores.\n"
    )
    yield from _without_writers(lines)
    yield figures(
        lines,
        {
            "flows/s asked / sent": "{rate:,} / {achieved_rate:,}",
            "nfacctd": "{daemons}",
            "lost: kernel (datagrams)": "{lost_kernel_datagrams:,}",
            "in their queues (records)": lambda one: f"{_lost_records(one):,} of {one['sent']:,}",
            "exact": _exact,
            "delay p50 / p95 / max": _delay,
            "CPU a flow": "{processes[nfacctd][cpu_us_a_flow]:.2f} µs",
            "memory, all of them": "{processes[nfacctd][peak_mib]} MiB",
        },
    )
    yield _measured_on(lines)


@_section("Inside nfacctd")
def _print_cost(book: Book) -> Iterator[str]:
    # As it is first, then the cheapest.
    lines = sorted(book.of("print_cost"), key=lambda one: (not one["variant"].startswith("as "), one["us"]))
    yield (
        f"`scripts/bench nfacctd`: µs of CPU a flow at {lines[0]['rate']:,} flows/s, counted by a control group, with\n"
        "other settings in the same run. *Core* receives and decodes, the *plugin* keeps records and starts a\n"
        "*writer* each second that prints them. The plugin fills its core first. What prints more or fewer records\n"
        "than were sent is not exact; columns that are dropped are ones that the bridge needs. On a busy machine\n"
        "differences of a tenth are other work's.\n"
    )
    yield figures(
        lines,
        {
            "setting": "{variant}",
            "core": "{core_us:.2f}",
            "plugin": "{plugin_us:.2f}",
            "writers": "{writers_us:.2f}",
            "all": "{us:.2f}",
            "bytes a record": lambda one: one["bytes_a_record"] or "",
            "printed / sent": lambda one: f"{one['printed'] / one['sent']:.2f}",
        },
    )
    yield _measured_on(lines)


def _lost_records(one: Line) -> int:
    """Return the records that nfacctd lost: none where all totals are exact.

    A marked record of the delays that is still on its way when its log is read would count as one lost.
    """
    return 0 if one["exact"] else max(one["sent"] - one["printed"], 0)


def _exact(one: Line) -> str:
    return "yes" if one["exact"] else "**no**"


def _costs(parts: Iterable[str]) -> dict[str, str]:
    """Return the columns with cores and memory of parts of the pipeline."""
    return {name: f"{{processes[{name}][cores]:.2f}}, {{processes[{name}][peak_mib]}} MiB" for name in parts}


def _delay(one: Line) -> str:
    delay = one["delay"]
    return " / ".join("-" if delay[name] is None else f"{delay[name]:.1f} s" for name in ("p50", "p95", "max"))


@_section("Soak")
def _soak(book: Book) -> Iterator[str]:
    # scripts/bench soak --for 30m --log docs/reference/soak.log
    (one,) = book.of("soak")
    yield (
        f"{one['rate']:,} flows/s for {one['seconds'] / 60:.0f} min: {one['sent']:,} sent, "
        f"{_lost_records(one):,} lost, totals {'exact' if one['exact'] else '**not exact**'}; "
        f"delay {_delay(one)} (p50 / p95 / max).\n"
        "Pages of files (programs; all data that InfluxDB has written, which it maps) are the kernel's cache: they\n"
        "stand apart. In the first third caches fill; *flat*: the last third's median is at most 1.1 times the\n"
        "middle's. Every 10 s: [soak.log](soak.log).\n"
    )
    yield figures(
        [{"name": name, **one["processes"][name], **third} for name, third in one["memory_thirds"].items()],
        {
            "process": "{name}",
            "median memory, first third": "{first_third_mib} MiB",
            "middle": "{middle_third_mib} MiB",
            "last": "{last_third_mib} MiB",
            "flat": lambda third: "yes" if third["flat"] else "**no**",
            "files mapped": "{mapped_mib} MiB",
            "cores": "{cores}",
            "last third / first": lambda third: third.get("cpu_last_to_first") or "",
        },
    )
    yield _measured_on([one])


@_section("Through Kafka")
def _kafka(book: Book) -> Iterator[str]:
    (relay,), workers = book.of("relay"), book.of("kafka")
    yield (
        f"The relay sends {relay['flows']:,} flow records from a spool into a topic: "
        f"{relay['flows_per_second']:,} flows/s\n({relay['cpu_seconds'] / relay['flows'] * 1e6:.2f} µs of CPU a flow). "
        "Workers that start new read them all, into an InfluxDB\non the same cores as broker and workers; start and "
        "joining the group are in the time:\n"
    )
    yield figures(
        workers,
        {
            "workers": "{workers}",
            "partitions": "{partitions}",
            "flows/s": "{flows_per_second:,}",
            "CPU of workers a flow": "{cpu_us_a_flow} µs",
            "memory of each, at most": lambda one: f"{_of_workers(one, 'peak_mib', max)} MiB",
            "exact": _exact,
        },
    )
    yield _measured_on([relay, *workers])
    lines = book.of("live_kafka")
    yield (
        "From the wire through all of it, on the same cores: sender, nfacctd, relay, a broker, workers, InfluxDB.\n"
        "*Lost*: datagrams in the kernel, records in nfacctd, flows that are not in the store.\n"
    )
    yield figures(
        lines,
        {
            "workers": "{workers}",
            "flows/s": "{rate:,}",
            "sent": "{sent:,} in {seconds:.0f} s",
            "lost": lambda one: " / ".join(f"{count:,}" for count in _losses(one)),
            "exact": _exact,
            "delay p50 / p95 / max": _delay,
            "CPU: workers": lambda one: (
                f"{_of_workers(one, 'cores', sum):.2f}, {_of_workers(one, 'peak_mib', max)} MiB each"
            ),
            **_costs(("nfacctd", "relay", "kafka", "influxd")),
        },
    )
    yield _measured_on(lines)


def _of_workers(one: Line, field: str, together: Callable[[Iterable[float]], float]) -> float:
    """Return a figure of all workers of a line, their sum or the largest."""
    return together(part[field] for name, part in one["processes"].items() if name.startswith("worker-"))


def _losses(one: Line) -> tuple[int, int, int]:
    """Return the datagrams lost by the kernel, the records lost by nfacctd, and the flows that the store lacks.

    Of a flow that several exporters report, one report counts as a flow: there are more records than flows.
    """
    missing = max(one["sent_flows"] - one["stored_flows"], 0)
    return one["lost_kernel_datagrams"], _lost_records(one), missing


@_section("Boards")
def _boards(book: Book) -> Iterator[str]:
    fills, asked = book.of("boards_fill"), book.of("board")
    yield (
        "All queries of a board, one after the other, with everything chosen; *cold* is a new InfluxDB with an\n"
        "empty page cache. Series and points were written straight into the store, as bridge and analysis would;\n"
        "the boards of 4,096 nodes were asked of a later store, in which what has thousands of series is as long as\n"
        "boards read it (15 min of 10 s, 2 h of 1 min, verdicts on nodes 24 h):\n"
    )
    yield figures(
        fills,
        {
            "nodes": "{nodes:,}",
            "filled": lambda one: "; ".join(one["filled"].values()),
            "points": "{points:,}",
            "series": "{series_cardinality:,}",
            "on disk": lambda one: f"{one['disk_bytes'] / 1e6:,.0f} MB",
            "bytes a point": "{bytes_a_point}",
        },
    )
    spans = list(dict.fromkeys((one["nodes"], one["span"]) for one in sorted(asked, key=_span_order)))
    yield (
        "Seconds, cold / warm: cold by the clock; warm too, or of InfluxDB's processor time where that is less, as\n"
        "on a machine with other work:\n"
    )
    yield table(
        ("board", *(f"{nodes:,} nodes, {span}" for nodes, span in spans)),
        (
            (board, *(_seconds(book.one("board", board=board, nodes=nodes, span=span)) for nodes, span in spans))
            for board in dict.fromkeys(one["board"] for one in asked)
        ),
    )
    slow = [(one, panel) for one in sorted(asked, key=_span_order) for panel in one.get("slow", [])]
    if slow:
        yield "Panels that take longer than a second, warm:\n"
        yield table(
            ("board", "nodes", "range", "panel", "seconds"),
            ((one["board"], f"{one['nodes']:,}", one["span"], panel[0], panel[1]) for one, panel in slow),
        )
    yield (
        "Everything that all rules ask, at one moment; and what that takes of a core for good, with each asked as "
        "often as it is: every 10 s, each minute where it looks at minutes or days:\n"
    )
    yield figures(
        book.of("rules"),
        {
            "nodes": "{nodes:,}",
            "rules": "{rules}",
            "seconds": "{seconds}",
            "of a core": "{of_a_core:.0%}",
            "slowest": "{slowest}, {slowest_seconds} s",
        },
    )
    yield _measured_on([*fills, *asked])


def _span_order(one: Line) -> tuple[int, int]:
    unit = {"h": 1, "d": 24}
    return one["nodes"], int(one["span"][:-1]) * unit.get(one["span"][-1], 0)


def _seconds(one: Line) -> str:
    cold = "-" if one["cold_seconds"] is None else f"{one['cold_seconds']:.2f}"
    return f"{cold} / {one['warm_seconds']:.2f}"


@_section("Analysis")
def _analysis(book: Book) -> Iterator[str]:
    lines = [again | {"round": tick} for again in book.of("rerun") if (tick := book.one("tick", nodes=again["nodes"]))]
    yield (
        "A job and earlier runs of its class, judged again from the store by a process of its own; then live rounds\n"
        "at its end: `scripts/bench analyze --nodes 256,1024,4096`. Growth is linear where a node takes as long in\n"
        "each row.\n"
    )
    yield figures(
        lines,
        {
            "nodes": "{nodes:,}",
            "hours": "{hours:g}",
            "seconds": "{seconds:.0f}",
            "ms a node and hour": lambda one: f"{_a_node(one):.2f}",
            "CPU, s": "{cpu_seconds:.0f}",
            "InfluxDB's CPU, s": "{store_cpu_seconds:.0f}",
            "peak memory": "{peak_mib} MiB",
            "live round, median / slowest": lambda one: (
                f"{one['round']['median']:.2f} / {one['round']['slowest']:.2f} s"
            ),
        },
    )
    yield _growth(lines)
    yield _measured_on(lines)
    whole = book.one("tick_whole")
    spent = f"{whole['cpu_seconds']:.2f} s of processor time, and {whole['store_cpu_seconds']:.2f} s in InfluxDB"
    yield (
        "A live round with work for every study (`scripts/bench analyze --whole --hours "
        f"{whole['hours']:g}`: {whole['nodes']:,} nodes,\n"
        "two rails, sFlow's seconds, 200 conversations with the outside, 100 clients of inference, 100 management\n"
        f"sessions, violations, interfaces): {spent}, the\n"
        f"median of {whole['rounds']} rounds. By the clock {whole['median']:.1f} s, as loaded as the machine was.\n"
    )
    yield _measured_on([whole])
    for many in book.of("tick_many"):
        yield (
            f"A live round with many small jobs (`scripts/bench analyze --nodes {many['nodes']} --jobs {many['jobs']}\n"
            f"--hours 0.75`: {many['nodes']:,} nodes in {many['jobs']:,} jobs): {many['cpu_seconds']:.2f} s of\n"
            f"processor time and {many['store_cpu_seconds']:.2f} s in InfluxDB, the median of {many['rounds']}\n"
            f"rounds; by the clock {many['median']:.2f} s, at most {many['slowest']:.2f} s. A first start took\n"
            f"{many['start_seconds']:.0f} s, one that goes on where a process ended {many['restart_seconds']:.1f} s.\n"
        )
        yield _measured_on([many])


def _a_node(one: Line) -> float:
    """Return the milliseconds that an hour of a node takes."""
    return float(one["seconds"] / one["nodes"] / one["hours"] * 1000)


def _growth(lines: Sequence[Line]) -> str:
    """Return a chart, as GitHub draws it: bars are of one height where growth is linear."""
    nodes = ", ".join(f'"{one["nodes"]:,} nodes"' for one in lines)
    bars = ", ".join(f"{_a_node(one):.2f}" for one in lines)
    top = math.ceil(max(map(_a_node, lines)) + 1)
    return (
        f'```mermaid\nxychart-beta\n    x-axis [{nodes}]\n    y-axis "ms a node and hour" 0 --> {top}\n'
        f"    bar [{bars}]\n```\n"
    )


@_section("Flow archive")
def _archive(book: Book) -> Iterator[str]:
    days, asked = book.of("archive"), book.of("archive_question")
    yield (
        "A day of records, each of which two exporters saw, written as the bridge does; then questions, each in a\n"
        "process of its own: with the files out of the page cache, and again. Sums and the share of all traffic are\n"
        "checked against what was generated. Where cluster.yaml does not say who counts, the archive tells it of\n"
        "each hour when it is over; the last one is not: the question tells it of what it asks, and a tally of the\n"
        "hour has the share of all traffic.\n"
    )
    yield table(
        ("records", "who says who counts", "nodes", "files", "bytes a record", "CPU a record, merging included"),
        (
            (
                f"{one['records']:,}",
                _WHO[one["untold"]],
                f"{one['nodes']:,}",
                one["files"],
                one["bytes_a_record"],
                f"{one['cpu_us_a_record']} µs",
            )
            for one in days
        ),
    )
    yield "What is left of the speed with the archive, of files or a topic read to their end in the same run:\n"
    yield table(
        ("through", "by processor time", "by the clock", "peak memory"),
        (
            (one["through"], one["ratio_of_processor_time"], one["ratio_on_to_off"], f"{one['peak_mib']} MiB")
            for one in book.of("archive_cost")
        ),
    )
    yield "Seconds, cold / warm; of processor time, warm, which other work on the machine changes less:\n"
    yield table(
        ("question", "of records", "who says who counts", "seconds", "processor time", "memory"),
        (
            (
                one["question"],
                f"{one['records']:,}",
                _WHO[one["untold"]],
                _seconds(one),
                f"{one['warm_cpu_seconds']:.2f}",
                f"{one['peak_mib']} MiB",
            )
            for one in asked
        ),
    )
    yield _measured_on(days)


@_section("Beside other collectors")
def _peers(book: Book) -> Iterator[str]:
    lines = book.of("peer")
    versions = book.one("peer_versions")
    told = ", ".join(str(value) for name, value in versions.items() if name not in ("step", _MACHINE) and value)
    is_short = any(one["peer"] == "clusterflow" and not one.get("counts_drain") for one in lines)
    less = "; of `clusterflow` in these runs until the\nlast record was sent: a few per cent less" if is_short else ""
    yield (
        "The same datagrams at the same rates, in the same run, one collector after the other. nfacctd, goflow2 and\n"
        "Telegraf only decode records into files here: CSV, JSON or Protocol Buffers, line protocol. To InfluxDB\n"
        "there are two: Telegraf's own output, and `clusterflow`: nfacctd with the bridge and InfluxDB behind it.\n"
        "There, what *telegraf (InfluxDB)* lost it had decoded: its points have tags and time of a datagram, and of\n"
        "equal ones InfluxDB keeps the last. Settings are as each comes, but: nfacctd's as `clusterflow collect`\n"
        "writes them; Telegraf's with a socket buffer of 64 MiB, flushed each second in batches of 10,000, and room\n"
        f"for 2,000,000. CPU counts until everything is written{less}. {told}\n"
    )
    yield table(
        ("flows/s", "collector", "kept", "lost", "CPU a flow", "cores needed", "peak memory", "bytes a record"),
        (
            (f"{one['rate']:,}", one["peer"], one["skipped"], *[""] * 5)
            if "skipped" in one
            else (
                f"{one['rate']:,}",
                one["peer"],
                f"{one['kept']:,}",
                f"{one['lost_share']:.2%}",
                f"{one['cpu_us_a_flow']:.2f} µs",
                f"{one['cores_needed']:.2f}",
                f"{one['peak_mib']} MiB",
                one.get("bytes_a_record", ""),
            )
            for one in lines
        ),
    )
    yield _measured_on(lines)


@_section("InfluxDB 1.6, 1.8, 2.7")
def _stores(book: Book) -> Iterator[str]:
    # scripts/bench stores --influxd PATH --influxd PATH
    lines = book.of("store")
    one = lines[0]
    yield (
        f"{one['hours']} hours of {one['nodes']} simulated nodes in one job, whose leaves send NetFlow or sFlow:\n"
        "the points of bridge, rollups and analysis, and their hours once more for the week before, written to each\n"
        "server as they came. *Disk* is after compactions, with indexes. *Boards*: all that all boards ask, warm, by\n"
        "the clock or the server's processor time where that is less.\n"
    )
    yield figures(
        lines,
        {
            "leaves send": "{exports}",
            "server": "{server}",
            "points written": "{written:,}",
            "points/s": lambda one: f"{one['written'] / one['seconds']:,.0f}",
            "CPU a point": lambda one: f"{one['cpu_seconds'] / one['written'] * 1e6:.2f} µs",
            "disk": lambda one: f"{one['disk_bytes'] / 1e6:.1f} MB",
            "memory": "{peak_mib} MiB",
            "boards, 1 h / 24 h / 7 d": lambda one: (
                " / ".join(f"{one['boards_seconds'][s]:.2f}" for s in _SPANS) + " s"
            ),
        },
    )
    yield _measured_on(lines)


# -- command ---------------------------------------------------------------------------------------


def load() -> list[Line]:
    """Return the lines of performance.json."""
    return list(json.loads(FIGURES.read_text(encoding="utf-8")))


def dump(lines: Sequence[Line]) -> str:
    """Return performance.json's text, a line of it a measurement."""
    return "[\n" + ",\n".join(json.dumps(one, ensure_ascii=False) for one in lines) + "\n]\n"


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--check", is_flag=True, help="Write nothing; fail if the page is not what it would be.")
def report(files: tuple[Path, ...], check: bool) -> None:  # noqa: FBT001 - click passes it so
    """Write docs/reference/performance.md from performance.json beside it, and from what benches printed into FILES."""
    lines = load()
    for path in files:
        lines = merged(lines, path.read_text(encoding="utf-8").splitlines())
    if check:
        if PAGE.read_text(encoding="utf-8") != page(lines):
            raise click.ClickException(f"{PAGE} is not what {FIGURES} says: run scripts/bench report")
        return
    FIGURES.write_text(dump(lines), encoding="utf-8")
    PAGE.write_text(page(lines), encoding="utf-8")
