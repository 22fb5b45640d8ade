"""Java's Properties and Ottla's reader on the same texts."""

from __future__ import annotations

import random
import struct
import subprocess
from pathlib import Path

from harness.java import find_java
from tests.interop.support import PROGRAMS, needed, run

from ottla_protocol.properties import PropertiesError, parse_properties

TEXTS = 50_000
_PIECES = "a|b.c|=|:| |\t|\f|\n|\r|\r\n|\\|\\\n|\\\r\n  |#|!|\0|é|  \n|key=value\n|\"|'"
_ESCAPES = r"\u0041|\uD83D\uDE00|\u00|\t|\n|\x|\=|\:|\ "
PIECES = (*_PIECES.split("|"), *_ESCAPES.split("|"))


def read(text: str) -> str:
    """As the Java program prints it, sorted."""
    try:
        found = parse_properties(text)
    except PropertiesError:
        return "refused"
    # Java writes half a surrogate pair as a question mark.
    pairs = [(key.replace("\ufffd", "?"), value.replace("\ufffd", "?")) for key, value in found.items()]
    return " ".join(sorted(f"{key.encode().hex()}={value.encode().hex()}" for key, value in pairs if key))


def test_properties_are_read_as_java_reads_them(tmp_path: Path) -> None:
    chance = random.Random(26)
    texts = ["".join(chance.choices(PIECES, k=chance.randint(0, 12))) for _ in range(TEXTS)]
    run([needed("javac"), "-d", str(tmp_path), str(PROGRAMS / "PropertiesFiles.java")])
    sent = b"".join(struct.pack(">i", len(text)) + text.encode("iso-8859-1") for text in texts)
    done = subprocess.run(
        [find_java(), "-cp", str(tmp_path), "PropertiesFiles"],
        input=sent + struct.pack(">i", -1),
        capture_output=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    # To Java a backslash alone at the end of a file is an entry without a key: such entries are left out.
    said = [
        " ".join(sorted(each for each in line.split() if each[0] != "="))
        for line in done.stdout.decode().split("\n")[:-1]
    ]
    wrong = [(text, read(text), java) for text, java in zip(texts, said, strict=True) if read(text) != java]
    assert not wrong, (len(wrong), wrong[:5])
    assert said.count("refused") > TEXTS // 100
