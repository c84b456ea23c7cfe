"""The section `services`: names for ports, on top of the well-known ones of AI clusters."""

from collections.abc import Iterable

from cluster.document import Faults
from cluster.scalars import names
from cluster.scalars.declared import Section, key, record
from cluster.scalars.kinds import ListOf, MapOf, OneOrMany, Placed, Table, closest

TCP, UDP = 6, 17
ROCE_PORT = 4791
"""UDP port of RoCEv2, IANA."""
_TCP, _UDP, _BOTH = (TCP,), (UDP,), (TCP, UDP)


# fmt: off
@record
class Service:
    """Names for ports, on top of the well-known ones.

    A port named here leaves the built-in service that had it. Where protocols differ by port, give a list of such
    entries.
    """

    name: str
    ports: tuple[int, ...] = key(ListOf(names.PORTS, at_least=1), "The ports its servers listen on.",
        example="[3300, 6800-7300]")
    protocols: tuple[int, ...] = key(ListOf(names.PROTOCOL, at_least=1), "Their protocols.", default=(6, 17),
        absent="`[tcp, udp]`")


SERVICE = Section.of(
    Service, "service", table_of=lambda one: {"ports": port_runs(one.ports), "protocols": one.protocols}
)
# fmt: on


class _Services(MapOf[list[Placed[Table]]]):
    """Entries by name: a service whose protocols differ by port has several."""

    def write(self, value: Iterable[Service]) -> object:
        """Return the entries, written."""
        by_name: dict[str, list[Service]] = {}
        for service in value:
            by_name.setdefault(service.name, []).append(service)
        return {name: self.item.write(entries) for name, entries in by_name.items()}


SERVICES = _Services(names.SERVICE_NAME, OneOrMany(SERVICE))


WELL_KNOWN = (
    # The ground that everything stands on
    Service("ssh", (22,), _TCP),
    Service("telnet", (23,), _TCP),
    Service("dns", (53, 853), _BOTH),
    Service("dhcp", (67, 68, 547), _UDP),
    Service("ntp", (123,), _UDP),
    Service("ptp", (319, 320), _UDP),
    Service("http", (80, 8080), _TCP),
    Service("https", (443, 8443), _TCP),
    Service("quic", (443,), _UDP),
    Service("kerberos", (88,), _BOTH),
    Service("ldap", (389, 636), _TCP),
    Service("vxlan", (4789,), _UDP),
    Service("bgp", (179,), _TCP),
    Service("bfd", (3784,), _UDP),
    # Storage
    Service("nfs", (111, 2049, 20048), _BOTH),
    Service("nfs-rdma", (20049,), _BOTH),
    Service("smb", (445,), _TCP),
    Service("iscsi", (3260,), _TCP),
    Service("nvme-of", (4420, 8009), _TCP),
    Service("lustre", (988,), _TCP),
    Service("ceph", (3300, 6789, *range(6800, 6817), *range(6821, 7301)), _TCP),  # less what Slurm has
    Service("beegfs", (8003, 8004, 8005, 8006, 8007, 8008), _BOTH),
    Service("gpfs", (1191,), _TCP),
    Service("weka", (14000, 14100, 14200, 14300), _BOTH),
    Service("s3", (9000,), _TCP),
    Service("rsync", (873,), _TCP),
    # Training and inference
    Service("rocev2", (ROCE_PORT,), _UDP),
    Service("rendezvous", (29400, 29500), _TCP),
    Service("ray", (6379, 8265, 10001), _TCP),
    Service("inference-api", (8000, 8001, 8002), _TCP),  # vLLM, Triton
    Service("grpc", (50051,), _TCP),
    Service("tensorboard", (6006,), _TCP),
    Service("jupyter", (8888,), _TCP),
    # Scheduling
    Service("slurm", (6817, 6818, 6819, 6820), _TCP),
    Service("kubernetes", (6443, 10250, 10256), _TCP),
    Service("etcd", (2379, 2380), _TCP),
    # Management and watching
    Service("ipmi", (623,), _UDP),
    Service("snmp", (161, 162), _UDP),
    Service("syslog", (514, 6514), _BOTH),
    Service("netconf", (830,), _TCP),
    Service("gnmi", (9339, 57400), _TCP),
    Service("netflow", (2055, 4739, 9995), _UDP),
    Service("sflow", (6343,), _UDP),
    Service("prometheus", (9090, 9093, 9100, 9400), _TCP),
    Service("grafana", (3000,), _TCP),
    Service("influxdb", (8086,), _TCP),
    Service("kafka", (9092, 9094), _TCP),
    Service("postgresql", (5432,), _TCP),
    Service("mysql", (3306,), _TCP),
    Service("rdp", (3389,), _TCP),
    Service("vnc", (5900, 5901), _TCP),
)


def build_services(tables: dict[str, Placed[list[Placed[Table]]]], faults: Faults) -> tuple[Service, ...]:
    """Return the file's services and the well-known ones, and record ports that two have."""
    own = []
    owners: dict[tuple[int, int], str] = {}
    for name, placed in tables.items():
        for part in placed.value:
            table = part.value
            ports = [port for run in table.get("ports", []) for port in range(run.value[0], run.value[1] + 1)]
            protocols = _protocols(table)
            for run in table.get("ports", []):
                pairs = [(protocol, port) for protocol in protocols for port in range(run.value[0], run.value[1] + 1)]
                taken = next((pair for pair in pairs if pair in owners), None)
                if taken is not None:
                    hint = f"{owners[taken]} has it already"
                    faults.add(run.path, str(taken[1]), "each port of a protocol once", hint)
                owners |= dict.fromkeys(pairs, name)
            own.append(Service(name, tuple(ports), protocols))
    return with_well_known(tuple(own))


def _protocols(table: Table) -> tuple[int, ...]:
    if "protocols" not in table:
        return ()
    given: list[Placed[int]] | None = table["protocols"]
    return _BOTH if given is None else tuple(item.value for item in given)


def check_services(given: list[Placed[str]], services: Iterable[Service], faults: Faults) -> None:
    """Record services of a list that nobody has named."""
    known = {service.name for service in services}
    for service in given:
        if service.value not in known:
            expected = "a service of this file or a well-known one"
            faults.add(service.path, service.value, expected, closest(service.value, known))


def with_well_known(own: tuple[Service, ...]) -> tuple[Service, ...]:
    """Return the user's services, then the well-known ones less the names and the ports that the user took."""
    taken = {(protocol, port) for service in own for protocol in service.protocols for port in service.ports}
    names = {service.name for service in own}
    rest = [part for service in WELL_KNOWN if service.name not in names for part in _without(service, taken)]
    return (*own, *rest)


def _without(service: Service, taken: set[tuple[int, int]]) -> list[Service]:
    """Return what is left of a service: one for each set of protocols that some of its ports still have."""
    left: dict[tuple[int, ...], list[int]] = {}
    for port in service.ports:
        free = tuple(protocol for protocol in service.protocols if (protocol, port) not in taken)
        if free:
            left.setdefault(free, []).append(port)
    return [Service(service.name, tuple(ports), protocols) for protocols, ports in left.items()]


def port_runs(ports: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return ports as first and last of each run of consecutive ones, in their order; runs of two stay apart."""
    runs: list[tuple[int, int]] = []
    for port in ports:
        if runs and port == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], port)
        else:
            runs.append((port, port))
    return [
        part
        for first, last in runs
        for part in ([(first, last)] if last - first != 1 else [(first, first), (last, last)])
    ]
