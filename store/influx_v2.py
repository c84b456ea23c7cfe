"""The v2 API through influxdb-client, in a separate module: loading it takes longer than most of our commands."""

from collections.abc import Mapping

from influxdb_client import BucketRetentionRules, InfluxDBClient, WriteService
from influxdb_client.domain.write_precision import WritePrecision
from influxdb_client.rest import ApiException

from cluster.model import Retention


class ApiRefusal(Exception):  # noqa: N818 - an answer, which the store makes an error of
    """The server's answer was no yes.

    Args:
        status: of HTTP; 0 where there was no answer, as with TLS that failed.
        text: its words.
        headers: its own.
    """

    def __init__(self, status: int, text: str, headers: Mapping[str, str]) -> None:
        super().__init__(text)
        self.status, self.text, self.headers = status, text, headers


class InfluxClient:
    """Buckets, and points in them.

    Args:
        url: of the server.
        token: of the v2 API.
        org: organisation.
        timeout: seconds for connecting and for an answer.
        verify_tls: whether certificates are checked.
        ca_file: authorities, or None for the system's.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None,
        org: str,
        timeout: tuple[float, float],
        verify_tls: bool,
        ca_file: str | None,
    ) -> None:
        self._org = org
        self._client = InfluxDBClient(
            url=url,
            token=token,
            org=org,
            timeout=tuple(int(seconds * 1000) for seconds in timeout),
            enable_gzip=True,
            verify_ssl=verify_tls,
            ssl_ca_cert=ca_file,
        )
        self._buckets = self._client.buckets_api()
        # The library's own write API does not tell the status.
        self._writer = WriteService(self._client.api_client)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def ensure_bucket(self, name: str, retention: Retention) -> int | None:
        """Make a bucket that keeps its points for as long as a retention says, or have the one there do so.

        Returns:
            For how many seconds it kept them before, where that was another time.

        Raises:
            ApiRefusal: the server does not.
            urllib3.exceptions.HTTPError: it does not answer.
        """
        # Points are not kept for less than a shard lasts, a week where they were to be kept for ever: by 0 the server
        # chooses that anew.
        rules = BucketRetentionRules(type="expire", every_seconds=retention.keep, shard_group_duration_seconds=0)
        try:
            found = self._buckets.find_bucket_by_name(name)
            if found is None:
                self._buckets.create_bucket(bucket_name=name, retention_rules=rules, org=self._org)
            elif retention.changes(before := sum(rule.every_seconds for rule in found.retention_rules or [])):
                found.retention_rules = [rules]
                self._buckets.update_bucket(found)
                return int(before)
        except ApiException as error:
            raise _refusal(error) from error
        except (TypeError, ValueError) as error:
            # A page in place of JSON: the library goes on without what it does not find there.
            raise ApiRefusal(200, "", {}) from error
        return None

    def write(self, bucket: str, lines: bytes) -> int:
        """Send line protocol with times in seconds; return the status, below 400. Raises as `ensure_bucket` does."""
        try:
            _, status, _ = self._writer.post_write_with_http_info(
                self._org, bucket, lines, precision=WritePrecision.S, content_type="text/plain; charset=utf-8"
            )
        except ApiException as error:
            raise _refusal(error) from error
        return int(status)


def _refusal(error: ApiException) -> ApiRefusal:
    return ApiRefusal(int(error.status or 0), str(error.body or error.reason), error.headers or {})
