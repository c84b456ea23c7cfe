"""The README's pictures, made from a demo: ``python tests/browser/pictures.py FOLDER`` (see scripts/pictures)."""

import sys
from pathlib import Path

import seen

from dashboards import variables as var
from dashboards.registry import BOARDS

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
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
