"""The README's pictures, made from a demo: ``python tests/browser/pictures.py FOLDER`` (see scripts/pictures)."""

import sys
from pathlib import Path

import requests
import seen

from dashboards import variables as var
from dashboards.registry import BOARDS

_SCALE = 2 / 3
"""1280 pixels wide, laid out as on a screen of 1920."""

_MOST_BYTES = 200_000
_STRAGGLER_RULES = ("node_dropout", "cohort_slowdown")


def main(folder: Path) -> int:
    """Make the pictures; return 1 where a board is not well, which is no picture to show."""
    folder.mkdir(parents=True, exist_ok=True)
    with seen.demo() as demo, seen.browser(_SCALE) as context:
        straggler = _straggler(demo.url)
        wanted = {
            "wall": ("noc_wall", "6h", ""),
            "explore": ("explore", "1h", f"&var-{var.NODE}={straggler}" if straggler else ""),
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
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


def _straggler(url: str) -> str:
    """Return the node that an alert of the demo names; empty where none fires."""
    answer = requests.get(f"{url}/api/prometheus/grafana/api/v1/alerts", timeout=20).json()
    alerts = [alert["labels"] for alert in answer["data"]["alerts"]]
    return next((one["node"] for one in alerts if one.get("rule") in _STRAGGLER_RULES and one.get("node")), "")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
