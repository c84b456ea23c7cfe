"""The sections `names`, `applications`, `geography` and `enrichment`: what files say of outside addresses."""

from enum import StrEnum
from pathlib import Path

from cluster.document import Faults
from cluster.scalars import names
from cluster.scalars.declared import Section, key, record
from cluster.scalars.kinds import FLAG, PORT, Choice, ListOf, MapOf, Placed, Table, Whole
from cluster.scalars.names import DAY
from cluster.vocabulary import Address


class NamesFormat(StrEnum):
    """What a file with names of addresses is."""

    HOSTS = "hosts"
    CSV = "csv"
    JSON = "json"


class ApplicationFormat(StrEnum):
    """What a file with an application's addresses is."""

    LIST = "list"
    PREFIXES = "prefixes"
    AWS = "aws"
    GOOGLE = "google"
    AZURE = "azure"
    FASTLY = "fastly"


# fmt: off
@record
class NamesFile:
    """A file that names addresses; a file alone stands for its `file`."""

    name: str
    file: str = key(names.LASTING_FILE, "The file; it is read again when it changes.", example="exports/hosts.csv")
    format: NamesFormat = key(Choice(tuple(NamesFormat)),
        "`hosts`: as /etc/hosts; `csv`, `json`: an export, such as NetBox's of IP addresses.",
        default=NamesFormat.HOSTS, absent="by the file's name: `.csv`, `.json`, else `hosts`")
    address_column: str = key(names.LINE, "Column or key with the address; a prefix length behind it is passed over.",
        default="address")
    name_column: str = key(names.LINE, "Column or key with the name.", default="dns_name", example="hostname")


NAMES_FILE = Section.of(NamesFile, "file with names", short="file")


@record
class ReverseDns:
    """Names by PTR records.

    Whoever owns an address writes its name: it proves nothing. The name servers, and those of the addresses, learn
    which addresses the cluster talks to.
    """

    resolvers: tuple[Address, ...] = key(ListOf(names.ADDRESS, at_least=1), "The name servers to ask; no others are.",
        example="[10.60.0.53]")
    port: int = key(PORT, "Their UDP port.", default=53)
    timeout: float = key(names.fractions(0.1, 10), "How long an answer may take.", default=1.0)
    confirm: bool = key(FLAG, "Whether a name is looked up again, to see whether it leads back to the address.",
        default=True)
    rate: int = key(Whole(1, 10_000), "Questions a second at most.", default=50)


REVERSE_DNS = Section.of(ReverseDns, "reverse DNS")


@record
class HostNaming:
    """Names of outside addresses (docs/enrichment.md)."""

    files: tuple[NamesFile, ...] = key(MapOf(names.NAME, NAMES_FILE),
        "Files that name addresses; the first that knows one counts.", default=(), example="{hosts: /etc/hosts}")
    reverse_dns: ReverseDns | None = key(REVERSE_DNS, "Name servers to ask where no file knows a name.", default=None,
        absent="nobody is asked")


NAMES = Section.of(HostNaming, "names")


@record
class ApplicationFile:
    """A file that says what outside addresses are; a file alone stands for its `file`."""

    name: str
    file: str = key(names.LASTING_FILE, "The file; it is read again when it changes.", example="lists/aws.json")
    format: ApplicationFormat = key(Choice(tuple(ApplicationFormat)),
        "`list`: YAML as docs/enrichment.md shows it; `prefixes`: one a line; `aws` (ip-ranges.json), `google` "
        "(cloud.json, goog.json), `azure` (ServiceTags), `fastly` (public-ip-list): as they publish them.",
        default=ApplicationFormat.LIST)
    application: str = key(names.TITLE, "What addresses in it are; a `list` says that itself.", default="",
        absent="what the format is of", example="model hub")


APPLICATION_FILE = Section.of(ApplicationFile, "file with applications", short="file")


@record
class Applications:
    """What outside addresses are: model hub, package index, cloud (docs/enrichment.md)."""

    builtin: bool = key(FLAG,
        "Whether the list that comes with clusterflow is used, behind all files: model hubs, package indexes, "
        "container registries, by names.", default=False)
    files: tuple[ApplicationFile, ...] = key(MapOf(names.NAME, APPLICATION_FILE),
        "Files; the first that knows an address counts.", default=())


APPLICATIONS = Section.of(Applications, "applications")


@record
class Geography:
    """Files that know country, city and network of outside addresses (docs/enrichment.md)."""

    files: tuple[tuple[str, str], ...] = key(MapOf(names.NAME, names.LASTING_FILE),
        "MMDB files, beside this one: GeoLite2 City, Country and ASN, DB-IP, IPinfo. They are asked in this order, "
        "and of each thing the first counts that knows it.", default=(),
        example="{city: GeoLite2-City.mmdb, asn: GeoLite2-ASN.mmdb}")


GEOGRAPHY = Section.of(Geography, "geography")


_AGE_LIMIT = names.seconds(60, 20 * 365 * DAY)


@record
class ListSettings:
    """Files that say something about addresses (docs/enrichment.md): when they are too old."""

    stale_after: int = key(_AGE_LIMIT,
        "Age at which a list is stale: `clusterflow status` shows it, and the rule `enrichment_stale` alerts. Files "
        "in the format of /etc/hosts are never stale, unless `lists` names them.", default=35 * 86_400)
    by_list: tuple[tuple[str, int], ...] = key(MapOf(names.NAME, _AGE_LIMIT),
        "Limits of single lists, by the names that their sections give.", default=(), name="lists",
        example="{blocklist: 2d, city: 60d}")


ENRICHMENT = Section.of(ListSettings, "enrichment")
# fmt: on

_BY_SUFFIX = {".csv": NamesFormat.CSV, ".json": NamesFormat.JSON}
_PUBLISHED = {
    ApplicationFormat.AWS: "AWS",
    ApplicationFormat.GOOGLE: "Google Cloud",
    ApplicationFormat.AZURE: "Azure",
    ApplicationFormat.FASTLY: "Fastly",
}
"""What addresses are that a provider publishes, where cluster.yaml does not say it."""


def build_names(table: Table | None, folder: Path) -> HostNaming:
    """Return where names come from; a file's name tells its format where nothing else does."""
    given = dict(table or {})
    files: dict[str, Placed[Table]] = given.get("files", {})
    given["files"] = {
        name: Placed(placed.path, placed.value | {"format": placed.value.get("format") or _format(placed.value)})
        for name, placed in files.items()
        if "file" in placed.value
    }
    naming: HostNaming = NAMES.build(given, folder)
    return naming


def _format(table: Table) -> NamesFormat:
    return _BY_SUFFIX.get(Path(table["file"]).suffix.lower(), NamesFormat.HOSTS)


def build_applications(table: Table | None, folder: Path, faults: Faults) -> Applications:
    """Return who tells what addresses are, and record files of which nothing says it.

    Args:
        table: what the file says.
        folder: what relative paths are relative to.
        faults: added to.
    """
    given = dict(table or {})
    files: dict[str, Placed[Table]] = given.get("files", {})
    told: dict[str, Placed[Table]] = {}
    for name, placed in files.items():
        entry = placed.value
        form, application = entry.get("format"), entry.get("application")
        if form is ApplicationFormat.PREFIXES and application is None and "application" in entry:
            faults.add(f"{placed.path}.application", "missing", "what the addresses are, such as model hub")
        if form is ApplicationFormat.LIST and application is not None:
            faults.add(f"{placed.path}.application", application, "none", "a list says it for each of its entries")
        if form is not None:
            told[name] = Placed(placed.path, entry | {"application": application or _PUBLISHED.get(form)})
    applications: Applications = APPLICATIONS.build(given | {"files": told}, folder)
    return applications
