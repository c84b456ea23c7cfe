"""The pictures of our pages, made from a demo: ``python tests/browser/pictures.py FOLDER`` (see scripts/pictures)."""

import sys
import time
from pathlib import Path

import seen
from playwright.sync_api import BrowserContext

from cluster.load import load_cluster
from cluster.model import Cluster
from dashboards import variables as var
from dashboards.registry import BOARDS
from operations.alert_history import stored_alerts
from reporting.incident.incident import incident_of
from reporting.incident.incident_page import html
from store.influx import Store

_SCALE = 2 / 3
"""1280 pixels wide, laid out as on a screen of 1920."""

_MOST_BYTES = 200_000
_WHO_SENT_LEAST = f"&var-{var.SOURCE}=training&var-{var.DESTINATION}=training&var-{var.ORDER}={var.SMALLEST}"


def main(folder: Path) -> int:
    """Make the pictures; return 1 where a board is not well, which is no picture to show."""
    folder.mkdir(parents=True, exist_ok=True)
    with seen.demo() as demo, seen.browser(_SCALE) as context:
        wanted = {
            "wall": ("noc_wall", "6h", ""),
            "explore": ("explore", "1h", _WHO_SENT_LEAST),
            "egress": ("egress", "1h", ""),
        }
        wrong = []
        for name, (board, since, chosen) in wanted.items():
            picture = folder / f"{name}.png"
            found = seen.look(
                context, demo.url, BOARDS[board].uid, since, picture, whole=False, more=f"{chosen}&theme=dark"
            )
            if (size := picture.stat().st_size if picture.exists() else 0) > _MOST_BYTES:
                found.add("too large", f"{picture}: {size:,} B")
            wrong += [f"{name}: {line}" for line in str(found).splitlines()]
            print(f"{picture}: {size:,} B")
        incident_picture(context, load_cluster(demo.log.parents[1] / "cluster.yaml"), folder / "incident.png")
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


def incident_picture(context: BrowserContext, cluster: Cluster, picture: Path) -> None:
    """Make a picture of the top of the page of the demo's theft."""
    store = Store(cluster.store)
    now = int(time.time())
    theft = next(one for one in stored_alerts(store, now - 86_400, now) if one.rule == "exfil_volume")
    tab = context.new_page()
    tab.set_content(html(incident_of(cluster, store, theft), cluster))
    tab.screenshot(path=picture)
    tab.close()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
