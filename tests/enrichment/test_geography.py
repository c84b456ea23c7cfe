"""Country, city and network of addresses, by MMDB files in the layouts of their makers."""

import gzip
import os
import random
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from pathlib import Path

import maxminddb
import mmdb_samples as samples
import polars as pl
import pytest
from mmdb_samples import geolite_asn, geolite_city, ipinfo_lite, ipinfo_location

from cluster.load import parse_cluster
from cluster.model import Geography
from enrichment.addresses.geography import GeographyFiles
from enrichment.labels import MOST_CHARACTERS, Labels
from enrichment.providers import labels_of
from store import schema
from store.points import WINDOW, encode

CITIES = [
    ("203.0.113.0/24", geolite_city("NL", "Amsterdam")),
    ("203.0.113.128/25", geolite_city("DE", "Köln")),
    ("198.51.100.0/24", geolite_city("FR")),
    ("2001:db8::/32", geolite_city("JP", "東京")),
    ("2001:db8:1::/48", geolite_city("BR", "São Paulo")),
]
NETWORKS = [
    ("203.0.113.0/24", geolite_asn(64500, "ExampleHost")),
    ("198.51.0.0/16", geolite_asn(4_200_000_001, "Wide Net, Inc.")),
    ("2001:db8::/32", geolite_asn(64501, "Six = Net")),
]


def provider(**paths: Path) -> GeographyFiles:
    found = GeographyFiles(Geography(tuple((name, str(path)) for name, path in paths.items())))
    found.refresh()
    return found


def where(files: GeographyFiles, *addresses: str) -> list[tuple[str, ...]]:
    found = files.label(addresses)
    assert tuple(found) == files.columns
    return list(zip(*found.values(), strict=True))


def test_geolite2_city_and_asn_in_two_files(tmp_path: Path) -> None:
    files = provider(
        city=samples.write(tmp_path / "c.mmdb", "GeoLite2-City", CITIES),
        asn=samples.write(tmp_path / "a.mmdb", "GeoLite2-ASN", NETWORKS),
    )
    found = where(
        files, "203.0.113.9", "203.0.113.200", "198.51.100.7", "198.51.7.7", "2001:db8::1", "2001:db8:1::1", "192.0.2.1"
    )
    assert found == [
        ("NL", "Amsterdam", "AS64500 ExampleHost"),
        ("DE", "Köln", "AS64500 ExampleHost"),
        ("FR", "", "AS4200000001 Wide Net, Inc."),
        ("", "", "AS4200000001 Wide Net, Inc."),
        ("JP", "東京", "AS64501 Six = Net"),
        ("BR", "São Paulo", "AS64501 Six = Net"),
        ("", "", ""),
    ]


def test_country_files_and_files_of_ipv4_only(tmp_path: Path) -> None:
    rows = [("203.0.113.0/24", geolite_city("NL"))]
    files = provider(country=samples.write(tmp_path / "c.mmdb", "DBIP-Country-Lite", rows, version=4))
    asked = where(files, "203.0.113.9", "64:ff9b::203.0.113.9", "2001:db8::1")
    assert asked == [("NL", "", ""), ("NL", "", ""), ("", "", "")]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (ipinfo_lite("NL", 64500, "ExampleHost B.V."), ("NL", "", "AS64500 ExampleHost B.V.")),
        (ipinfo_location("NL", "Amsterdam"), ("NL", "Amsterdam", "")),
        ({"asn": "AS64500", "name": "ExampleHost", "route": "203.0.113.0/24"}, ("", "", "AS64500 ExampleHost")),
        ({"country": "NL", "asn": "AS64500"}, ("NL", "", "AS64500")),
        (
            {"country": {"iso_code": "NL"}, "traits": geolite_asn(64500, "ExampleHost")},
            ("NL", "", "AS64500 ExampleHost"),
        ),
    ],
    ids=["ipinfo lite", "ipinfo location", "ipinfo asn", "no name", "dbip location and isp"],
)
def test_flat_records_and_those_with_traits(
    tmp_path: Path, record: Mapping[str, object], expected: tuple[str, ...]
) -> None:
    files = provider(one=samples.write(tmp_path / "i.mmdb", "sample", [("203.0.113.0/24", record)]))
    assert where(files, "203.0.113.9", "203.0.114.1") == [expected, ("", "", "")]


def test_of_each_thing_the_first_file_counts_that_knows_it(tmp_path: Path) -> None:
    own = [("203.0.113.9/32", {"country": {"iso_code": "CH"}})]
    files = provider(
        own=samples.write(tmp_path / "o.mmdb", "own", own), city=samples.write(tmp_path / "c.mmdb", "City", CITIES)
    )
    assert where(files, "203.0.113.9", "203.0.113.10") == [("CH", "Amsterdam", ""), ("NL", "Amsterdam", "")]


@pytest.mark.long_form
def test_a_thousand_prefixes_within_each_other_say_what_a_plain_look_says(tmp_path: Path) -> None:
    draw = random.Random(7)
    rows = {}
    for number in range(1000):
        length = draw.randint(8, 32)
        base = draw.getrandbits(length) << (32 - length)
        rows[f"{ip_address(base)}/{length}"] = geolite_asn(number + 1, f"Net {number}")
    files = provider(asn=samples.write(tmp_path / "a.mmdb", "ASN", rows.items()))
    addresses = [str(ip_address(draw.getrandbits(32))) for _ in range(500)]
    # Half of them within a prefix.
    addresses += [prefix.partition("/")[0] for prefix in list(rows)[:500]]
    expected = []
    for address in addresses:
        record = samples.owner(rows.items(), address) or {}
        number, name = record.get("autonomous_system_number"), record.get("autonomous_system_organization")
        expected.append(f"AS{number} {name}" if number else "")
    assert files.label(addresses)[schema.NETWORK] == expected
    assert any(expected)
    assert not all(expected)


# -- what is not as it should be ------------------------------------------------------------------------


def test_a_file_says_how_old_it_is_and_where_it_comes_from(tmp_path: Path) -> None:
    path = samples.write(tmp_path / "c.mmdb", "GeoLite2-City", CITIES, built=samples.BUILT - 86_400)
    (reading,) = [file.reading() for file in provider(city=path).files]
    assert (reading.name, reading.kind, reading.error, reading.in_use) == ("city", "geography", "", True)
    assert reading.age(samples.BUILT) == 86_400
    assert reading.origin == "GeoLite2-City sample"
    with maxminddb.open_database(path) as database:
        assert reading.entries == database.metadata().node_count


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-300])


def _anonymous(path: Path) -> None:
    samples.write(path, "GeoIP2-Anonymous-IP", [("203.0.113.0/24", {"is_anonymous": True})])


def _text(path: Path) -> None:
    path.write_text("<html>404 Not Found</html>\n")


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _packed(path: Path) -> None:
    path.write_bytes(gzip.compress(path.read_bytes()))


def _spliced(path: Path) -> None:
    """Keep the end, which opens, and lose what is before it."""
    content = path.read_bytes()
    path.write_bytes(content[:100] + content[-400:])


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (_truncated, "no MMDB file, or only a part of one"),
        (_anonymous, "type GeoIP2-Anonymous-IP: expected country, city or network"),
        (_text, "no MMDB file, or only a part of one"),
        (_empty, "no MMDB file, or only a part of one"),
        (_packed, "compressed: expected the MMDB file itself (gunzip it)"),
        (_spliced, "damaged MMDB file"),
        (Path.unlink, "No such file or directory"),
    ],
)
def test_a_bad_file_is_one_line_and_the_last_good_version_stays(
    tmp_path: Path, spoil: Callable[[Path], None], says: str
) -> None:
    path = samples.write(tmp_path / "c.mmdb", "GeoLite2-City", CITIES)
    files = provider(city=path)
    spoil(path)
    assert not files.refresh()
    (reading,) = [file.reading() for file in files.files]
    assert reading.error.startswith(f"{path}: ")
    assert says in reading.error
    assert "\n" not in reading.error
    assert reading.in_use
    assert where(files, "203.0.113.9") == [("NL", "Amsterdam", "")]
    samples.write(path, "GeoLite2-City", [("203.0.113.0/24", geolite_city("BE"))])
    assert files.refresh()
    assert files.files[0].reading().error == ""
    assert where(files, "203.0.113.9") == [("BE", "", "")]


def test_whoever_cuts_a_file_in_place_cuts_nothing_in_use(tmp_path: Path) -> None:
    path = samples.write(tmp_path / "c.mmdb", "GeoLite2-City", CITIES)
    files = provider(city=path)
    with path.open("r+b") as file:
        file.truncate(10)
    assert where(files, "203.0.113.9") == [("NL", "Amsterdam", "")]


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p")
    assert provider(city=tmp_path / "p").files[0].reading().error == f"{tmp_path / 'p'}: expected a file"


@pytest.mark.parametrize(
    "record",
    [
        {"country": {"iso_code": "N\nL"}, "city": "Amster\ndam,x=1 \\"},
        {"country": {"iso_code": ["NL"]}, "city": {"names": {"en": {"a": "b"}}}},
        {"country": {"iso_code": "NLD"}, "city": {"names": "Amsterdam"}},
        {"country": 7, "city": {"names": {"en": "\x00\x1b[31mAmsterdam\u202e"}}},
        {"asn": "AS99999999999999999999", "name": "x"},
        {"autonomous_system_number": 64500, "autonomous_system_organization": "x\r\ny,z=1 \\"},
        {"autonomous_system_number": "64500", "autonomous_system_organization": 7},
    ],
)
def test_hostile_records_give_labels_that_can_be_stored(tmp_path: Path, record: Mapping[str, object]) -> None:
    rows = [("203.0.113.0/24", record), ("198.51.100.0/24", geolite_city("NL"))]
    files = provider(one=samples.write(tmp_path / "h.mmdb", "hostile", rows))
    assert files.files[0].reading().error == ""
    (found,) = Labels([files]).of(["203.0.113.9"])
    assert all(text.isprintable() and len(text) <= MOST_CHARACTERS for text in found)
    assert found[0] in {"", "NL"}
    tags = {name: [text] for name, text in zip(schema.LABELS, found, strict=True)}
    line = encode(schema.EGRESS, pl.DataFrame({WINDOW: [10], **tags, "bytes": [5]})).decode()
    assert "\n" not in line
    assert line.endswith(" bytes=5i 10")


def test_a_name_of_a_million_characters_is_cut_and_one_of_ten_million_makes_the_file_a_bad_one(tmp_path: Path) -> None:
    path = tmp_path / "h.mmdb"
    files = provider(one=samples.write(path, "hostile", [("203.0.113.0/24", geolite_asn(64500, "x" * 1_000_000))]))
    cut = ("AS64500 " + "x" * MOST_CHARACTERS)[:MOST_CHARACTERS]
    assert files.label(["203.0.113.9"])[schema.NETWORK] == [cut]
    samples.write(path, "hostile", [("203.0.113.0/24", geolite_asn(64500, "x" * 10_000_000))])
    assert not files.refresh()
    assert files.files[0].reading().error == f"{path}: a damaged MMDB file (fetch it again)"
    assert files.label(["203.0.113.9"])[schema.NETWORK] == [cut]


def test_any_wrong_byte_gives_an_answer_or_one_line(tmp_path: Path) -> None:
    """Also in the search tree, and in this process: nothing of it may end."""
    path = samples.write(tmp_path / "c.mmdb", "GeoLite2-City", CITIES)
    whole = path.read_bytes()
    draw = random.Random(11)
    asked = ["203.0.113.9", "198.51.100.7", "2001:db8:1::1", "192.0.2.1"]
    refused = answered = 0
    for _ in range(60):
        content = bytearray(whole)
        content[draw.randrange(len(content))] ^= draw.randint(1, 255)
        path.write_bytes(content)
        files = provider(city=path)
        (reading,) = [file.reading() for file in files.files]
        assert len(where(files, *asked)) == len(asked)
        assert "\n" not in reading.error
        assert reading.in_use != reading.broken
        refused, answered = refused + reading.broken, answered + reading.in_use
    assert refused
    assert answered


@pytest.mark.parametrize("byte", [0x00, 0xFF])
def test_a_search_tree_of_one_byte_is_a_damaged_one(tmp_path: Path, byte: int) -> None:
    """Its nodes lead to themselves, or out of the file."""
    path = samples.write(tmp_path / "c.mmdb", "GeoLite2-City", CITIES)
    with maxminddb.open_database(path) as database:
        size = database.metadata().node_count * database.metadata().record_size // 4
    path.write_bytes(bytes([byte]) * size + path.read_bytes()[size:])
    (reading,) = [file.reading() for file in provider(city=path).files]
    assert reading.error == f"{path}: a damaged MMDB file (fetch it again)"


def test_a_damage_that_a_look_up_meets_is_told_and_the_rest_stays_in_use(tmp_path: Path) -> None:
    path = samples.write(
        tmp_path / "c.mmdb", "GeoLite2-City", [*CITIES, ("203.0.114.9/32", geolite_city("IT", "Hurt"))]
    )
    content = path.read_bytes()
    assert content.count(b"DHurt") == 1
    path.write_bytes(content.replace(b"DHurt", b"D\xff\xff\xff\xff"))
    files = provider(city=path)
    (file,) = files.files
    assert file.reading().error == ""
    assert where(files, "203.0.114.9", "203.0.113.9") == [("", "", ""), ("NL", "Amsterdam", "")]
    reading = file.reading()
    assert reading.error == f"{path}: a damaged MMDB file (fetch it again): nothing is known of 203.0.114.9"
    assert (reading.in_use, reading.broken) == (True, False)


# -- cluster.yaml ------------------------------------------------------------------------------------------


def test_cluster_yaml_names_files_beside_it_and_none_are_needed(tmp_path: Path) -> None:
    text = "cluster: x\ngroups: {training: {role: training, prefixes: [10.20.0.0/16]}}\n"
    assert not labels_of(parse_cluster(text))
    cluster = parse_cluster(f"{text}geography: {{files: {{own: own.mmdb, city: /a/c.mmdb}}}}\n", folder=tmp_path)
    assert cluster.geography.files == (("own", str(tmp_path / "own.mmdb")), ("city", "/a/c.mmdb"))
    samples.write(tmp_path / "own.mmdb", "own", CITIES)
    labels = labels_of(cluster)
    assert [file.name for file in labels.files] == ["own", "city"]
    assert labels.of(["203.0.113.9"]) == [("NL", "Amsterdam", "", "", "")]
