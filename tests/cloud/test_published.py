"""Example records of the providers' documentation: what they mean here.

AWS: "Flow log record examples", Amazon VPC user guide. Azure: "Virtual network flow logs" and "Flow logging for network
security groups", Network Watcher. Google: "VPC Flow Logs records" and "About traffic flows", VPC.
"""

import json
from collections.abc import Iterable

import polars as pl
import pytest

from cluster.model import CloudFormat
from ingest.cloud import azure
from ingest.cloud.aws import read_aws
from ingest.cloud.ends import Ends
from ingest.cloud.google import read_google
from ingest.read import records
from ingest.read.records import Parsed, Reason, other_end

V3 = (
    "version vpc-id subnet-id instance-id interface-id account-id type srcaddr dstaddr srcport dstport pkt-srcaddr "
    "pkt-dstaddr protocol bytes packets start end action tcp-flags log-status"
)
V5 = (
    "version srcaddr dstaddr srcport dstport protocol start end type packets bytes account-id vpc-id subnet-id "
    "instance-id interface-id region az-id sublocation-type sublocation-id action tcp-flags pkt-srcaddr pkt-dstaddr "
    "pkt-src-aws-service pkt-dst-aws-service traffic-path flow-direction log-status"
)
V7 = f"{V5} ecs-cluster-name ecs-task-id reject-reason"
_KEY = (records.SRC, records.DST, records.SRC_PORT, records.DST_PORT, records.PROTOCOL, records.PACKETS, records.BYTES)


def _rows(frame: pl.DataFrame, *more: str) -> list[tuple[object, ...]]:
    return frame.select(*_KEY, *more).rows()


def _aws(lines: Iterable[str], header: str = "", skipped: frozenset[str] = frozenset()) -> Parsed:
    return read_aws("".join(f"{line}\n" for line in lines).encode(), header, Ends(CloudFormat.AWS), skipped)


def test_aws_accepted() -> None:
    parsed = _aws(
        [("2 123456789010 eni-1235b8ca123456789 172.31.16.139 172.31.16.21 20641 22 6 20 4249 1418530010 1418530070 "
         "ACCEPT OK")]
    )  # fmt: skip
    assert _rows(parsed.frame, records.START, records.END) == [
        ("172.31.16.139", "172.31.16.21", 20641, 22, 6, 20, 4249, 1_418_530_010_000, 1_418_530_070_000)
    ]
    assert parsed.frame.get_column(records.EXPORTER).to_list() == ["aws-vpc"]


def test_aws_rejected_is_no_traffic() -> None:
    parsed = _aws(
        [("2 123456789010 eni-1235b8ca123456789 172.31.9.69 172.31.9.12 49761 3389 6 20 4249 1418530010 1418530070 "
         "REJECT OK"),
         "2 123456789010 eni-1235b8ca123456789 203.0.113.12 172.31.16.139 0 0 1 4 336 1432917027 1432917142 ACCEPT OK",
         "2 123456789010 eni-1235b8ca123456789 172.31.16.139 203.0.113.12 0 0 1 4 336 1432917094 1432917142 REJECT OK"]
    )  # fmt: skip
    assert _rows(parsed.frame) == [("203.0.113.12", "172.31.16.139", 0, 0, 1, 4, 336)]
    assert _rows(parsed.denied) == [
        ("172.31.9.69", "172.31.9.12", 49761, 3389, 6, 20, 4249),
        ("172.31.16.139", "203.0.113.12", 0, 0, 1, 4, 336),
    ]


def test_aws_no_data_and_skipped_data_are_gaps() -> None:
    parsed = _aws(
        ["2 123456789010 eni-1235b8ca123456789 - - - - - - - 1431280876 1431280934 - NODATA",
         "2 123456789010 eni-11111111aaaaaaaaa - - - - - - - 1431280876 1431280934 - SKIPDATA"]
    )  # fmt: skip
    assert parsed.frame.is_empty()
    assert parsed.dead.is_empty()
    assert parsed.gaps.rows() == [
        ("eni-1235b8ca123456789", 1_431_280_876_000, "nodata"),
        ("eni-11111111aaaaaaaaa", 1_431_280_876_000, "skipdata"),
    ]


def test_aws_ipv6() -> None:
    parsed = _aws(
        [("2 123456789010 eni-1235b8ca123456789 2001:db8:1234:a100:8d6e:3477:df66:f105 "
         "2001:db8:1234:a102:3304:8879:34cf:4071 34892 22 6 54 8855 1477913708 1477913820 ACCEPT OK")]
    )  # fmt: skip
    assert _rows(parsed.frame) == [
        ("2001:db8:1234:a100:8d6e:3477:df66:f105", "2001:db8:1234:a102:3304:8879:34cf:4071", 34892, 22, 6, 54, 8855)
    ]


def test_aws_tcp_flags_of_version_3_in_their_own_order() -> None:
    parsed = _aws(
        [("3 vpc-abcdefab012345678 subnet-aaaaaaaa012345678 i-01234567890123456 eni-1235b8ca123456789 123456789010 "
         "IPv4 52.213.180.42 10.0.0.62 43416 5001 52.213.180.42 10.0.0.62 6 568 8 1566848875 1566848933 ACCEPT 2 OK"),
         ("3 vpc-abcdefab012345678 subnet-aaaaaaaa012345678 i-01234567890123456 eni-1235b8ca123456789 123456789010 "
         "IPv4 10.0.0.62 52.213.180.42 5001 43416 10.0.0.62 52.213.180.42 6 376 7 1566848875 1566848933 ACCEPT 18 OK")],
        V3,
    )  # fmt: skip
    assert _rows(parsed.frame, records.TCP_FLAGS) == [
        ("52.213.180.42", "10.0.0.62", 43416, 5001, 6, 8, 568, 2),
        ("10.0.0.62", "52.213.180.42", 5001, 43416, 6, 7, 376, 18),
    ]


def test_aws_ingress_of_version_5_is_the_receivers_end() -> None:
    parsed = _aws(
        [("5 52.95.128.179 10.0.0.71 80 34210 6 1616729292 1616729349 IPv4 14 15044 123456789012 "
         "vpc-abcdefab012345678 subnet-aaaaaaaa012345678 i-0c50d5961bcb2d47b eni-1235b8ca123456789 ap-southeast-2 "
         "apse2-az3 - - ACCEPT 19 52.95.128.179 10.0.0.71 S3 - - ingress OK"),
         ("5 10.0.0.71 52.95.128.179 34210 80 6 1616729292 1616729349 IPv4 7 471 123456789012 vpc-abcdefab012345678 "
         "subnet-aaaaaaaa012345678 i-0c50d5961bcb2d47b eni-1235b8ca123456789 ap-southeast-2 apse2-az3 - - ACCEPT 3 "
         "10.0.0.71 52.95.128.179 - S3 8 egress OK")],
        V5,
    )  # fmt: skip
    assert _rows(parsed.frame, records.EXPORTER) == [
        ("52.95.128.179", "10.0.0.71", 80, 34210, 6, 14, 15044, other_end("aws-vpc")),
        ("10.0.0.71", "52.95.128.179", 34210, 80, 6, 7, 471, "aws-vpc"),
    ]


def test_aws_fields_up_to_version_8() -> None:
    parsed = _aws(
        [("8 10.0.0.71 52.95.128.179 34210 80 6 1616729292 1616729349 IPv4 7 471 123456789012 vpc-1 subnet-1 i-1 eni-1 "
         "r az - - REJECT 3 10.0.0.71 52.95.128.179 - S3 8 egress OK train task-1 BPA")],
        V7,
    )  # fmt: skip
    assert parsed.frame.is_empty()
    assert _rows(parsed.denied) == [("10.0.0.71", "52.95.128.179", 34210, 80, 6, 7, 471)]


NAT = "instance-id interface-id srcaddr dstaddr pkt-srcaddr pkt-dstaddr bytes packets start end"
NAT_LINES = [
    "- eni-1235b8ca123456789 10.0.1.5 10.0.0.220 10.0.1.5 203.0.113.5 500 5 1616729292 1616729349",
    "- eni-1235b8ca123456789 10.0.0.220 203.0.113.5 10.0.0.220 203.0.113.5 500 5 1616729292 1616729349",
    "i-01234567890123456 eni-1111aaaa2222bbbb3 10.0.1.5 203.0.113.5 10.0.1.5 203.0.113.5 500 5 1616729292 1616729349",
]


def test_aws_behind_a_nat_gateway_it_is_who_really_talked() -> None:
    """The documentation's NAT gateway; sizes and times are ours."""
    parsed = _aws(NAT_LINES, NAT)
    assert parsed.frame.select(records.SRC, records.DST).rows() == [
        ("10.0.1.5", "203.0.113.5"), ("10.0.0.220", "203.0.113.5"), ("10.0.1.5", "203.0.113.5"),
    ]  # fmt: skip
    skipped = _aws(NAT_LINES, NAT, frozenset({"eni-1235b8ca123456789"}))
    assert skipped.frame.select(records.SRC, records.DST).rows() == [("10.0.1.5", "203.0.113.5")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("2 123456789010 eni-1 172.31.16.139 172.31.16.21 20641 22 6 20 4249 1418530010", Reason.WRONG_FIELD_COUNT),
        ("2 1 eni-1 nowhere 172.31.16.21 20641 22 6 20 4249 1418530010 1418530070 ACCEPT OK", None),
        ("2 1 eni-1 172.31.16.139 172.31.16.21 20641 22 6 20 - 1418530010 1418530070 ACCEPT OK", Reason.MISSING_FIELD),
        ("2 1 eni-1 172.31.16.139 172.31.16.21 20641 22 6 20 many 1418530010 1418530070 ACCEPT OK", Reason.BAD_COUNTER),
        ("2 1 eni-1 172.31.16.139 172.31.16.21 20641 22 6 20 4249 - 1418530070 ACCEPT OK", Reason.BAD_TIME),
    ],
)
def test_aws_a_bad_line_costs_itself_alone(line: str, reason: Reason | None) -> None:
    good = (
        "2 123456789010 eni-1235b8ca123456789 172.31.16.139 172.31.16.21 20641 22 6 20 4249 1418530010 1418530070 "
        "ACCEPT OK"
    )
    parsed = _aws([good, line, good])
    # An address is judged where addresses are: by the normaliser.
    assert parsed.frame.height == (2 if reason else 3)
    assert parsed.dead.rows() == ([(line, reason.value)] if reason else [])


AZURE = {
    "records": [
        {
            "time": "2022-09-14T09:00:52.5625085Z",
            "flowLogVersion": 4,
            "macAddress": "112233445566",
            "category": "FlowLogFlowEvent",
            "operationName": "FlowLogFlowEvent",
            "flowRecords": {
                "flows": [
                    {
                        "aclID": "00aa00aa-bb11-cc22-dd33-44ee44ee44ee",
                        "flowGroups": [
                            {
                                "rule": "DefaultRule_AllowInternetOutBound",
                                "flowTuples": [
                                    "1663146003599,10.0.0.6,192.0.2.180,23956,443,6,O,B,NX,0,0,0,0",
                                    "1663146003606,10.0.0.6,192.0.2.180,23956,443,6,O,E,NX,3,767,2,1580",
                                    "1663146003637,10.0.0.6,203.0.113.17,22730,443,6,O,B,NX,0,0,0,0",
                                    "1663146003640,10.0.0.6,203.0.113.17,22730,443,6,O,E,NX,3,705,4,4569",
                                ],
                            }
                        ],
                    },
                    {
                        "aclID": "01020304-abcd-ef00-1234-102030405060",
                        "flowGroups": [
                            {
                                "rule": "BlockHighRiskTCPPortsFromInternet",
                                "flowTuples": [
                                    "1663145998065,101.33.218.153,10.0.0.6,55188,22,6,I,D,NX,0,0,0,0",
                                    "1663146005503,192.241.200.164,10.0.0.6,35276,119,6,I,D,NX,0,0,0,0",
                                ],
                            }
                        ],
                    },
                ]
            },
        }
    ]
}


def _azure(found: object) -> Parsed:
    lines = azure.lines(json.dumps(found).encode())
    return azure.read_azure(b"".join(line + b"\n" for line in lines), Ends(CloudFormat.AZURE))


def test_azure_a_tuple_is_both_ways_of_a_flow() -> None:
    parsed = _azure(AZURE)
    assert sorted(_rows(parsed.frame, records.EXPORTER)) == sorted(
        [
            ("10.0.0.6", "192.0.2.180", 23956, 443, 6, 3, 767, "azure-vnet"),
            ("192.0.2.180", "10.0.0.6", 443, 23956, 6, 2, 1580, other_end("azure-vnet")),
            ("10.0.0.6", "203.0.113.17", 22730, 443, 6, 3, 705, "azure-vnet"),
            ("203.0.113.17", "10.0.0.6", 443, 22730, 6, 4, 4569, other_end("azure-vnet")),
        ]
    )
    begun = parsed.frame.filter(pl.col(records.BYTES) == 767).select(records.START, records.END)
    assert begun.row(0) == (1_663_146_003_599, 1_663_146_003_606)


def test_azure_denied() -> None:
    assert _rows(_azure(AZURE).denied) == [
        ("101.33.218.153", "10.0.0.6", 55188, 22, 6, 0, 0),
        ("192.241.200.164", "10.0.0.6", 35276, 119, 6, 0, 0),
    ]


def test_azure_security_group_logs_of_version_2() -> None:
    """The documentation's calculation: from B to E, 1021 and 52 packets, 588096 and 29952 bytes came in two parts."""
    tuples = [
        "1493763938,185.170.185.105,10.2.0.4,35370,23,T,I,A,B,,,,",
        "1493695838,185.170.185.105,10.2.0.4,35370,23,T,I,A,C,1021,588096,8005,4610880",
        "1493696138,185.170.185.105,10.2.0.4,35370,23,T,I,A,E,52,29952,47,27072",
        "1487282421,42.119.146.95,10.1.0.4,51529,5358,T,I,D",
    ]
    flows = [{"rule": "UserRule", "flows": [{"mac": "000D3AF87856", "flowTuples": tuples}]}]
    parsed = _azure({"records": [{"properties": {"Version": 2, "flows": flows}}]})
    sums = parsed.frame.group_by(records.SRC).agg(pl.sum(records.PACKETS, records.BYTES)).sort(records.SRC)
    assert sums.rows() == [("10.2.0.4", 8052, 4637952), ("185.170.185.105", 1073, 618048)]
    assert _rows(parsed.denied) == [("42.119.146.95", "10.1.0.4", 51529, 5358, 6, 0, 0)]


@pytest.mark.parametrize(
    "record",
    [
        1, None, "text", [], {"properties": "text"}, {"flowRecords": [1]}, {"flowRecords": {"flows": 5}},
        {"flowRecords": {"flows": [None]}}, {"flowRecords": {"flows": ["text"]}},
        {"flowRecords": {"flows": [{"flowGroups": {"rule": "x"}}]}}, {"flowRecords": {"flows": [{"flowGroups": [7]}]}},
        {"properties": {"flows": [{"flows": "text"}]}},
        {"properties": {"flows": [{"flows": [{"flowTuples": "text"}]}]}},
        {"flowRecords": {"flows": [{"flowGroups": [{"flowTuples": ["\ud800,1"]}]}]}},
        {"flowRecords": {"flows": [{"flowGroups": [{"flowTuples": ["9" * 5000 + ",1,2,3,4,5,6,7"]}]}]}},
    ],
)  # fmt: skip
def test_azure_what_is_of_another_shape_costs_itself_alone(record: object) -> None:
    parsed = _azure({"records": [record, *AZURE["records"], record]})
    assert parsed.frame.height == 4
    assert parsed.denied.height == 2
    assert parsed.dead.get_column("reason").to_list() == [Reason.WRONG_FIELD_COUNT.value] * 2


@pytest.mark.parametrize(
    "record",
    [{}, {"properties": None}, {"flowRecords": {"flows": None}}, {"flowRecords": {"flows": [{"flowGroups": None}]}}],
)
def test_azure_a_record_without_flows_is_nothing(record: object) -> None:
    parsed = _azure({"records": [record, *AZURE["records"]]})
    assert (parsed.frame.height, parsed.dead.height) == (4, 0)


def _google(*payloads: dict[str, object]) -> Parsed:
    raw = "".join(json.dumps({"insertId": "x", "jsonPayload": one, "logName": "l"}) + "\n" for one in payloads)
    return read_google(raw.encode(), Ends(CloudFormat.GOOGLE))


def _payload(src: str, dst: str, size: int, reporter: str) -> dict[str, object]:
    return {
        "connection": {"src_ip": src, "dest_ip": dst, "src_port": 40708, "dest_port": 443, "protocol": 6},
        "bytes_sent": str(size),
        "packets_sent": "4",
        "start_time": "2025-09-27T21:12:02.937646004Z",
        "end_time": "2025-09-27T21:12:58.837646004Z",
        "reporter": reporter,
        "src_instance": {"vm_name": "vm-1", "zone": "europe-west1-b"},
        "dest_instance": {"vm_name": "vm-2", "zone": "europe-west1-b"},
    }


def test_google_both_machines_report_request_and_reply() -> None:
    """ "VM-to-VM flows in the same VPC network": 1,224 bytes asked, 5,342 answered, each told of by both."""
    parsed = _google(
        _payload("10.10.0.2", "10.50.0.2", 1224, "SRC"), _payload("10.50.0.2", "10.10.0.2", 5342, "DEST"),
        _payload("10.10.0.2", "10.50.0.2", 1224, "DEST"), _payload("10.50.0.2", "10.10.0.2", 5342, "SRC"),
    )  # fmt: skip
    assert parsed.frame.select(records.SRC, records.BYTES, records.EXPORTER).rows() == [
        ("10.10.0.2", 1224, "google-vpc"), ("10.50.0.2", 5342, other_end("google-vpc")),
        ("10.10.0.2", 1224, other_end("google-vpc")), ("10.50.0.2", 5342, "google-vpc"),
    ]  # fmt: skip
    assert parsed.frame.select(records.START, records.END).row(0) == (1_759_007_522_938, 1_759_007_578_838)


def test_google_a_gateway_reports_as_well() -> None:
    parsed = _google(_payload("10.10.0.2", "10.30.0.2", 1224, "DEST_GATEWAY"))
    assert parsed.frame.get_column(records.EXPORTER).to_list() == [other_end("google-vpc")]


def test_google_a_bad_line_costs_itself_alone() -> None:
    good = json.dumps({"jsonPayload": _payload("10.10.0.2", "10.50.0.2", 1224, "SRC")})
    payload = _payload("10.10.0.2", "10.50.0.2", 1224, "SRC")
    del payload["reporter"]
    no_reporter = json.dumps({"jsonPayload": payload})
    raw = f"{good}\n{{broken\n{good}\n[]\n{no_reporter}\n".encode()
    parsed = read_google(raw, Ends(CloudFormat.GOOGLE))
    assert parsed.frame.height == 2
    assert sorted(parsed.dead.rows()) == sorted(
        [
            ("{broken", Reason.NOT_A_RECORD.value),
            ("[]", Reason.NOT_A_RECORD.value),
            (no_reporter, Reason.MISSING_FIELD.value),
        ]
    )
