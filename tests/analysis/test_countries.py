"""Countries that are new to a service of inference: as tables, and live as re-run on a real InfluxDB."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
import service_scene as scenes
from service_scene import Scene

from analysis.detectors.egress.contacts import CONTACT_COLUMNS
from analysis.detectors.inference.asked import Asked
from analysis.detectors.inference.client_studies import CountryStudy
from analysis.detectors.inference.countries import COUNTRY_COLUMNS, FIRST_SEEN, NEW, CountryPolicy, Found, find
from analysis.state import State
from app.log import Log
from cluster.model import Geography, GroupPair, Thresholds
from store import schema
from store.local_influxdb import LocalInfluxDB
from store.packed import ASKED, UNNAMED
from store.points import WINDOW, encode

T0 = int(datetime.now(UTC).timestamp()) // 3600 * 3600 - 6 * 3600
"""A whole hour some hours ago: the store takes nothing that is too old."""
LEAST = 1_000
DAY = 86_400
POLICY = CountryPolicy(LEAST, learning=DAY)
NOTHING = pl.DataFrame(schema=COUNTRY_COLUMNS)


def asked(*rows: tuple[int, str, str, int], service: str = "https") -> pl.DataFrame:
    """Rows of (seconds after T0, client, its country, bytes); 4 s each, to one node."""
    full = [
        (T0 + at, src, "external", "infer-1", "inference", "tcp", service, schema.NO, country, "", sent, 1, 4.0)
        for at, src, country, sent in rows
    ]
    frame = pl.DataFrame(full, schema=ASKED, orient="row")
    return frame.with_columns(pl.lit(value=False).alias(UNNAMED), pl.lit(schema.UNKNOWN_USER).alias(schema.USER))


def known(*rows: tuple[str, str, int, int]) -> pl.DataFrame:
    """Rows of (service, country, seconds after T0, new)."""
    full = [("inference", service, country, T0 + seen, new) for service, country, seen, new in rows]
    return pl.DataFrame(full, schema=COUNTRY_COLUMNS, orient="row")


HISTORY = known(("https", "NL", -9 * DAY, 0))


def look(frame: pl.DataFrame, before: pl.DataFrame = HISTORY, *, start: int = 0, learning_end: int = 0) -> Found:
    return find(frame, before, start=T0 + start, learning_end=T0 + learning_end, policy=POLICY)


def new(found: Found) -> list[tuple[str, str, int]]:
    """Return service, country and second of those that are new."""
    rows = found.countries.filter(pl.col(NEW) == 1)
    return [(row[schema.SERVICE], row[schema.COUNTRY], row[FIRST_SEEN] - T0) for row in rows.iter_rows(named=True)]


def told(found: Found) -> list[tuple[int, str, int]]:
    """Return second, client and bytes of the rows."""
    return [(row[WINDOW] - T0, row[schema.SRC], row[schema.BYTES.name]) for row in found.points.iter_rows(named=True)]


def test_a_country_is_seen_when_a_conversation_has_brought_enough_within_five_minutes() -> None:
    """Then the row has all of it, and the next ones what came on top."""
    found = look(asked((10, "a", "BR", 400), (100, "a", "BR", 600), (200, "a", "BR", 1), (210, "a", "BR", 7)))
    assert new(found) == [("https", "BR", 200)]
    assert told(found) == [(200, "a", 1_001), (210, "a", 7)]
    assert found.points.get_column(schema.DURATION.name).to_list() == [12.0, 4.0]
    assert encode(schema.UNUSUAL_COUNTRY, found.points).count(b"\n") == 1


def test_probes_are_neither_told_nor_history() -> None:
    """A thousand probes a minute from everywhere, each below the limit, are not what the service sees."""
    probes = [(at, f"p{at}", "CN", 60) for at in range(0, 600, 10)]
    spread = [(at, "slow", "CN", LEAST // 2) for at in (290, 300)]
    assert look(asked(*probes, *spread)).countries.is_empty()


@pytest.mark.parametrize(
    ("country", "service", "learning_end", "is_new"),
    [
        ("BR", "https", 0, True),
        ("NL", "https", 0, False),
        ("", "https", 0, False),  # nobody knows where it is
        (schema.OTHER, "https", 0, False),  # the rest beyond those that are named
        ("BR", "ssh", 0, False),  # nobody asked for it before: it is learnt
        ("BR", "https", 11, False),  # the analysis itself is new
        ("BR", "https", 10, True),
    ],
)
def test_what_is_new(country: str, service: str, learning_end: int, *, is_new: bool) -> None:
    found = look(asked((10, "a", country, 5_000), service=service), learning_end=learning_end)
    assert bool(new(found)) is is_new
    assert bool(told(found)) is is_new


def test_a_service_learns_from_its_first_client_on() -> None:
    rows = [(0, "a", "NL", 5_000), (DAY - 10, "b", "DE", 5_000), (DAY, "c", "FR", 5_000)]
    assert new(look(asked(*rows), NOTHING)) == [("https", "FR", DAY)]


def test_a_service_that_was_asked_from_inside_has_learnt_when_the_first_client_from_outside_comes() -> None:
    inside = [(0, "10.20.0.9", "", LEAST + 1), (0, "203.0.113.9", "", 60)]
    found = look(asked(*inside), NOTHING)
    assert new(found) == []
    first = asked((DAY - 10, "c", "FR", 5_000))
    later = asked((DAY, "c", "FR", 5_000))
    before = pl.concat([found.countries, known(("chat", "NL", 0, 0))])
    assert new(look(first, before, start=DAY - 10)) == []
    assert new(look(later, before, start=DAY)) == [("https", "FR", DAY)]
    assert new(look(later, found.countries, start=DAY)) == [], "places are known since now"


def test_a_country_is_unusual_for_a_day() -> None:
    """Every client from there is told of, however little it sends: the rule has the limit."""
    rows = [(0, "a", "BR", 5_000), (5_000, "b", "BR", 10), (DAY - 10, "c", "BR", 9_000), (DAY, "d", "BR", 9_000)]
    found = look(asked(*rows))
    assert told(found) == [(0, "a", 5_000), (5_000, "b", 10), (DAY - 10, "c", 9_000)]
    later = look(asked(*rows[2:]), pl.concat([HISTORY, found.countries]), start=DAY - 10)
    assert later.countries.is_empty()
    assert told(later) == [(DAY - 10, "c", 9_000)]


# -- on a store ------------------------------------------------------------------------------------------


@pytest.fixture
def scene(influxdb_v1: LocalInfluxDB, fresh_database: str) -> Iterator[Scene]:
    with scenes.opened(influxdb_v1, fresh_database) as found:
        cluster = replace(
            found.cluster,
            geography=Geography((("places", "places.mmdb"),)),
            allowed=(*found.cluster.allowed, GroupPair("external", "inference")),
            thresholds=Thresholds(unusual_country_bytes=LEAST, country_learning=3_600),
        )
        yield Scene(cluster, found.store)


def ask(
    scene: Scene, src: str, country: str, moments: range, sent: int, *, retention: str = schema.RAW, **tags: str
) -> None:
    talk = {
        schema.SRC: src, schema.SRC_GROUP: "external", schema.DST: "10.50.0.11", schema.DST_GROUP: "inference",
        schema.PROTO: "tcp", schema.SERVICE: "https", schema.OFF_WINDOW: schema.NO, schema.COUNTRY: country,
    }  # fmt: skip
    scene.write(schema.INFERENCE, talk | tags, moments, retention, bytes=sent, flows=1,
                duration=2.0)  # fmt: skip


def study_of(scene: Scene, state: State) -> CountryStudy:
    return CountryStudy(scene.cluster, scene.store, state, Asked(scene.cluster, scene.store, Log(quiet=True)), Log())


def countries_of(scene: Scene) -> set[tuple[str, str]]:
    return {
        (str(row[schema.SRC]), str(row[schema.COUNTRY])) for row in scene.rows(schema.UNUSUAL_COUNTRY) if row["bytes"]
    }


def test_live_tells_what_a_re_run_tells_and_a_restart_goes_on(scene: Scene, tmp_path: Path) -> None:
    """History from before the first start is learnt, also of clients inside; a group that may not ask leaves none."""
    ask(scene, "203.0.113.1", "NL", range(T0 - 9_000, T0 - 8_000, 60), 5_000, retention=schema.MINUTE)
    ask(scene, "10.60.0.1", "", range(T0 - 9_000, T0 - 8_000, 60), 5_000, retention=schema.MINUTE, service="ssh")
    ask(scene, "203.0.113.6", "NO", range(T0 + 100, T0 + 200, 10), 5_000, service="ssh")
    ask(scene, "203.0.113.1", "NL", range(T0, T0 + 1_800, 10), 300)
    ask(scene, "203.0.113.2", "BR", range(T0 + 400, T0 + 700, 10), 90)
    ask(scene, "203.0.113.3", "BR", range(T0 + 900, T0 + 950, 10), 20)
    ask(scene, "10.20.0.9", "CN", range(T0 + 100, T0 + 200, 10), 5_000, src_group="training")
    ask(scene, "203.0.113.4", "US", range(T0 + 100, T0 + 200, 10), 60)
    with State.open(tmp_path / "live") as state:
        state.begin(T0, T0, pl.DataFrame(schema=CONTACT_COLUMNS))
        scenes.follow(scene, study_of(scene, state), T0, T0 + 900, 50)
    with State.open(tmp_path / "live") as state:
        scenes.follow(scene, study_of(scene, state), T0 + 900, T0 + 1_800, 50)
    live = scene.rows(schema.UNUSUAL_COUNTRY)
    assert countries_of(scene) == {("203.0.113.2", "BR"), ("203.0.113.3", "BR"), ("203.0.113.6", "NO")}
    assert {row["bytes"] for row in live if row["time"] == T0 + 510} == {1_080}, "twelve windows of 90 bytes"
    with State.copy_of(tmp_path / "nowhere") as state:
        state.begin(T0, T0, pl.DataFrame(schema=CONTACT_COLUMNS))
        scenes.run(scene, study_of(scene, state), T0, T0 + 1_800, 700)
    assert scene.rows(schema.UNUSUAL_COUNTRY) == live
