"""How much of what a board's lists tell apart has no name there."""

from collections.abc import Sequence

from cluster.model import Cluster
from dashboards import panels, questions
from dashboards.links import Link
from dashboards.palette import DIM, QUIET
from dashboards.panels import Built, Face
from store import schema
from store.influxql import Select, is_in, not_in

_NAMED, _REST = "Clients with a name", "Other: without one"


def names_share(cluster: Cluster, asked: Select, y: int, links: Sequence[Link], missing: str = "") -> Built:
    """Return the panel ``names``, over the board's whole width: clients with a name, and those who are `other`."""
    sides = ((_NAMED, not_in(schema.SRC, [schema.OTHER])), (_REST, is_in(schema.SRC, [schema.OTHER])))
    return panels.time_series(
        cluster,
        Face(
            "names", "Clients with a name here, and other",
            "Bit/s of clients that these lists and charts tell apart, and of all others together.",
            "Of thousands few are series. Rules and `clusterflow access` know all of them.",
            "Where other is large, `clusterflow access --csv` lists who it is.",
            x=0, y=y, w=24, h=6, links=tuple(links),
        ),
        [questions.clients_over_time(cluster, asked.where(side), f"bit/s: {name}.", name) for name, side in sides],
        stacked=True,
        overrides=[panels.override(_NAMED, color=panels.fixed(QUIET)), panels.override(_REST, color=panels.fixed(DIM))],
        missing=missing,
    )  # fmt: skip
