"""Labelled recordings as records: every byte of both directions, from each form that they come in."""

import gzip
import json
from pathlib import Path

import polars as pl
import pytest

from app.errors import UserError
from bench.labelled import flows, records

_ROW = {
    "ts": "1677024003.5", "uid": "C6", "id.orig_h": "192.168.1.107", "id.orig_p": "65164", "id.resp_h": "192.0.2.35",
    "id.resp_p": "5888", "proto": "tcp", "duration": "2.25", "orig_pkts": "3", "orig_ip_bytes": "1040",
    "resp_pkts": "2", "resp_ip_bytes": "80", "label": "Malicious",
}  # fmt: skip
TABS = "#separator \\x09\n#fields\t" + "\t".join(_ROW) + "\n" + "\t".join(_ROW.values()) + "\n#close\n"
OBJECTS = json.dumps({name: float(text) if name in {"ts", "duration"} else text for name, text in _ROW.items()}) + "\n"
ARGUS = (
    "StartTime,Dur,Proto,SrcAddr,Sport,Dir,DstAddr,Dport,State,sTos,dTos,TotPkts,TotBytes,SrcBytes,SrcPkts,Label\n"
    "2023/02/22 00:00:03.500000,2.25,tcp,192.168.1.107,65164,   ->,192.0.2.35,5888,CON,0,0,5,1120,1040,3,Malicious\n"
    "2023/02/22 00:00:04.000000,0,arp,10.0.2.15,,  who,10.0.2.2,,CON,,,2,120,60,1,\n"
)


@pytest.mark.parametrize("text", [TABS, OBJECTS, ARGUS], ids=["zeek tabs", "zeek json", "argus"])
@pytest.mark.parametrize("is_packed", [False, True])
def test_each_form_has_the_same_bytes_in_both_directions(tmp_path: Path, text: str, *, is_packed: bool) -> None:
    file = tmp_path / "conn.log"
    file.write_bytes(gzip.compress(text.encode()) if is_packed else text.encode())
    found = flows(file)
    one = found.select("start", "end", "src", "dst_port", "bytes", "packets", "back", "back_packets", "label").row(0)
    assert found.height == 1
    assert one == (1677024003500, 1677024005750, "192.168.1.107", 5888, 1040, 3, 80, 2, "Malicious")
    there, back = (json.loads(line) for line in records(found))
    assert (there["ip_dst"], there["port_dst"], there["bytes"], there["packets"]) == ("192.0.2.35", 5888, 1040, 3)
    assert (back["ip_src"], back["port_src"], back["bytes"], back["packets"]) == ("192.0.2.35", 5888, 80, 2)


def test_a_connection_without_an_answer_is_one_record(tmp_path: Path) -> None:
    file = tmp_path / "conn.log"
    file.write_text(TABS)
    assert len(list(records(flows(file).with_columns(pl.lit(0, pl.Int64).alias("back"))))) == 1


def test_another_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("nothing of the kind\n")
    with pytest.raises(UserError, match="neither a conn"):
        flows(file)
