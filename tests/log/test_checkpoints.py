"""Kafka's small text files, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla_broker.log import names
from ottla_broker.log.checkpoints import (
    decode_offsets,
    decode_topic_id,
    encode_offsets,
    encode_topic_id,
    read_topic_id,
)
from ottla_broker.log.files import CorruptFileError, Files
from ottla_broker.log.leader_epoch import LeaderEpochs

OFFSETS = {("flights", 0): 336776, ("a.b_c-d", 12): 0}


def test_offset_checkpoints() -> None:
    data = b"0\n2\nflights 0 336776\na.b_c-d 12 0\n"
    assert encode_offsets(OFFSETS) == data
    assert decode_offsets(data, "file") == OFFSETS
    assert decode_offsets(b"", "file") == {}
    assert encode_offsets({}) == b"0\n0\n"


@pytest.mark.parametrize(
    "data",
    [
        b"1\n0\n",
        b"0\n2\nflights 0 1\n",
        b"0\n1\nflights 0\n",
        b"0\n1\nflights zero 1\n",
        b"0\nmany\nflights 0 1\n",
        b"\xff\xfe\n0\n",
    ],
)
def test_damaged_checkpoints_name_their_file(data: bytes) -> None:
    with pytest.raises(CorruptFileError, match="the-file"):
        decode_offsets(data, "the-file")


def test_partition_metadata() -> None:
    topic_id = bytes(range(16))
    assert encode_topic_id(topic_id) == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert decode_topic_id(encode_topic_id(topic_id), "file") == topic_id
    for data in (
        b"",
        b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw",
        b"version: 0\ntopic_id: AAEC",
        b"\xff",
    ):
        with pytest.raises(CorruptFileError):
            decode_topic_id(data, "file")


def test_leader_epochs() -> None:
    epochs = LeaderEpochs()
    for epoch, start in ((0, 0), (2, 10), (5, 10), (7, 30)):
        epochs.assign(epoch, start)
    assert epochs.encode() == b"0\n3\n0 0\n5 10\n7 30\n"
    assert [epochs.end_offset_for(epoch, 50) for epoch in (0, 3, 5, 6, 7, 8)] == [
        (0, 10),
        (0, 10),
        (5, 30),
        (5, 30),
        (7, 50),
        (-1, -1),
    ]
    assert [epochs.epoch_at(offset) for offset in (0, 9, 10, 35)] == [0, 0, 5, 7]
    epochs.truncate_from_start(20)
    assert epochs.encode() == b"0\n2\n5 20\n7 30\n"
    assert epochs.end_offset_for(3, 50) == (3, 20)
    epochs.truncate_from_end(30)
    assert (epochs.encode(), epochs.latest) == (b"0\n1\n5 20\n", 5)
    epochs.clear()
    assert (epochs.encode(), epochs.latest) == (b"0\n0\n", -1)


@pytest.mark.parametrize(
    ("folder", "partition"),
    [
        ("flights-0", ("flights", 0)),
        ("a-b-12", ("a-b", 12)),
        ("flights", None),
        ("-3", None),
        ("flights-", None),
        ("flights-x", None),
        ("flights-1.0123456789abcdef0123456789abcdef-delete", None),
        ("flights-1.0123456789abcdef0123456789abcdef-future", None),
    ],
)
def test_folder_names(folder: str, partition: tuple[str, int] | None) -> None:
    assert names.partition_of(folder) == partition


def test_names_of_deleted_folders_fit() -> None:
    unique = "0123456789abcdef0123456789abcdef"
    name = names.renamed_folder("t" * 249, 10, unique, names.DELETE_FOLDER)
    assert len(name) == 255
    assert names.is_deleted_folder(name)
    assert names.renamed_folder("flights", 1, unique, names.DELETE_FOLDER) == f"flights-1.{unique}-delete"
    for other in ("flights-delete", "my-delete", "flights-1.x-delete", f"flights.{unique}-delete"):
        assert not names.is_deleted_folder(other)


def test_an_empty_partition_metadata_is_a_missing_one(tmp_path: Path) -> None:
    path = tmp_path / "partition.metadata"
    files = Files()
    assert read_topic_id(files, str(path)) == bytes(16)
    path.write_bytes(b"")
    assert read_topic_id(files, str(path)) == bytes(16)
