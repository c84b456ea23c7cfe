"""The page of figures is what its file says; targets that were missed say so; sizes follow from unit costs."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench.costs.print_cost import VARIANTS
from bench.performance import FIGURES, PAGE, dump, merged, page
from bench.sizing import STEPS, sizing, units
from cluster.load import load_cluster
from ingest.collect.pmacct import collector_files

REPOSITORY = Path(__file__).parents[2]
MACHINE = {
    "cores": 2, "processor": "Test", "memory_gib": 8, "python": "3.11", "polars": "2", "influxd": "1.8", "load": 0.1,
}  # fmt: skip
DELAY = {"p50": 4.0, "p95": 6.0, "max": 9.0}
COSTS = {
    "nfacctd": {"cpu_us_a_flow": 2.0, "cores": 0.5, "peak_mib": 600, "last_mib": 600},
    "bridge": {"cpu_us_a_flow": 3.0, "cores": 0.6, "peak_mib": 300, "last_mib": 300},
    "influxd": {"cpu_us_a_flow": 0.5, "cores": 0.1, "peak_mib": 200, "last_mib": 200},
    "sender": {"cpu_us_a_flow": 0.3, "cores": 0.1, "peak_mib": 100, "last_mib": 100},
}


def live(**changes: Any) -> dict[str, Any]:
    whole = {
        "step": "live", "rate": 200_000, "seconds": 50.0, "sent": 10_000_000, "printed": 10_000_000, "sent_bytes": 7,
        "stored_bytes": 7, "exact": True, "lost_kernel_datagrams": 0, "delay": DELAY, "refresh_seconds": 2,
        "processes": COSTS, "other_cores": 0.0,
    }  # fmt: skip
    return whole | changes


def printed(*lines: dict[str, Any]) -> list[str]:
    return [json.dumps(one) for one in ({"step": "machine", **MACHINE}, *lines)]


def measured(*lines: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the committed figures with these lines in place of all of their steps; of `memory`, of their format."""
    known = json.loads((REPOSITORY / FIGURES).read_text())
    gone = {one["step"] for one in lines} - {"memory"}
    return merged([one for one in known if one["step"] not in gone], printed(*lines))


def targets(*lines: dict[str, Any]) -> dict[str, list[str]]:
    text = page(measured(*lines))
    rows = [row.strip("| ").split(" | ") for row in text.split("## Targets")[1].split("##")[0].splitlines()[2:] if row]
    return {row[0]: row[1:] for row in rows}


def test_the_page_is_what_its_file_says() -> None:
    lines = json.loads((REPOSITORY / FIGURES).read_text())
    assert (REPOSITORY / PAGE).read_text() == page(lines), "run scripts/bench report"
    assert (REPOSITORY / FIGURES).read_text() == dump(lines)


def test_new_lines_take_the_place_of_old_ones_and_bear_their_machine() -> None:
    old = merged([], printed(live(sent=5), {"step": "relay", "flows": 1}))
    new = merged(old, [*printed(live(sent=6)), "no JSON", '{"step": "soak_row", "second": 1}'])
    assert [(one["step"], one.get("sent")) for one in new] == [("live", 6), ("relay", None)]
    assert new[0]["machine"]["cores"] == 2
    assert merged(json.loads(dump(new)), []) == new


def test_enrichment_is_a_table_and_a_target() -> None:
    figures = {"flows": 2_000_000, "runs": 3, "flows_per_second": 400_000, "ratio_on_to_off": 0.7,
               "ratio_of_processor_time": 0.83, "reading_cpu_seconds": 1.2, "peak_mib": 300}  # fmt: skip
    lines = [{"step": "enrichment_part", "part": "threat_feeds", **figures}, {"step": "enrichment", **figures}]
    assert targets(*lines)["all enrichment on"][1:] == ["0.83 of the speed without", "yes"]
    text = page(measured(*lines))
    (row,) = [one for one in text.splitlines() if one.startswith("| threat feeds |")]
    assert row == "| threat feeds | 0.83 | 0.70 | 400,000 | 1.2 s of CPU | 300 MiB |"
    assert targets({**lines[1], "ratio_of_processor_time": 0.79})["all enrichment on"][2] == "**no**"


def test_what_counting_once_costs_is_a_target() -> None:
    times = {"times_apart": 1.08, "times_threefold": 1.2, "times_authority": 1.15, "times_described": 1.95}
    one = {"step": "once", "flows": 1_000_000, "exporters": 20, **times}
    what = "finding what several exporters saw, where"
    assert targets(one)[f"{what} none does"][1:] == ["1.08 x the processor time", "yes"]
    assert targets(one)[f"{what} three see all"][1:] == ["1.2 x the processor time", "**no**"]
    assert "- 1.15 with the simulator's traffic" in page(measured(one))


def test_targets_met_and_missed() -> None:
    met = targets(live(), {"step": "memory", "format": "csv", "flows": 1, "flows_per_second": 1_200_000,
                           "ratio_to_polars_read": 2.1, "cpu_us_a_flow": 1, "peak_mib": 1})  # fmt: skip
    assert met["CSV to points"][1:] == ["1.20 M flows/s", "yes"]
    assert met["lost at 200,000 flows/s on the wire"][1:] == ["nothing, every byte stored", "yes"]
    assert met["record to query, beyond nfacctd's print interval"][1:] == ["7.0 s at most", "yes"]
    missed = targets(live(printed=9_000_000, exact=False, delay=DELAY | {"max": 18.0}))
    assert missed["lost at 200,000 flows/s on the wire"][1:] == ["1,000,000 of 10,000,000", "**no**"]
    assert missed["record to query, beyond nfacctd's print interval"][1:] == ["16.0 s at most", "**no**"]


def test_a_marked_record_on_its_way_is_none_that_was_lost() -> None:
    """Where all totals are exact, nothing was: the marked one that nfacctd had not printed yet is not in them."""
    row = targets(live(printed=9_999_999))["lost at 200,000 flows/s on the wire"]
    assert row[1:] == ["nothing, every byte stored", "yes"]


@pytest.mark.parametrize(
    ("changes", "word"), [({"exact": False, "printed": 10_000_000}, "**no**"), ({}, "yes")], ids=["wrong", "right"]
)
def test_totals_that_differ_meet_no_target(changes: dict[str, Any], word: str) -> None:
    assert targets(live(**changes))["lost at 200,000 flows/s on the wire"][2] == word


def test_what_a_late_rate_would_have_needed() -> None:
    """1.3 cores at 100,000 flows/s are 13 µs a flow, and 2.6 cores at twice the rate."""
    late = live(delay=DELAY | {"max": 40.0})
    assert "need 2.6 cores" in page(measured(live(rate=100_000), late))
    assert "takes 13.0 µs of CPU a flow" in page(measured(live(rate=100_000), late))
    assert "cores; where there are fewer" not in page(measured(live(rate=100_000), live()))


def test_the_way_through_kafka_is_a_table() -> None:
    costs = COSTS | {name: {"cores": 0.25, "peak_mib": 300} for name in ("worker-1", "worker-2", "relay", "kafka")}
    one = live(step="live_kafka", workers=2, partitions=8, rate=50_000, sent_flows=1000, stored_flows=990,
               processes=costs)  # fmt: skip
    relay = {"step": "relay", "flows": 1000, "flows_per_second": 500_000, "cpu_seconds": 0.1}
    kafka = {"step": "kafka", "workers": 2, "partitions": 8, "flows_per_second": 1, "cpu_us_a_flow": 3, "exact": True,
             "processes": costs}  # fmt: skip
    text = page(measured(relay, kafka, one, live()))
    (row,) = [one for one in text.splitlines() if one.startswith("| 2 | 50,000 |")]
    cells = row.strip("| ").split(" | ")
    assert cells[2:6] == ["10,000,000 in 50 s", "0 / 0 / 10", "yes", "4.0 s / 6.0 s / 9.0 s"]
    assert cells[6:] == ["0.50, 300 MiB each", "0.50, 600 MiB", "0.25, 300 MiB", "0.25, 300 MiB", "0.10, 200 MiB"]


def test_sizes_follow_from_unit_costs() -> None:
    """2 µs a flow: 100,000 flows/s need 0.2 cores, planned half busy 0.4."""
    lines = measured(live(), live(rate=50_000, exact=True, printed=1))
    assert units(lines).collect == pytest.approx(2e-6)
    (row,) = [row for row in "\n".join(sizing(lines)).splitlines() if "| 100,000 |" in row]
    assert row.split(" | ")[4:7] == ["0.4", "0.6", "0.1"]


def test_disk_follows_from_nodes() -> None:
    fill = {
        "step": "boards_fill", "nodes": 1000, "series_cardinality": 8000,
        "raw_points_a_day": 86_400_000, "bytes_a_point": 5.0,
    }  # fmt: skip
    lines = measured(fill)
    found = units(lines)
    assert found.series == 8
    assert found.points == pytest.approx(86_400)
    step = STEPS[2]
    (row,) = [row for row in "\n".join(sizing(lines)).splitlines() if row.startswith(f"| {step.name} |")]
    assert row.strip("| ").split(" | ")[-2:] == [f"{8 * step.nodes:,}", "1.8 GB"]


def test_a_year_on_disk_follows_from_points_and_bytes() -> None:
    store = {
        "step": "store", "exports": "NetFlow", "server": "influxd 1.8.10", "nodes": 10, "hours": 12, "hours_times": 14,
        "points_by_retention": {"raw": 50_000, "1m": 5_000, "1h": 500},
        "bytes_by_retention": {"raw": 500_000, "1m": 50_000, "1h": 140_000}, "written": 60_000, "seconds": 2.0,
        "cpu_seconds": 0.6, "disk_bytes": 1_500_000, "peak_mib": 90, "boards_seconds": {"1h": 1, "24h": 2, "7d": 3},
    }  # fmt: skip
    # The first server's points count.
    slow = store | {"server": "influxd 2.7.12", "bytes_by_retention": {"raw": 1, "1m": 1, "1h": 1}}
    text = page(measured(store, slow, live()))
    rows = {row.split(" | ")[1]: row.strip("| ").split(" | ") for row in text.splitlines() if "| NetFlow | `" in row}
    # 10,000 points a node and day x 10 bytes x 7 days x 1,024 nodes.
    assert rows["`raw`"][3:] == ["10,000", "10.0", "0.72 GB"]
    assert rows["`1h`"][3:] == ["100", "20.0", "0.75 GB"]
    assert "| NetFlow | influxd 1.8.10 | 60,000 | 30,000 | 10.00 µs | 1.5 MB | 90 MiB | 1.00 / 2.00 / 3.00 s |" in text


def test_several_nfacctd_and_what_one_costs_have_tables() -> None:
    found = [live(step="live_shared", daemons=number, achieved_rate=190_000) for number in (1, 2)]
    cost = {"step": "print_cost", "rate": 100_000, "sent": 10, "bytes_a_record": None, "core_us": 0.5}
    cost |= {"plugin_us": 1.7, "writers_us": 1.6, "us": 3.8}
    lines = [*found, *({**cost, "variant": name, "printed": count} for name, count in (("a", 10), ("b", 19)))]
    text = page(measured(*lines))
    assert text.count("| 200,000 / 190,000 | ") == 2
    assert "| b | 0.50 | 1.70 | 1.60 | 3.80 |  | 1.90 |" in text


def test_each_variant_of_nfacctd_is_another_configuration() -> None:
    cluster = load_cluster(REPOSITORY / "cluster.yaml")
    text = collector_files(cluster, Path("/run/x"), is_rotated=True)["nfacctd.conf"]
    made = [change(text) for change in VARIANTS.values()]
    assert len({*made}) == len(made)
    assert made[0] == text


def test_the_growth_over_nodes_is_drawn_and_held_against_its_targets() -> None:
    again = {"step": "rerun", "hours": 24.0, "cpu_seconds": 40.0, "peak_mib": 800, "store_cpu_seconds": 60.0}
    sizes = ((1024, 59.0), (4096, 250.0))
    days = [again | {"nodes": nodes, "seconds": seconds} for nodes, seconds in sizes]
    rounds = [{"step": "tick", "nodes": nodes, "median": 0.4, "slowest": 0.9} for nodes, _ in sizes]
    text = page(measured(*days, *rounds))
    assert "| a day of 1,024 nodes judged again | 60 s, 1 GB | 59 s, 800 MiB | yes |" in text
    assert "| a day of 4,096 nodes judged again | 240 s, 1 GB | 250 s, 800 MiB | **no** |" in text
    assert "| a live round of 4,096 nodes | 1 s | 0.40 s, 0.90 s at most | yes |" in text
    assert "bar [2.40, 2.54]" in text
