"""Boards as a person sees them: opened in the system's Chromium, pictured, and searched for what is wrong.

Grafana's API answers where its browser side fails: it breaks queries, merges states, cuts titles. So a board is right
when it was seen. The Grafana is that of a demo (`clusterflow demo`), since a person looks at real data.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from playwright.sync_api import BrowserContext, ConsoleMessage, Error, Page, Request, Response, sync_playwright

REPOSITORY = Path(__file__).resolve().parents[2]
PICTURES = REPOSITORY / "var/pictures"

WIDTH, HEIGHT = 1920, 1080
LAPTOP = 1366, 768
_GRID_ROW, _ABOVE_GRID = 38, 140
_HIGHEST = 5000
"""A higher screen takes minutes to draw: of such a board, the runbook, the top is looked at."""

_CHROMIUM = "chromium"
_FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
_QUIET_SECONDS = 2.0
"""How long no query may be under way before a board counts as drawn."""
_LOAD_SECONDS = 120
_FILL_SECONDS, _INCIDENTS_SECONDS = 1500, 180
"""How long the demo may take for its history, and how long after that all its incidents have become alerts."""

_QUERY = "/api/ds/query"
_LISTENS = re.compile(r'msg="HTTP Server Listen" address=(\S+)')


# -- the demo ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Demo:
    """A demo that runs: Grafana's address and log."""

    url: str
    log: Path


def why_not() -> str:
    """Return what is missing to look at boards; empty where nothing is."""
    if not os.environ.get("GRAFANA_HOME"):
        return "set GRAFANA_HOME to the folder of a Grafana 12"
    return "" if shutil.which(_CHROMIUM) else "no chromium: apt-get install chromium"


@contextmanager
def demo() -> Iterator[Demo]:
    """Use the demo whose folder CLUSTERFLOW_DEMO names, or run one until its incidents were found."""
    if running := os.environ.get("CLUSTERFLOW_DEMO"):
        yield _grafana_of(Path(running), time.monotonic() + 10)
        return
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "demo"
        command = [sys.executable, "-m", "clusterflow", "demo", "--folder", str(folder)]
        with (Path(parent) / "said").open("w+b") as said:
            process = subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
            try:
                found = _grafana_of(folder, time.monotonic() + _FILL_SECONDS, process)
                time.sleep(_INCIDENTS_SECONDS)
                yield found
            finally:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(150)
                finally:
                    process.kill()


def _grafana_of(folder: Path, deadline: float, process: subprocess.Popen[bytes] | None = None) -> Demo:
    """Return the Grafana of a demo, as its log tells, when all its boards are there."""
    log = folder / "log/grafana.log"
    while time.monotonic() < deadline and (process is None or process.poll() is None):
        address = _LISTENS.search(log.read_text(errors="replace")) if log.is_file() else None
        if address is not None:
            found = Demo(f"http://{address[1]}", log)
            made = {
                json.loads(path.read_text())["uid"] for path in folder.glob("provisioning/grafana/dashboards/*.json")
            }
            if made and made <= set(uids(found.url)):
                return found
        time.sleep(1)
    raise TimeoutError(f"no Grafana with boards in {folder}: does the demo run, and is GRAFANA_HOME right?")


def uids(url: str) -> list[str]:
    """Return the uids of all boards, in order of their titles; none while Grafana starts."""
    try:
        answer = requests.get(f"{url}/api/search?type=dash-db&limit=500", timeout=20)
        return [board["uid"] for board in answer.json()] if answer.ok else []
    except requests.RequestException:
        return []


# -- the browser ---------------------------------------------------------------------------------------


@contextmanager
def browser(scale: float = 1.0) -> Iterator[BrowserContext]:
    """Run the system's Chromium with nothing remembered; `scale`: pixels of pictures for one of the screen."""
    with tempfile.TemporaryDirectory() as profile, sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            profile,
            executable_path=shutil.which(_CHROMIUM),
            headless=True,
            args=_FLAGS,
            viewport={"width": WIDTH, "height": HEIGHT},
            device_scale_factor=scale,
            timezone_id="UTC",
        )
        try:
            yield context
        finally:
            context.close()


@dataclass
class Seen:
    """One board over one range: what is wrong with it, by kind; its height and letters in pixels; what sticks out."""

    faults: dict[str, list[str]] = field(default_factory=dict)
    bottom: int = 0
    letters: list[tuple[float, str]] = field(default_factory=list)
    numbers: list[tuple[float, str]] = field(default_factory=list)
    cut_numbers: list[str] = field(default_factory=list)

    def add(self, kind: str, what: str) -> None:
        """Note a fault once."""
        if what not in (listed := self.faults.setdefault(kind, [])):
            listed.append(what)

    def __str__(self) -> str:
        """Return the faults, a line each."""
        return "\n".join(f"{kind}: {one}" for kind, listed in self.faults.items() for one in listed)


def look(
    context: BrowserContext,
    url: str,
    uid: str,
    since: str,
    picture: Path,
    *,
    whole: bool = True,
    more: str = "",
    screen: tuple[int, int] = (WIDTH, HEIGHT),
) -> Seen:
    """Open a board over a range that ends now, and return what a person would see go wrong.

    Args:
        context: of `browser`.
        url: Grafana's.
        uid: the board's.
        since: length of the range, such as ``6h``.
        picture: where to put a picture of it.
        whole: make the screen as high as the board; else what is below the first screen is not drawn.
        more: of the address: chosen variables, a theme.
        screen: its width and height in pixels.
    """
    seen = Seen()
    board = requests.get(f"{url}/api/dashboards/uid/{uid}", timeout=20).json()["dashboard"]
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"])
    page = context.new_page()
    width, height = screen
    if whole:
        height = min(max(height, rows * _GRID_ROW + _ABOVE_GRID), _HIGHEST)
    page.set_viewport_size({"width": width, "height": height})
    waiting = _listen(page, url, seen)
    try:
        # Its own refresh would begin anew before a slow machine has drawn it.
        page.goto(f"{url}/d/{uid}?kiosk&from=now-{since}&to=now&refresh=15m{more}", timeout=1000 * _LOAD_SECONDS)
        page.wait_for_selector(_PANEL, timeout=1000 * _LOAD_SECONDS)
        _settle(page, waiting)
        _judge(seen, page.evaluate(_LOOK, _PANEL))
        picture.parent.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=picture, timeout=1000 * _LOAD_SECONDS, animations="disabled")
    except Error as error:
        seen.add("not drawn", error.message.splitlines()[0])
    finally:
        page.close()
    return seen


def _listen(page: Page, url: str, seen: Seen) -> set[Request]:
    """Note what the browser is told while it draws; return the queries that are under way, as it changes."""
    waiting: set[Request] = set()

    def asked(request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme.startswith("http") and address.netloc != urlsplit(url).netloc:
            seen.add("asks the Internet", request.url)
        if address.path == _QUERY:
            waiting.add(request)

    def failed(request: Request) -> None:
        waiting.discard(request)

    def answered(request: Request) -> None:
        waiting.discard(request)
        response = request.response() if urlsplit(request.url).path == _QUERY else None
        if response is not None:
            _refused(seen, request, response)

    def said(message: ConsoleMessage) -> None:
        if message.type == "error":
            seen.add("console", message.text[:300])

    page.on("request", asked)
    page.on("requestfinished", answered)
    page.on("requestfailed", failed)
    page.on("console", said)
    page.on("pageerror", lambda error: seen.add("console", str(error)[:300]))
    return waiting


def _refused(seen: Seen, request: Request, response: Response) -> None:
    try:
        answer = response.json()
    except (Error, ValueError):
        # The page is gone, or moved on to its next refresh.
        return
    asked = {query["refId"]: query for query in json.loads(request.post_data or "{}").get("queries", [])}
    for letter, result in answer.get("results", {}).items():
        if result.get("error"):
            text = str(asked.get(letter, {}).get("query", ""))
            seen.add("refused query", f"{result['error'][:200]}: {' '.join(text.split())[:400]}")
    if not response.ok and "results" not in answer:
        seen.add("refused query", f"{response.status}: {json.dumps(answer)[:300]}")


def _settle(page: Page, waiting: set[Request]) -> None:
    """Wait until no query has been under way for a while."""
    deadline = time.monotonic() + _LOAD_SECONDS
    quiet_since = time.monotonic()
    while time.monotonic() < min(deadline, quiet_since + _QUIET_SECONDS):
        page.wait_for_timeout(200)
        if waiting:
            quiet_since = time.monotonic()


_PANEL = 'section[data-testid^="data-testid Panel header"]'
_LOOK = r"""
selector => [...document.querySelectorAll(selector)].map(panel => {
  const title = panel.querySelector('h2, h6');
  const box = panel.getBoundingClientRect();
  const letters = [], sticking = [];
  const walker = document.createTreeWalker(panel, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.nodeValue.trim(), parent = walker.currentNode.parentElement;
    const style = getComputedStyle(parent), place = parent.getBoundingClientRect();
    if (text && place.width > 1 && place.height > 1 && style.visibility === 'visible' && style.opacity !== '0')
      letters.push([parseFloat(style.fontSize), text.slice(0, 60)]);
    const range = document.createRange();
    range.selectNodeContents(walker.currentNode);
    const written = range.getBoundingClientRect();
    if (text && (written.left < box.left || written.right > box.right)) sticking.push(text.slice(0, 60));
  }
  const mark = '[data-testid="data-testid Panel status error"], [aria-label="Panel status"]';
  return {
    title: panel.dataset.testid.replace('data-testid Panel header ', ''),
    words: panel.innerText,
    top: box.top,
    bottom: box.bottom,
    error: !!panel.querySelector(mark),
    cut: !!title && title.scrollWidth > title.clientWidth + 1,
    letters: letters,
    sticking: sticking,
  };
})
"""
_BROKEN = re.compile(r"An unexpected error happened|Panel plugin not found|Error loading", re.IGNORECASE)
_NO_DATA = re.compile(r"^\s*No data\s*$", re.MULTILINE)
_NO_VALUE = re.compile(r"\bNaN\b|\b2001-0\d-\d\d|-∞\+|\bInvalid date\b|\$\{|\bundefined\b")
_FIRST_LINE = 4 * _GRID_ROW


def _judge(seen: Seen, panels: list[dict[str, Any]]) -> None:
    if not panels:
        seen.add("not drawn", "no panel at all")
    for number, panel in enumerate(panels, 1):
        name = panel["title"] or f"panel {number} ({' '.join(panel['words'].split())[:40]})"
        if panel["error"] or _BROKEN.search(panel["words"]):
            seen.add("error mark", name)
        if _NO_DATA.search(panel["words"]):
            seen.add("No data", name)
        for found in _NO_VALUE.findall(panel["words"]):
            seen.add("no value", f"{name}: {found}")
        if panel["cut"]:
            seen.add("cut title", name)
        seen.bottom = max(seen.bottom, round(panel["bottom"]))
        seen.letters += [(size, f"{name}: {text}") for size, text in panel["letters"]]
        if panel["top"] < _FIRST_LINE and panel["letters"]:
            seen.numbers.append((max(size for size, _ in panel["letters"]), name))
            seen.cut_numbers += [f"{name}: {text}" for text in panel["sticking"]]
