"""What is fed with any bytes: a function for each reader. `scripts/fuzz` looks for bytes that break one, by coverage.

Whatever stands in a file or a message, its reader says what it holds, or raises the errors that it promises; within
SECONDS of processor time. A first byte chooses the format where a reader knows several, or the part that is damaged
where a whole has checksums that nothing random would pass.
"""

import gzip
import io
import json
import shutil
import sqlite3
import tarfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from zoneinfo import ZoneInfo

import polars as pl

from analysis.jobs.job_records import read_csv, read_json
from analysis.jobs.job_source import AskError
from analysis.jobs.sources.slurm import records_of
from app.errors import ClusterflowError
from app.sqlite_file import VERSION as SQLITE_FORMAT
from cluster.load import load_cluster
from cluster.model import (
    ApplicationFile,
    ApplicationFormat,
    FeedColumns,
    FeedFormat,
    IdentitySettings,
    NamesFile,
    NamesFormat,
    SignInColumns,
    SignInFormat,
    SignInSource,
    Site,
    SlurmJobs,
    ThreatFeed,
)
from delivery.queue import FILE as EVENTS
from delivery.queue import Spool as EventSpool
from enrichment.addresses.application_files import load_applications
from enrichment.addresses.host_files import load_names
from enrichment.addresses.mmdb import load_mmdb
from enrichment.addresses.prefixes import address_keys
from enrichment.feeds.feed import Refused
from enrichment.feeds.feed_files import read_feed
from enrichment.identity.signin_sources import Identity
from ingest.checkpoint import MANIFEST, Checkpoint
from ingest.checkpoint import VERSION as CHECKPOINT_FORMAT
from ingest.count.sequence import SequenceTracker
from ingest.kafka import partition_state, relay_status
from ingest.kafka.flow_messages import Kind, decode, encode
from ingest.read.counter_samples import SAMPLE_SCHEMA, read_counter_samples
from ingest.read.numbered import Habits
from ingest.read.readers import format_after, read_chunk, sniff
from ingest.read.records import DEAD_SCHEMA, PRINTED_COLUMNS, RECORD_SCHEMA, SPOOL_COLUMNS
from ingest.read.spool import Spool
from operations.backup.backup_file import FORMAT, unpack
from simulate.mmdb_file import write_mmdb
from simulate.scenarios.script import library, load_script

SECONDS = 5.0
"""Of processor time that an input may take; with coverage counted, a reader takes a few times as long as without."""

LONGEST = 1 << 14
"""Bytes of an input: what takes too long or too much at this size would do so by its form, not by its length."""

REPOSITORY = Path(__file__).resolve().parents[2]
TESTS = REPOSITORY / "tests"
DEMO = REPOSITORY / "cluster.yaml"


@dataclass(frozen=True)
class Target:
    """A reader.

    Attributes:
        read: has it read bytes, in a folder of its own that is empty at the first time.
        seeds: inputs to begin with.
        errors: what it may raise.
    """

    read: Callable[[bytes, Path], object]
    seeds: Callable[[], Iterable[bytes]]
    errors: tuple[type[Exception], ...] = (ClusterflowError,)


def check(target: Target, data: bytes, folder: Path, seconds: float = SECONDS) -> None:
    """Have a target read; AssertionError, or whatever it raised, where it breaks its promise."""
    began = time.process_time()
    try:
        target.read(data, folder)
    except target.errors as error:
        lines = error.lines() if isinstance(error, ClusterflowError) else []
        assert all(line.isprintable() for line in lines), lines
    took = time.process_time() - began
    assert took < seconds, f"{took:.1f} s of processor time"


def _file(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def _fresh(folder: Path, name: str) -> Path:
    """Return an empty folder."""
    shutil.rmtree(folder / name, ignore_errors=True)
    (folder / name).mkdir()
    return folder / name


def _chosen(data: bytes) -> tuple[int, bytes]:
    return (data[0], data[1:]) if data else (0, b"")


# -- what people write -------------------------------------------------------------------------------------


def _configuration(data: bytes, folder: Path) -> None:
    load_cluster(_file(folder, "cluster.yaml", data))


def _inventory(data: bytes, folder: Path) -> None:
    _file(folder, "nodes.csv", data)
    load_cluster(_file(folder, "cluster.yaml", _WITH_INVENTORY))


_WITH_INVENTORY = b"""cluster: lab
inventory: nodes.csv
groups:
  training: {role: training, prefixes: [10.0.0.0/8, "fd00::/8"]}
  storage: {role: storage, prefixes: [192.168.0.0/16]}
"""


def _scenario(data: bytes, folder: Path) -> None:
    load_script(_file(folder, "scenario.yaml", data))


def _texts(*paths: Path) -> Iterator[bytes]:
    return (path.read_bytes() for path in paths)


def _jobs(data: bytes, _: Path) -> None:
    """What hooks and exports say of jobs, and Slurm."""
    kind, content = _chosen(data)
    text = content.decode("utf-8", "replace")
    zone = ZoneInfo("Europe/Amsterdam")
    if kind % 3 == 0:
        read_json(text, "jobs.json", zone)
    elif kind % 3 == 1:
        read_csv(text, "jobs.csv", zone)
    else:
        with suppress(ValueError, RecursionError):
            list(records_of(json.loads(text), SlurmJobs("slurm"), _NOW))


# -- what the collector and relays write -----------------------------------------------------------------------


def _flows(data: bytes, _: Path) -> None:
    """A file in two pieces, as one is that grows."""
    fmt, habits, tracker = sniff(data), Habits(), SequenceTracker()
    cut = data.find(b"\n", len(data) // 2) + 1
    for piece in (data[:cut], data[cut:]):
        parsed = read_chunk(piece, fmt, habits)
        assert dict(parsed.frame.schema) == RECORD_SCHEMA
        assert dict(parsed.dead.schema) == DEAD_SCHEMA
        tracker.lost(parsed.frame, is_numbered=parsed.is_numbered)
        fmt = format_after(piece, fmt)


_SPOOLED = ("flows.csv", "flows.json", "flows.csv.gz", "flows.json.gz")


def _spool(data: bytes, folder: Path) -> None:
    kind, content = _chosen(data)
    spool = _fresh(folder, "spool")
    _file(spool, _SPOOLED[kind % len(_SPOOLED)], content)
    with Spool(spool, once=True) as source:
        while not source.is_finished:
            chunk = source.next_chunk(1 << 16)
            if chunk is not None:
                json.dumps(chunk.position)
                read_chunk(chunk.raw, chunk.fmt)


def _counters(data: bytes, _: Path) -> None:
    assert dict(read_counter_samples(data).frame.schema) == SAMPLE_SCHEMA


def _message(data: bytes, _: Path) -> None:
    kind, content = _chosen(data)
    if kind % 2:
        # Changed in length, a header would not be found.
        head, _, rows = content.partition(b"\n")
        content = b"cfr\x03" + len(head).to_bytes(4, "little") + head + rows
    decode(content)


def _checkpoint(data: bytes, folder: Path) -> None:
    kind, content = _chosen(data)
    state = _fresh(folder, "state")
    _file(state, "traffic-1.arrow", content if kind % 2 else _arrow())
    _file(state, MANIFEST, _MANIFEST if kind % 2 else content)
    checkpoint = Checkpoint(state)
    try:
        checkpoint.load()
    finally:
        checkpoint.close()


@cache
def _arrow() -> bytes:
    buffer = io.BytesIO()
    pl.DataFrame({"window": [10, 20, 30], "src": ["a", None, "a name that is long"]}).write_ipc(
        buffer, compression="lz4"
    )
    return buffer.getvalue()


_MANIFEST = json.dumps(
    {
        "version": CHECKPOINT_FORMAT,
        "generation": 1,
        "files": {"traffic": "traffic-1.arrow"},
        "kept": {"kept-traffic-3-1.arrow": [3, "traffic"]},
        "notes": {"window": 10, "position": {}},
    }
).encode()


def _worker_state(data: bytes, _: Path) -> None:
    kind, content = _chosen(data)
    values = {b"notes/0/0": _NOTES, b"traffic/10/0": _arrow_stream()}
    partition_state.remembered({**values, (b"traffic/10/0" if kind % 2 else b"notes/0/0"): content}, "state[0]")


_NOTES = json.dumps({"version": partition_state.VERSION, "engine": {"newest": None}}).encode()


@cache
def _arrow_stream() -> bytes:
    buffer = io.BytesIO()
    pl.DataFrame({"window": [10, 20], "src": ["a", None]}).write_ipc_stream(buffer, compression="uncompressed")
    return buffer.getvalue()


def _events(data: bytes, folder: Path) -> None:
    """A spool of events: its file as it is, or its events."""
    kind, content = _chosen(data)
    state = _fresh(folder, "events")
    if kind % 2:
        _file(state, EVENTS, content)
    else:
        spool = EventSpool(state, 1 << 20)
        spool.register(["siem"])
        spool.append([{}] * (content.count(b"\n") + 1), {})
        spool.close()
        with closing(sqlite3.connect(state / EVENTS)) as file, file:
            texts = ((line, number) for number, line in enumerate(content.split(b"\n")))
            file.executemany("UPDATE event SET text = ? WHERE number = ?", texts)
    spool = EventSpool(state, 1 << 20)
    try:
        spool.register(["siem"])
        while (batch := spool.read("siem", 2, 0)) is not None:
            spool.delivered("siem", batch.next)
    finally:
        spool.close()


def _backup(data: bytes, folder: Path) -> None:
    """A backup's file as it is; the archive in it; or its manifest."""
    kind, content = _chosen(data)
    if kind % 3 == 1:
        content = gzip.compress(content, 1)
    elif kind % 3 == 2:
        content = gzip.compress(_archive(content), 1)
    unpack(_file(folder, "site.tar.gz", content), _fresh(folder, "unpacked"))


def _archive(manifest: bytes) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for name, content in (("backup.json", manifest), ("config/cluster.yaml", _SAVED)):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return raw.getvalue()


_SAVED = b"cluster: lab\n"


# -- what others write -----------------------------------------------------------------------------------------


def _mmdb(data: bytes, folder: Path) -> None:
    known = load_mmdb(_file(folder, "places.mmdb", data)).value
    keys, _ = address_keys(("203.0.113.9", "198.51.100.200", "2001:db8::1", "::"))
    known.places(keys)


_FEEDS = tuple(FeedFormat)


def _feed(data: bytes, folder: Path) -> None:
    kind, content = _chosen(data)
    path = _file(folder, "feed", content)
    columns = FeedColumns("ip", "confidence", "first_seen", "last_seen")
    settings = ThreatFeed("bad", str(path), _FEEDS[kind % len(_FEEDS)], columns, 50, 10)
    before = read_feed(path, settings, _refused())
    read_feed(path, settings, _refused(), before.value)


@cache
def _refused() -> Refused:
    return Refused(load_cluster(DEMO))


_NAMES = tuple(NamesFormat)


def _names(data: bytes, folder: Path) -> None:
    kind, content = _chosen(data)
    path = _file(folder, "names", content)
    load_names(NamesFile("names", str(path), _NAMES[kind % len(_NAMES)]), path)


_LISTS = tuple(ApplicationFormat)


def _applications(data: bytes, folder: Path) -> None:
    kind, content = _chosen(data)
    path = _file(folder, "list", content)
    form = _LISTS[kind % len(_LISTS)]
    told = "" if form is ApplicationFormat.LIST else "Cloud"
    table = load_applications(ApplicationFile("list", str(path), form, told), path).value
    table.by_address(["203.0.113.1", "2001:db8::1"])
    table.by_name("a.b.hub.example")


_SIGN_INS = tuple(SignInFormat)
_NOW = datetime(2026, 7, 7, 9, tzinfo=UTC).timestamp()
_MAPPED: Mapping[SignInFormat, tuple[SignInColumns, tuple[str, ...], tuple[str, ...]]] = {
    SignInFormat.CSV: (SignInColumns("client_ip", "login", "at", "what"), ("login",), ("logout",)),
    SignInFormat.JSON: (SignInColumns("client.ip", "who.name", "ts"), (), ()),
}


def _sign_ins(data: bytes, folder: Path) -> None:
    """All that a service does with an export, which ends nothing whatever it holds."""
    kind, content = _chosen(data)
    form = _SIGN_INS[kind % len(_SIGN_INS)]
    path = _file(folder, "export", content)
    source = SignInSource("it", form, str(path), None, None, *_MAPPED.get(form, (None, (), ())))
    site = Site(ZoneInfo("Europe/Amsterdam"))
    identity = Identity(IdentitySettings((source,), 900, ("EXAMPLE.ORG",)), site, 7 * 86_400)
    identity._read(_NOW)
    identity.table.user_at(["10.8.0.6"], [int(_NOW)])
    for reading in identity.readings():
        assert not reading.broken or reading.error


# -- where to begin --------------------------------------------------------------------------------------------


def _configurations() -> Iterator[bytes]:
    return _texts(DEMO, TESTS / "cluster/rich.yaml", *sorted((TESTS / "cluster/broken").glob("*.yaml")))


def _scenarios() -> Iterator[bytes]:
    """Those that are read quickly."""
    return (text for text in _texts(*library()) if b"nodes" not in text and b"settings" not in text)


def _flow_files() -> Iterator[bytes]:
    record = "127.0.0.1,1,2,10.1.0.1,10.1.0.2,1,2,24,6,0,1,0.0,0.0,1795295340.522000,1,5,0,1,1,613"
    for columns, line in ((SPOOL_COLUMNS, record), (PRINTED_COLUMNS, f"1000001,{record}")):
        yield f"{','.join(columns)}\n{line}\n--START (1)--\n{line}\n{line}x\n--END (1)--\n".encode()
        yield f"{line}\n{line}\n".encode()
    yield (
        b"PACKETS;BYTES;SRC_IP;DST_IP;PROTOCOL;TIMESTAMP_START\n1;2;10.0.0.1;10.0.0.2;tcp;2026-03-29 02:30:00.5\n"
        b"1;2;10.0.0.1;10.0.0.2;udp;2026-03-29T01:30:00Z\n"
    )
    one = {"event_type": "purge", "ip_src": "10.1.0.1", "ip_dst": "10.1.0.2", "bytes": 5, "packets": 1, "flows": 1}
    more = {"ip_proto": "tcp", "tcp_flags": "24", "timestamp_start": "2026-03-01 10:00:00.1", "port_src": 5, "tos": 0}
    yield b'{"event_type": "purge_init"}\n' + f"{json.dumps(one)}\n{json.dumps(one | more)}\n".encode() * 2
    yield f"{json.dumps(one | more)}\n{{x}}\n".encode()


def _spool_files() -> Iterator[bytes]:
    for text in _flow_files():
        kind = 1 if text.startswith(b"{") else 0
        yield bytes([kind]) + text
        yield bytes([kind + 2]) + gzip.compress(text, 1)


def _counter_files() -> Iterator[bytes]:
    sample = {
        "peer_ip_src": "10.0.0.1", "sf_cnt_type": "sflow_cnt_generic", "ifIndex": 3, "sflow_cnt_seq": 7,
        "timestamp": "2026-01-02 03:04:05", "ifSpeed": 100_000_000_000, "ifInOctets": 5, "ifOutOctets": -1,
        "ifInErrors": 0,
    }  # fmt: skip
    yield f"{json.dumps(sample)}\n".encode() * 2
    yield f"{json.dumps(sample | {'ifInOctets': None, 'ifIndex': '3'})}\n{{}}\n".encode()


def _messages() -> Iterator[bytes]:
    flow = dict.fromkeys(RECORD_SCHEMA) | {
        "exporter": "10.0.0.1", "src": "10.1.0.1", "dst": "2001:db8::1234:5678", "src_port": 1, "dst_port": 2,
        "tcp_flags": 0, "tos": 0, "sampling_rate": 1, "bytes": 1500, "packets": 1, "flows": 1,
        "arrival": 1_790_000_000_000,
    }  # fmt: skip
    sample = dict.fromkeys(SAMPLE_SCHEMA) | {"exporter": "10.0.0.1", "index": 3, "moment": 1_790_000_000_000, "seq": 7}
    status = dict.fromkeys(relay_status.STATUS_SCHEMA, 5)
    frames = {
        Kind.RECORDS: pl.DataFrame([flow] * 3, schema=RECORD_SCHEMA),
        Kind.COUNTERS: pl.DataFrame([sample] * 2, schema=SAMPLE_SCHEMA),
        Kind.STATUS: pl.DataFrame([status], schema=relay_status.STATUS_SCHEMA),
    }
    for kind, frame in frames.items():
        told = {"refused leaf-1": 3, "unreadable 10.0.0.1": 1} if kind is Kind.STATUS else None
        (value,) = encode(frame, relay="relay-a", kind=kind, lost={"10.0.0.1": 3}, told=told)
        body = 8 + int.from_bytes(value[4:8], "little")
        yield b"\x00" + value
        yield b"\x01" + value[8:body] + b"\n" + value[body:]


def _event_spools() -> Iterator[bytes]:
    records = (
        {"first": 0, "events": [], "notes": {"alerts": {"until": 5}}},
        {"first": 0, "events": [{"id": "a"}, {"id": "b"}], "changes": {"alerts": {"until": 6}}},
        {"first": 2, "events": [{"id": "c"}], "changes": {}},
    )
    text = "\n".join(map(json.dumps, records)).encode()
    yield b"\x00" + text
    yield b"\x01" + b"".join(b"%08x %b\n" % (zlib.crc32(line), line) for line in text.split(b"\n"))
    yield b"\x021\n"


def _backups() -> Iterator[bytes]:
    manifest = {
        "format": FORMAT, "clusterflow": "0.1.0", "made": 1_790_000_000, "checkpoint_format": CHECKPOINT_FORMAT,
        "sqlite_format": SQLITE_FORMAT, "config": "cluster.yaml", "state": "/var/lib", "delivery": "",
        "files": {"config/cluster.yaml": {"bytes": len(_SAVED), "sha256": sha256(_SAVED).hexdigest()}},
    }  # fmt: skip
    text = json.dumps(manifest).encode()
    yield b"\x00" + gzip.compress(_archive(text), 1)
    yield b"\x01" + _archive(text).rstrip(b"\0") + bytes(1024)
    yield b"\x02" + text


def _mmdb_files() -> Iterator[bytes]:
    city = {"country": {"iso_code": "NL"}, "city": {"names": {"en": "Delft"}}, "location": {"radius": 5}}
    network = {"autonomous_system_number": 64500, "autonomous_system_organization": "Example"}
    flat = {"country_code": "DE", "asn": "AS64500", "as_name": "Example", "as_domain": "example.org"}
    with TemporaryDirectory() as scratch:
        path = Path(scratch) / "x.mmdb"
        for kind, record in (("City", city), ("ASN", network), ("ipinfo lite", flat), ("ISP", {"traits": network})):
            rows = [("203.0.113.0/24", record), ("198.51.100.128/25", record), ("2001:db8::/32", {"x": "y"})]
            write_mmdb(path, kind, rows, built=1_790_000_000)
            yield path.read_bytes()


def _formats(samples: Mapping[str, Iterable[bytes]], formats: tuple[str, ...]) -> Iterator[bytes]:
    for kind, texts in samples.items():
        for text in texts:
            yield bytes([formats.index(kind)]) + text


def _feeds() -> Iterator[bytes]:
    pattern = "[ipv4-addr:value = '203.0.113.9'] OR [ipv6-addr:value ISSUBSET '2001:db8:66::/48']"
    indicator = {
        "type": "indicator", "id": "indicator--1", "pattern": pattern, "pattern_type": "stix", "confidence": 80,
        "valid_from": "2026-05-01T12:00:00Z", "valid_until": "2026-06-01T12:00:00Z", "modified": "2026-05-01T12:00:00Z",
    }  # fmt: skip
    several = indicator | {"id": "2", "pattern": "[ipv4-addr:value IN ('203.0.113.9', '198.51.100.0/24')]"}
    bundle = {"type": "bundle", "objects": [indicator, several, indicator | {"revoked": True}]}
    samples: dict[str, Iterable[bytes]] = {
        FeedFormat.LIST: [b"# a list\n203.0.113.9 # one\n198.51.100.0/24;x\n2001:db8:66::/48\n203.0.113.9:443\n"],
        FeedFormat.CSV: [
            b'# "first_seen","ip","confidence","last_seen"\n"2026-05-01","203.0.113.9","80%","2026-06-01 UTC"\n',
            b"ip;confidence;first_seen;last_seen\n198.51.100.0/24;7;1777636800;\n",
        ],
        FeedFormat.STIX: [json.dumps(bundle).encode()],
        FeedFormat.MISP: _texts(TESTS / "enrichment/samples/misp-event.json"),
    }
    return _formats(samples, _FEEDS)


def _name_files() -> Iterator[bytes]:
    samples: dict[str, Iterable[bytes]] = {
        NamesFormat.HOSTS: [b"203.0.113.9 mirror.example.org mirror # x\n::ffff:198.51.100.7 b.example.org.\n1 bad;\n"],
        NamesFormat.CSV: [b'address,vrf,dns_name,description\n203.0.113.9/32,,a.example.org,"a ""b"", c"\n'],
        NamesFormat.JSON: [b'{"results": [{"address": "203.0.113.20/24", "dns_name": "json.example.org"}, {"x": 1}]}'],
    }
    return _formats(samples, _NAMES)


def _application_files() -> Iterator[bytes]:
    listed = (
        b"source: a test\ndated: 2026-01-31\napplications:\n"
        b"  - application: model  hub\n    hosts: [hub.example, CDN.Hub.Example.]\n    prefixes: [203.0.113.0/24]\n"
    )
    aws = {"ip_prefix": "198.51.100.0/24", "service": "S3"}, {"ipv6_prefix": "2001:db8:aaaa::/48", "service": "AMAZON"}
    azure = {"systemService": "AzureStorage", "addressPrefixes": ["192.0.2.0/24", "2001:db8:cccc::/48"]}
    google = [{"ipv4Prefix": "198.51.100.0/24"}, {"ipv6Prefix": "2001:db8:bbb0::/44"}]
    documents: dict[str, object] = {
        ApplicationFormat.AWS: {
            "syncToken": "17", "createDate": "2026-02-03-04-05-06", "prefixes": aws[:1], "ipv6_prefixes": aws[1:]
        },
        ApplicationFormat.GOOGLE: {"creationTime": "2026-02-03T04:05:06.7890", "prefixes": google},
        ApplicationFormat.AZURE: {"changeNumber": 391, "values": [{"name": "Storage", "properties": azure}]},
        ApplicationFormat.FASTLY: {"addresses": ["192.0.2.0/24"], "ipv6_addresses": ["2001:db8:dddd::/48"]},
    }  # fmt: skip
    samples: dict[str, Iterable[bytes]] = {
        ApplicationFormat.LIST: [listed, (REPOSITORY / "enrichment/addresses/applications.yaml").read_bytes()[:4000]],
        ApplicationFormat.PREFIXES: [b"# x\n192.0.2.0/24 x\n2001:db8::/32\n"],
        **{kind: [json.dumps(document).encode()] for kind, document in documents.items()},
    }
    return _formats(samples, _LISTS)


def _exports() -> Iterator[bytes]:
    places = {
        SignInFormat.OPENVPN_STATUS: ("openvpn-status-1.log", "openvpn-status-2.log"),
        SignInFormat.OPENVPN_LOG: ("openvpn.log",),
        SignInFormat.CISCO_ASA: ("cisco-asa.log",),
        SignInFormat.RADIUS_DETAIL: ("radius-detail",),
        SignInFormat.RADIUS_JSON: ("radius.jsonl",),
        SignInFormat.WINDOWS_JSON: ("windows.jsonl",),
        SignInFormat.WINDOWS_CSV: ("windows.csv",),
        SignInFormat.ENTRA_JSON: ("entra-graph.json", "entra-diagnostic.jsonl"),
        SignInFormat.ENTRA_CSV: ("entra-portal.csv",),
        SignInFormat.OKTA_JSON: ("okta.jsonl",),
        SignInFormat.CSV: ("badge.csv",),
        SignInFormat.JSON: ("gateway.jsonl",),
    }
    folder = TESTS / "enrichment/signins"
    return _formats({kind: _texts(*(folder / name for name in names)) for kind, names in places.items()}, _SIGN_INS)


def _job_files() -> Iterator[bytes]:
    more = {"class": "llm", "end": "2026-03-01T09:01:00Z", "outcome": "failed"}
    one = {"id": 4711, "nodes": "gpu-[01-02],b{1..2}", "start": "2026-03-01 09:00"}
    yield b"\x00" + json.dumps({"jobs": [one, one | more | {"id": "b", "nodes": ["a", "n[1-2]x[1,3]"]}]}).encode()
    yield b'\x01id,class,nodes,start,end,outcome\n1,llm,"gpu-[1-2],x",1772352060.7,2026-03-01T09:01:00Z,failed\n'
    times = {"start_time": {"set": True, "number": 1_783_000_000}, "end_time": {"set": True, "number": 1_783_086_400}}
    flat = {"job_id": 17, "job_state": ["RUNNING"], "partition": "gpu", "name": "x", "nodes": "gpu-[01-04]"}
    array = {"array_job_id": {"set": True, "number": 3}, "array_task_id": {"set": False, "number": 0}}
    told = {"state": {"current": ["FAILED"]}, "time": {"start": 1_783_000_000, "end": 1_783_003_600, "elapsed": 3600}}
    document = {"meta": {"slurm": {"version": {"major": "24"}}}, "jobs": [flat | times | array, {**flat, **told}]}
    yield b"\x02" + json.dumps(document).encode()


_TOLD = (ClusterflowError, OSError, ValueError)
"""What those who watch a file expect of its loader."""

TARGETS = {
    "configuration": Target(_configuration, _configurations),
    "inventory": Target(_inventory, lambda: _texts(TESTS / "cluster/rich.csv", TESTS / "cluster/broken/inventory.csv")),
    "scenario": Target(_scenario, _scenarios),
    "jobs": Target(_jobs, _job_files, (ClusterflowError, AskError)),
    "flows": Target(_flows, _flow_files, ()),
    "spool": Target(_spool, _spool_files),
    "counters": Target(_counters, _counter_files, ()),
    "message": Target(_message, _messages),
    "checkpoint": Target(_checkpoint, lambda: (b"\x00" + _MANIFEST, b"\x01" + _arrow())),
    "worker-state": Target(_worker_state, lambda: (b"\x00" + _NOTES, b"\x01" + _arrow_stream())),
    "events": Target(_events, _event_spools),
    "backup": Target(_backup, _backups),
    "mmdb": Target(_mmdb, _mmdb_files),
    "feed": Target(_feed, _feeds, _TOLD),
    "names": Target(_names, _name_files, _TOLD),
    "applications": Target(_applications, _application_files, _TOLD),
    "sign-ins": Target(_sign_ins, _exports, ()),
}
