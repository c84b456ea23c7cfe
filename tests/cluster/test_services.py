from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.model import Service
from cluster.sections.network.services import WELL_KNOWN, port_runs, with_well_known


def owners(services: tuple[Service, ...]) -> dict[tuple[int, int], str]:
    """Every (protocol, port) with its service; a second owner fails."""
    found: dict[tuple[int, int], str] = {}
    for service in services:
        for protocol in service.protocols:
            for port in service.ports:
                assert (protocol, port) not in found, (service.name, port)
                found[protocol, port] = service.name
    return found


def test_each_port_has_one_well_known_service() -> None:
    assert owners(WELL_KNOWN)[17, 4791] == "rocev2"


def test_own_services_take_ports_and_names() -> None:
    own = (Service("checkpoint", (2049,), (6,)), Service("https", (9443,), (6,)))
    by_port = owners(with_well_known(own))
    assert by_port[6, 2049] == "checkpoint"
    assert by_port[17, 2049] == "nfs"
    assert by_port[6, 111] == "nfs"
    assert by_port[6, 9443] == "https"
    assert (6, 443) not in by_port


own_services = st.lists(
    st.builds(
        Service,
        st.sampled_from(["mine", "nfs", "slurm", "ceph"]),
        st.lists(st.integers(1, 65_535), min_size=1, max_size=5, unique=True).map(tuple),
        st.sampled_from([(6,), (17,), (6, 17)]),
    ),
    max_size=1,
).map(tuple)


@settings(deadline=None)
@given(own_services)
def test_merging_again_changes_nothing(own: tuple[Service, ...]) -> None:
    merged = with_well_known(own)
    owners(merged)
    assert with_well_known(merged) == merged


@settings(deadline=None)
@given(st.lists(st.integers(1, 40), unique=True).map(tuple))
def test_runs_are_the_ports_in_order(ports: tuple[int, ...]) -> None:
    assert [port for first, last in port_runs(ports) for port in range(first, last + 1)] == [*ports]
