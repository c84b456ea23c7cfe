"""TLS to a real InfluxDB: with an authority of our own, and everything that is not to be trusted."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from influx_place import influxdb, make_authority, make_certificate

from app.errors import ClusterflowError, StoreError, UserError
from cluster.load import load_cluster
from cluster.model import Secret, StoreApi, StoreSettings
from store import schema
from store.influx import Store, StoreUnavailableError
from store.local_influxdb import LocalInfluxDB

CLUSTER = load_cluster(Path(__file__).resolve().parents[2] / "cluster.yaml")


@pytest.fixture(scope="module")
def place(influxdb_v2: LocalInfluxDB, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    folder = tmp_path_factory.mktemp("tls")
    make_authority(folder, "ours")
    make_authority(folder, "theirs")
    make_certificate(folder, "ours", "IP:127.0.0.1")
    with influxdb(influxdb_v2.binary, folder, tls=True) as port:
        yield port, folder


def store_of(place: tuple[int, Path], **changes: object) -> Store:
    port, folder = place
    settings: StoreSettings = replace(
        CLUSTER.store, url=f"https://127.0.0.1:{port}", ca_file=str(folder / "ours.pem"), database="tls"
    )
    return Store(replace(settings, **changes))  # type: ignore[arg-type]


def refusal(store: Store) -> str:
    with pytest.raises(ClusterflowError) as caught:
        store.query("SHOW MEASUREMENTS")
    assert not isinstance(caught.value, StoreUnavailableError), "it would be tried again for ever"
    (line,) = caught.value.lines()
    return line


def test_an_authority_of_our_own_is_trusted_by_both_apis(place: tuple[int, Path], tmp_path: Path) -> None:
    (tmp_path / "token").write_text("user:password")
    plain, v2 = store_of(place), store_of(place, api=StoreApi.V2, token=Secret(file=str(tmp_path / "token")))
    for store in (plain, v2):
        store.ensure(CLUSTER.retentions())
        store.write(b"traffic bytes=1i", schema.RAW)
        assert store.query("SHOW MEASUREMENTS")


def test_a_certificate_of_an_unknown_authority_is_refused_with_a_hint(place: tuple[int, Path]) -> None:
    line = refusal(store_of(place, ca_file=None))
    assert "its certificate is not trusted: " in line
    assert line.endswith("(set store.ca_file to the certificate of its authority)")


def test_another_authority_does_not_help(place: tuple[int, Path]) -> None:
    line = refusal(store_of(place, ca_file=str(place[1] / "theirs.pem")))
    assert "its certificate is not trusted: " in line


def test_the_v2_api_refuses_it_too(place: tuple[int, Path], tmp_path: Path) -> None:
    (tmp_path / "token").write_text("user:password")
    store = store_of(place, ca_file=None, api=StoreApi.V2, token=Secret(file=str(tmp_path / "token")))
    with pytest.raises(StoreError, match="its certificate is not trusted"):
        store.write(b"traffic bytes=1i", schema.RAW)


def test_the_environment_does_not_override_what_is_to_be_trusted(
    place: tuple[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(place[1] / "ours.pem"))
    assert "not trusted" in refusal(store_of(place, ca_file=str(place[1] / "theirs.pem")))


def test_a_certificate_for_another_name_is_refused(place: tuple[int, Path]) -> None:
    line = refusal(store_of(place, url=f"https://localhost:{place[0]}"))
    assert "its certificate is not trusted: " in line
    assert line.endswith("(set store.url to the name in the certificate)")


def test_http_to_a_port_with_tls_and_https_to_one_without(place: tuple[int, Path], influxdb_v1: LocalInfluxDB) -> None:
    assert "HTTPS server" in refusal(store_of(place, url=f"http://127.0.0.1:{place[0]}"))
    line = refusal(store_of(place, url=influxdb_v1.url.replace("http:", "https:")))
    assert line.endswith("it does not speak TLS (set store.url to http://, or enable https there)")


def test_checking_can_be_turned_off_for_a_test_bench(place: tuple[int, Path]) -> None:
    store_of(place, ca_file=None, verify_tls=False).query("SHOW DATABASES")


@pytest.mark.parametrize(("text", "why"), [(None, "No such file"), ("no certificate", "holds no certificate")])
def test_a_file_without_certificates_is_told_before_anything_is_asked(
    place: tuple[int, Path], tmp_path: Path, text: str | None, why: str
) -> None:
    path = tmp_path / "ca.pem"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match=why):
        store_of(place, ca_file=str(path))
