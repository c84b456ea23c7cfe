"""The library: thefts of one model, and days that only look like one. Each is data; `play` judges it.

Inside traffic (a roll-out to inference, a backup, a re-shard of checkpoints) leaves nothing and is in no sum: there is
nothing to judge.
"""

from dataclasses import dataclass

from bench.evasions.scene import DAY, HOUR, MODEL, Tags, talk
from cluster.model import EXTERNAL, UNLISTED

MIDNIGHT = 2 * HOUR
"""Of a Friday, in the cluster's time, from NOW on."""
OFFICE, NOON, WEEKEND = MIDNIGHT + 9 * HOUR, MIDNIGHT + 12 * HOUR, MIDNIGHT + 36 * HOUR


@dataclass(frozen=True)
class Theft:
    """A way to carry a model out, or a day that looks like one.

    Attributes:
        pairs: conversations that share it.
        seconds: how long it takes.
        name: source and destination in the alert; "other" where nobody has most.
        gone: bytes that may have left when it is reported, as a multiple of the limit of 24 hours.
        delay: seconds from NOW to its begin.
        volume: bytes.
        bursts, takes_turns, rate: see `scene.stolen`.
        busy: see `scene.ordinary`.
    """

    pairs: tuple[Tags, ...] = ()
    seconds: int = 20 * HOUR
    name: tuple[str, str] = ("", "")
    gone: float = 1.3
    delay: int = MIDNIGHT
    volume: float = MODEL
    bursts: int = 0
    takes_turns: bool = False
    rate: int = 1
    busy: float = 1.0

    @property
    def is_slow(self) -> bool:
        """Whether it takes longer than a day."""
        return self.seconds > DAY


MANY = tuple(f"203.0.113.{number}" for number in range(20, 60))
CROWD = tuple(f"203.0.{number // 250}.{number % 250 + 1}" for number in range(400))
GPUS = tuple(f"gpu-{number}" for number in range(30))
PARTNERS = tuple(f"198.51.100.{10 + number}" for number in range(3))
ALL = ("store-1", "gpu-1", "nas-1", "infer-1", "mgmt-1")
_STORE, _ONE = "store-1", MANY[0]
_LEARNT = 2.6
"""Where the usual is learnt, its own spread comes on top of the limit."""


def _to_many(src: str, *, answers: bool = False) -> tuple[Tags, ...]:
    return tuple(talk(src, dst, answers=answers, service="https") for dst in MANY)


def _from_gpus() -> tuple[Tags, ...]:
    return tuple(talk(src, _ONE) for src in GPUS)


def _clients(first: str = "192.0.2.", count: int = 60) -> tuple[Tags, ...]:
    return tuple(talk(f"infer-{n % 4}", f"{first}{n + 1}", answers=True, service="api") for n in range(count))


def _stranger(src: str = "10.99.0.1", dst: str = _ONE) -> Tags:
    return talk(src, dst, group=UNLISTED)


THEFTS = {
    # One conversation.
    "one address": Theft((talk(_STORE, _ONE),), 2400, (_STORE, _ONE)),
    "one address, at noon": Theft((talk(_STORE, _ONE),), 2400, (_STORE, _ONE), delay=NOON),
    "one address, at a weekend": Theft((talk(_STORE, _ONE),), 2400, (_STORE, _ONE), delay=WEEKEND),
    "one address, in ten minutes": Theft((talk(_STORE, _ONE),), 600, (_STORE, _ONE), gone=2, delay=NOON),
    "slow over a day": Theft((talk("store-2", MANY[1]),), 23 * HOUR, ("store-2", MANY[1])),
    "in office hours": Theft((talk(_STORE, MANY[1]),), 8 * HOUR, (_STORE, MANY[1]), delay=OFFICE),
    "forty bursts of a minute": Theft((talk(_STORE, _ONE),), 23 * HOUR, (_STORE, _ONE), bursts=40),
    "six bursts of a minute": Theft((talk(_STORE, _ONE),), 23 * HOUR, (_STORE, _ONE), bursts=6, gone=2.1),
    "ipv6": Theft((talk(_STORE, "2001:db8:bad::9"),), name=(_STORE, "2001:db8:bad::9")),
    "ssh": Theft((talk(_STORE, MANY[1], service="ssh"),), name=(_STORE, MANY[1])),
    # By what carries it.
    "GRE": Theft((talk(_STORE, _ONE, proto="gre", service="other"),), name=(_STORE, _ONE)),
    "ESP": Theft((talk(_STORE, _ONE, proto="esp", service="other"),), name=(_STORE, _ONE)),
    "ICMP": Theft((talk("gpu-2", _ONE, proto="icmp", service="other"),), name=("gpu-2", _ONE)),
    "DNS": Theft((talk("gpu-2", _ONE, proto="udp", service="dns"),), name=("gpu-2", _ONE)),
    "UDP 443": Theft((talk("gpu-2", _ONE, proto="udp"),), name=("gpu-2", _ONE)),
    "a port without a service": Theft((talk(_STORE, _ONE, service="other"),), name=(_STORE, _ONE)),
    # Split.
    "many destinations": Theft(_to_many(_STORE), 3600, (_STORE, "other")),
    "fast, to many": Theft(_to_many(_STORE), 1200, (_STORE, "other")),
    "many destinations over a day": Theft(_to_many(_STORE), 23 * HOUR, (_STORE, "other")),
    "400 destinations, one after the other": Theft(
        tuple(talk(_STORE, dst) for dst in CROWD), 23 * HOUR, (_STORE, "other"), takes_turns=True, bursts=400
    ),
    "many sources": Theft(_from_gpus(), 3600, ("other", _ONE)),
    "many sources, one after the other": Theft(_from_gpus(), 23 * HOUR, ("other", _ONE), takes_turns=True),
    "many of both": Theft(tuple(talk(src, dst) for src, dst in zip(GPUS, MANY, strict=False)), 7200),
    "all groups to one": Theft(tuple(talk(src, _ONE) for src in ALL), 23 * HOUR, ("other", _ONE)),
    "all groups to many": Theft(tuple(talk(src, dst) for src in ALL for dst in MANY), 23 * HOUR),
    # By whose hands.
    "opened by inference": Theft((talk("infer-2", MANY[1]),), name=("infer-2", MANY[1])),
    "opened by all of inference": Theft(tuple(talk(f"infer-{n}", MANY[n]) for n in range(4))),
    "management by https": Theft((talk("mgmt-1", MANY[1]),), name=("mgmt-1", MANY[1])),
    "management by ssh, in an hour": Theft((talk("mgmt-1", _ONE, service="ssh"),), 3600, ("mgmt-1", _ONE)),
    "checkpoint storage": Theft((talk("nas-1", MANY[1], service="ssh"),), name=("nas-1", MANY[1])),
    "one training node": Theft((talk("gpu-1", MANY[1]),), name=("gpu-1", MANY[1])),
    "machine nobody knows": Theft((talk("10.20.0.99", MANY[1]),), name=("10.20.0.99", MANY[1])),
    "from a server's port": Theft((talk(_STORE, MANY[1], answers=True),), name=(_STORE, MANY[1])),
    "fetched by outsiders": Theft(_to_many(_STORE, answers=True), 23 * HOUR, (_STORE, "other")),
    "fetched within an hour": Theft((talk("nas-1", _ONE, answers=True),), 3600, ("nas-1", _ONE)),
    "by way of people's machines": Theft(tuple(talk(f"user-{n}", dst) for n, dst in enumerate(MANY[:8])), gone=_LEARNT),
    "by way of one person's machine": Theft((talk("user-3", _ONE),), 3600, gone=_LEARNT),
    # By addresses of no group, or not his own.
    "a source of no group": Theft((_stranger(),), 3600, ("10.99.0.1", _ONE)),
    "a source of no group, over a day": Theft((_stranger(),), 23 * HOUR, ("10.99.0.1", _ONE)),
    "250 sources of no group, to as many": Theft(
        tuple(_stranger(f"10.99.{n}.1", dst) for n, dst in enumerate(CROWD[:250])),
        23 * HOUR,
        takes_turns=True,
        bursts=250,
    ),
    "a forged source, IPv6": Theft((_stranger("fd99::1"),), name=("fd99::1", _ONE)),
    "forged public sources, IPv6": Theft(
        tuple(_stranger(f"2001:db8:f::{n + 1:x}", "2001:db8:bad::9") for n in range(40)),
        name=("other", "2001:db8:bad::9"),
    ),
    "forged from a server's port": Theft(
        (talk("192.0.1.250", _ONE, answers=True, group=EXTERNAL),), name=("192.0.1.250", _ONE), gone=_LEARNT
    ),
    "forged as a partner": Theft(
        (talk(PARTNERS[0], MANY[1], group="partner"),), name=(PARTNERS[0], MANY[1]), gone=_LEARNT
    ),
    "half from a source of no group": Theft((talk(_STORE, _ONE), _stranger(dst=MANY[1])), 23 * HOUR),
    # Behind what is usual.
    "approved addresses": Theft(
        tuple(talk(src, dst) for src in ("store-1", "store-2") for dst in PARTNERS), gone=_LEARNT
    ),
    "approved, never met": Theft((talk(_STORE, "198.51.100.77"),), gone=_LEARNT),
    "approved by another source": Theft((talk("gpu-3", PARTNERS[0]),), name=("gpu-3", PARTNERS[0])),
    "twenty new addresses of a partner": Theft(
        tuple(talk(_STORE, f"198.51.100.{100 + n}") for n in range(20)), gone=_LEARNT
    ),
    "answers to many clients": Theft(_clients(), gone=_LEARNT),
    "answers to new clients": Theft(_clients("192.0.1.", 200), gone=_LEARNT),
    "answers to one client": Theft(
        (talk("infer-0", "192.0.2.1", answers=True, service="api"),), name=("infer-0", "192.0.2.1"), gone=_LEARNT
    ),
    "answers on a busy day": Theft(_clients(), gone=_LEARNT, busy=1.5),
    # By several ways at once.
    "half approved, half not": Theft((talk(_STORE, _ONE), talk("gpu-3", PARTNERS[0])), 23 * HOUR, gone=2),
    "approved, answers and outright": Theft(
        (talk(_STORE, _ONE), talk("gpu-3", PARTNERS[0]), talk("infer-0", "192.0.2.1", answers=True, service="api")),
        gone=_LEARNT,
    ),
    # Seen in samples.
    "sampled 1:1000": Theft((talk(_STORE, _ONE),), name=(_STORE, _ONE), rate=1000),
    "sampled 1:4096, many of both": Theft(
        tuple(talk(src, dst) for src, dst in zip(GPUS, MANY, strict=False)), 23 * HOUR, rate=4096
    ),
    "sampled 1:4096, in an hour": Theft((talk("nas-1", _ONE),), 3600, ("nas-1", _ONE), rate=4096),
    # With patience.
    "over three days": Theft((talk(_STORE, _ONE),), 3 * DAY, (_STORE, _ONE), gone=2.2),
}
"""Each 140 GB, and gone within a day but for the last."""

NEAR_MISSES = {
    "an ordinary day": Theft(),
    "an ordinary weekend": Theft(delay=WEEKEND),
    "a busy day of the API and of people": Theft(busy=2.0),
    "an ordinary fortnight": Theft(seconds=14 * DAY),
    "a busy fortnight of the API and of people": Theft(seconds=14 * DAY, busy=2.0),
    "a busy weekend": Theft(delay=WEEKEND, busy=1.6),
    "a partner's usual sync, a third larger": Theft(
        tuple(talk(_STORE, dst) for dst in PARTNERS), 10 * HOUR, delay=OFFICE, volume=35e9
    ),
    "a partner's sync at night": Theft(tuple(talk("store-2", dst) for dst in PARTNERS), 2 * HOUR, volume=30e9),
    "a new approved destination": Theft((talk("store-2", "198.51.100.99"),), 10 * HOUR, delay=OFFICE, volume=40e9),
    "partners' new addresses": Theft(
        tuple(talk(_STORE, f"198.51.100.{60 + n}") for n in range(10)), 10 * HOUR, delay=OFFICE, volume=30e9
    ),
    "an upgrade day: every machine asks a mirror": Theft(
        tuple(talk(src, "203.0.113.250") for src in (*GPUS, "nas-1", "infer-1", "mgmt-1")), 10 * HOUR,
        delay=OFFICE, volume=12e9,
    ),
    "packages from twenty mirrors, at night": Theft(
        tuple(talk(src, dst) for src, dst in zip(GPUS[:20], MANY, strict=False)), 2 * HOUR, volume=4e9
    ),
    "a download by a stranger": Theft((talk(_STORE, MANY[9], answers=True),), 10 * HOUR, delay=OFFICE, volume=9e9),
    "logs to a provider all day": Theft((talk("mgmt-1", "203.0.113.201"),), 23 * HOUR, volume=15e9),
    "results of an evaluation": Theft((talk("gpu-2", MANY[2]),), HOUR, delay=NOON, volume=20e9),
    "an adapter published": Theft(_to_many(_STORE)[:10], HOUR, delay=NOON, volume=10e9),
    "an adapter published at night": Theft((talk(_STORE, MANY[2]),), 2 * HOUR, volume=1e9),
    "telemetry ten times as much": Theft((talk("mgmt-1", "203.0.113.200"),), 23 * HOUR, volume=3e9),
    "a call with fifty people": Theft(
        tuple(talk(f"user-{n}", MANY[n], proto="udp", service="other") for n in range(8)), 2 * HOUR, delay=NOON,
        volume=25e9,
    ),
    "somebody's laptop is saved": Theft((talk("user-3", MANY[3]),), 6 * HOUR, delay=NOON, volume=20e9),
    "one client asks for much": Theft(
        (talk("infer-0", "192.0.2.1", answers=True, service="api"),), 10 * HOUR, delay=OFFICE, volume=8e9
    ),
    "two hundred new clients": Theft(_clients("192.0.1.", 200), 20 * HOUR, volume=20e9),
    "a scan answered": Theft(_to_many("nas-1", answers=True), HOUR, volume=0.02e9),
    "a network of no group goes about its day": Theft(
        tuple(_stranger(f"10.98.0.{n + 1}", dst) for n, dst in enumerate(MANY)), 10 * HOUR, delay=OFFICE, volume=20e9
    ),
    "a network of no group fetches an upgrade": Theft(
        tuple(talk("192.0.2.251", f"10.98.0.{n}", answers=True, group=EXTERNAL) for n in range(1, 60)), 10 * HOUR,
        delay=OFFICE, volume=45e9,
    ),
    "a partner's traffic on its way past us": Theft(
        tuple(talk(src, dst, group="partner") for src, dst in zip(PARTNERS, MANY, strict=False)), 10 * HOUR,
        delay=OFFICE, volume=40e9,
    ),
    "names asked all day": Theft(
        tuple(talk(src, "203.0.113.53", proto="udp", service="dns") for src in GPUS), 23 * HOUR, volume=0.3e9
    ),
    "sampled 1:4096: telemetry looks larger": Theft(
        (talk("mgmt-1", "203.0.113.200"),), 23 * HOUR, volume=2e9, rate=4096
    ),
}  # fmt: skip
"""Nobody may be woken for these."""
