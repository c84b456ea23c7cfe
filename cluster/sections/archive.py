"""The section `archive`: what is kept of single conversations."""

from cluster.scalars import names
from cluster.scalars.declared import Section, key, record
from cluster.scalars.kinds import FLAG, SECRET, Secret
from cluster.scalars.names import DAY

FREE_SHARE = 0.05
"""Of a disk: the archive gives way before it is fuller than that."""


# fmt: off
@record
class ArchiveSettings:
    """The flow archive: every record as Parquet on this disk, which `clusterflow flows` asks.

    The oldest hour goes first, also where less than 5 % of the disk are free. With a `bucket` each hour that is over is
    copied there first, and asked there when this disk has it no more.
    """

    enabled: bool = key(FLAG, "Whether the bridge and Kafka workers write it.", default=True)
    folder: str | None = key(names.PATH, "Where.", default=None, absent="the folder `archive` in `bridge.state`")
    keep: int = key(names.seconds(3600, 3660 * DAY), "How long.", default=7 * DAY)
    size: int = key(names.SIZE, "How much one bridge or worker keeps at most.", default=20 * 10**9)
    bucket: str | None = key(names.BUCKET, "S3-compatible storage for hours that are over.", default=None,
        absent="none", example="s3://flows/cluster-a")
    bucket_endpoint: str | None = key(names.URL, "Its address.", default=None,
        absent="`AWS_ENDPOINT_URL`, else Amazon's")
    bucket_region: str | None = key(names.LINE, "Its region.", default=None, absent="`AWS_REGION`, else us-east-1")
    bucket_key_id: Secret | None = key(SECRET, "Id of the access key.", default=None, absent="`AWS_ACCESS_KEY_ID`",
        example="{file: /run/secrets/s3_id}")
    bucket_key: Secret | None = key(SECRET, "The access key.", default=None, absent="`AWS_SECRET_ACCESS_KEY`",
        example="{file: /run/secrets/s3_key}")
    bucket_keep: int = key(names.seconds(3600, 3660 * DAY), "How long the bucket keeps them.", default=90 * DAY)
    keep_samples: int = key(
        names.seconds(600, DAY), "How long a bridge keeps sFlow's single samples between training nodes, with their "
        "times in milliseconds: from these `clusterflow jobs show` tells roles and steps.", default=7200)
    samples_size: int = key(names.SIZE, "How much of these one bridge keeps at most.", default=2 * 10**9)


ARCHIVE = Section.of(ArchiveSettings, "archive")
# fmt: on
