"""With a real Grafana (GRAFANA_HOME): every board of a demo as a person sees it, over 1 h, 6 h and 24 h.

Takes a demo that runs (CLUSTERFLOW_DEMO: its folder), or runs one. Pictures go to var/pictures.
"""

import re
from collections.abc import Iterator

import pytest
import seen
from PIL import Image
from playwright.sync_api import BrowserContext
from seen import Demo

from dashboards.registry import BOARDS, HOME, RUNBOOK
from reporting.incident.line_chart import WIDTH

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(bool(seen.why_not()), reason=seen.why_not() or "there is a Grafana"),
]

UIDS = [*(board.uid for board in BOARDS.values()), RUNBOOK.uid]
LEAST_LETTERS, LEAST_NUMBER = 20, 60
"""Pixels that are legible from three metres."""

OURS = re.compile(r"logger=\S*(ngalert|provision|influx|tsdb|dashboard|alert|rendering)\S* .*level=(warn|error)")


@pytest.fixture(scope="module")
def demo() -> Iterator[Demo]:
    with seen.demo() as running:
        yield running


@pytest.fixture(scope="module")
def browser(demo: Demo) -> Iterator[BrowserContext]:
    # After the demo: a browser that waits for it takes processor time from it.
    assert demo.url
    with seen.browser() as context:
        yield context


def test_every_board_is_looked_at(demo: Demo) -> None:
    assert set(seen.uids(demo.url)) == set(UIDS)


@pytest.mark.parametrize("since", ["1h", "6h", "24h"])
@pytest.mark.parametrize("uid", UIDS)
def test_a_board_is_well(demo: Demo, browser: BrowserContext, uid: str, since: str) -> None:
    """No refused query, no error mark, no empty panel, no NaN, no cut title, a clean console, nobody else asked."""
    found = seen.look(browser, demo.url, uid, since, seen.PICTURES / f"{uid}-{since}.png")
    assert not found.faults, f"{found}\npicture: {seen.PICTURES / f'{uid}-{since}.png'}"


def test_the_wall_is_one_screen_that_is_legible_from_three_metres(demo: Demo, browser: BrowserContext) -> None:
    picture = seen.PICTURES / "wall.png"
    found = seen.look(browser, demo.url, BOARDS[HOME].uid, "6h", picture, whole=False)
    assert found.bottom <= seen.HEIGHT, f"{found.bottom} px: {picture}"
    small = sorted({text for size, text in found.letters if size < LEAST_LETTERS})
    assert not small, "\n".join(small)
    assert found.numbers
    assert min(found.numbers)[0] >= LEAST_NUMBER, min(found.numbers)


def test_on_a_laptop_the_tiles_of_the_wall_are_whole(demo: Demo, browser: BrowserContext) -> None:
    """The end of `65 GB` was its unit."""
    picture = seen.PICTURES / "wall-laptop.png"
    found = seen.look(browser, demo.url, BOARDS[HOME].uid, "6h", picture, whole=False, screen=seen.LAPTOP)
    assert found.numbers
    assert not found.cut_numbers, f"{found.cut_numbers}: {picture}"


def test_grafana_complains_about_nothing_of_ours(demo: Demo) -> None:
    loud = [line for line in demo.log.read_text(errors="replace").splitlines() if OURS.search(line)]
    assert not loud, "\n".join(loud[:20])


def test_its_notifications_have_pictures(demo: Demo) -> None:
    pictures = list((demo.log.parent.parent / "grafana" / "png").glob("*.png"))
    assert pictures
    assert {Image.open(picture).width for picture in pictures} == {WIDTH}
