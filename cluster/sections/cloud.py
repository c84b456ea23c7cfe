"""The section `cloud`: flow logs of a cloud provider, where no switch exports flows."""

from enum import StrEnum

from cluster.scalars import names
from cluster.scalars.declared import Section, key, record
from cluster.scalars.kinds import Choice, ListOf


class CloudFormat(StrEnum):
    """Whose flow logs they are."""

    AWS = "aws-vpc"
    GOOGLE = "google-vpc"
    AZURE = "azure-vnet"


# fmt: off
@record
class CloudSettings:
    """Flow logs of a cloud: the provider's files in a folder, with any folders in it (docs/deployment.md)."""

    format: CloudFormat | None = key(Choice(tuple(CloudFormat)),
        "What the files are. `clusterflow ingest` reads them then, and no nfacctd is needed.",
        default=None, absent="no flow logs: pmacct's files are read")
    folder: str | None = key(names.PATH, "Where the files are.", default=None, absent="`collector.spool`")
    skip_interfaces: tuple[str, ...] = key(ListOf(names.LINE),
        "Interface ids whose records do not count: NAT gateways, through which everything goes a second time under "
        "another address.",
        default=(), example="[eni-1235b8ca123456789]")


CLOUD = Section.of(CloudSettings, "cloud")
# fmt: on
