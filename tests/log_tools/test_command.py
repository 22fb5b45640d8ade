"""``ottla log dump`` and ``ottla log verify`` as a user calls them."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from ottla_broker.log_cli import log


def test_dump_of_a_folder(data: Path) -> None:
    done = CliRunner().invoke(log, ["dump", str(data), "--records"])
    assert done.exit_code == 0
    for words in ("# " + str(data / "ottla-store.journal"), "put: /brokers", "key: key-1", "epoch: 2"):
        assert words in done.output


def test_dump_as_json(data: Path) -> None:
    path = str(data / "flights-0" / "00000000000000000004.log")
    done = CliRunner().invoke(log, ["dump", path, "--json"])
    assert [json.loads(line)["file"] for line in done.output.splitlines()] == [path] * 4


def test_dump_of_a_foreign_file(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    done = CliRunner().invoke(log, ["dump", str(tmp_path / "notes.txt")])
    assert done.exit_code == 1
    assert "notes.txt is not a file of a log or a store" in done.output


def test_verify(data: Path) -> None:
    done = CliRunner().invoke(log, ["verify", str(data)])
    assert done.exit_code == 0
    assert done.output.endswith(": 0 findings\n")

    path = data / "flights-0" / "00000000000000000008.log"
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 0xFF
    path.write_bytes(raw)
    done = CliRunner().invoke(log, ["verify", str(data), "--json"])
    assert done.exit_code == 1
    found = json.loads(done.stdout.splitlines()[0])
    assert (found["file"], "checksum" in found["problem"]) == (str(path), True)
