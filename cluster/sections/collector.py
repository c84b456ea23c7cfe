"""The section `collector`: how nfacctd and sfacctd run."""

from dataclasses import replace

from cluster.document import Faults
from cluster.scalars import names
from cluster.scalars.declared import Section, key, record
from cluster.scalars.kinds import FLAG, PORT, ListOf, Table, Whole
from cluster.vocabulary import Network

MOST_DAEMONS = 16
"""That share a port."""

_LISTEN = replace(names.ADDRESS, place=lambda _folder, address: str(address))


# fmt: off
@record
class CollectorSettings:
    """How nfacctd and sfacctd run."""

    listen: str = key(_LISTEN, "The address that exporters send to; `::` takes IPv6 and IPv4.", default="0.0.0.0")  # noqa: S104 - others than we
    netflow_port: int = key(PORT, "UDP port of NetFlow and IPFIX.", default=2055)
    sflow_port: int = key(PORT, "UDP port of sFlow.", default=6343)
    spool: str = key(names.PATH, "The folder where pmacct leaves records for the bridge.",
        default="/var/spool/clusterflow")
    netflow_daemons: int | None = key(Whole(1, MOST_DAEMONS),
        "How many nfacctd share `netflow_port`, each with exporters of its own; each takes a core and 0.6 GB. It takes "
        "CAP_BPF; without, `collect` says so and runs one.", default=None,
        absent="as many as the busiest minute of the last 7 days needs", example="2")
    refresh: int = key(Whole(1, 60, "seconds"), "How often pmacct prints, in seconds.", default=1)
    rotate: int = key(Whole(1, 3_600, "seconds"), "Age at which a spool file is closed, in seconds.", default=60)
    sflow_sources: tuple[Network, ...] = key(ListOf(names.SOURCE),
        "The UDP sources from which sFlow is taken: not the agents' addresses, which datagrams say of themselves. "
        "All others are dropped without a word.", default=(), absent="everybody", example="[10.60.0.0/24, 10.60.9.17]")
    keep_templates: bool | None = key(FLAG,
        "Whether nfacctd keeps the templates of NetFlow v9 and IPFIX in a file, so that they outlive its restart; "
        "otherwise records are lost then until each exporter has sent its templates again. Without the library of "
        "`fast_printing` it writes the whole file at each template that comes: 13 µs for each template in it.",
        default=None, absent="`true` with `fast_printing` or up to 100 exporters", example="false")
    fast_printing: bool = key(FLAG,
        "Whether pmacct, as Debian builds it, prints records by a quicker printf than libc's, and writes its file of "
        "templates only when one changes. `collect` compiles a library with `cc`; without, it says so and goes on.",
        default=True)
    guard: bool = key(FLAG,
        "Whether a filter in the kernel keeps datagrams from nfacctd that would kill it (pmacct #934). It takes "
        "CAP_BPF, and CAP_NET_RAW to name who sends them; without, `collect` says so and goes on.", default=True)


COLLECTOR = Section.of(CollectorSettings, "collector")
# fmt: on


def build_collector(table: Table | None, faults: Faults) -> CollectorSettings:
    """Return the settings, and record a port that both daemons would listen on."""
    collector: CollectorSettings = COLLECTOR.build(table)
    if collector.netflow_port == collector.sflow_port:
        faults.add("collector.sflow_port", str(collector.sflow_port), "another port than netflow_port")
    return collector
