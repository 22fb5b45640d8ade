"""The subject of a certificate, as Java writes it (``X500Principal.getName()``, RFC 2253).

A certificate is DER: each value is a tag, a length and content. Down to the subject (RFC 5280, 4.1)::

    Certificate     SEQUENCE { tbsCertificate, … }
    tbsCertificate  SEQUENCE { [0] version (optional), serialNumber, signature, issuer, validity, subject, … }
    Name            SEQUENCE OF RelativeDistinguishedName: SET OF SEQUENCE { type OID, value }
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_VERSION: Final = 0xA0
_OID: Final = 0x06

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The attributes with a keyword in RFC 2253; others are written as numbers."""

_ENCODINGS: Final = {
    0x0C: "utf-8",  # UTF8String
    0x13: "ascii",  # PrintableString
    0x14: "latin-1",  # T61String
    0x16: "ascii",  # IA5String
    0x1B: "ascii",  # GeneralString
    0x1C: "utf-32-be",  # UniversalString
    0x1E: "utf-16-be",  # BMPString
}
_ESCAPED: Final = frozenset(',=+<>#;"\\')


def subject_of(certificate: bytes) -> str:
    """The distinguished name of the subject of a certificate in DER. Raises ValueError for bytes of another form."""
    (whole,) = _contents(certificate, _SEQUENCE)
    fields = list(_values(next(_values(whole), (0, b""))[1]))
    start = 1 if fields and fields[0][0] == _VERSION else 0
    if len(fields) < start + 5 or fields[start + 4][0] != _SEQUENCE:
        raise ValueError("the certificate has no subject")
    names = [_relative_name(part) for part in _contents(fields[start + 4][1], _SET)]
    return ",".join(reversed(names))


def _relative_name(data: bytes) -> str:
    parts = []
    for pair in _contents(data, _SEQUENCE):
        inner = list(_values(pair))
        if len(inner) != 2 or inner[0][0] != _OID:
            raise ValueError("an attribute is not a type and a value")
        oid, (tag, value) = inner[0][1], inner[1]
        dotted = _dotted(oid)
        keyword = _KEYWORDS.get(dotted)
        encoding = _ENCODINGS.get(tag)
        if keyword is None or encoding is None:
            parts.append(f"{keyword or dotted}=#{_encoded(tag, value).hex()}")
        else:
            parts.append(f"{keyword}={_escaped(value.decode(encoding))}")
    return "+".join(parts)


def _escaped(text: str) -> str:
    inner = text.strip(" ")
    if not inner:
        return "\\ " * len(text)
    before = len(text) - len(text.lstrip(" "))
    after = len(text) - len(text.rstrip(" "))
    shown = "".join("\\00" if c == "\0" else f"\\{c}" if c in _ESCAPED else c for c in inner)
    return "\\ " * before + shown + "\\ " * after


def _dotted(data: bytes) -> str:
    numbers: list[int] = []
    value = 0
    for byte in data:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    if not numbers:
        raise ValueError("an attribute's type is empty")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _encoded(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + content


def _contents(data: bytes, wanted: int) -> Iterator[bytes]:
    """The contents of values that all have the tag ``wanted``."""
    for tag, content in _values(data):
        if tag != wanted:
            raise ValueError(f"the certificate has a value of type {tag:#x} where {wanted:#x} is needed")
        yield content


def _values(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The tags and contents of the values in ``data``."""
    position = 0
    while position < len(data):
        if position + 2 > len(data):
            raise ValueError("a value of the certificate is cut off")
        tag, size = data[position], data[position + 1]
        position += 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[position : position + count], "big")
            position += count
        content = data[position : position + size]
        if len(content) < size:
            raise ValueError("a value of the certificate is cut off")
        position += size
        yield tag, content
