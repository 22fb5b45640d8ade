"""When a certificate is valid, and what is to be said of it: ``ssl`` shows the dates of trusted ones alone.

RFC 5280, section 4.1, in DER: each element is a tag, a length and its content.

    Certificate     SEQUENCE { TBSCertificate, signatureAlgorithm, signature }
    TBSCertificate  SEQUENCE { [0] version?, serialNumber, signature, issuer, Validity, subject, … }
    Validity        SEQUENCE { notBefore Time, notAfter Time }
    Time            UTCTime YYMMDDHHMMSSZ | GeneralizedTime YYYYMMDDHHMMSSZ
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from ..shared.findings import CRITICAL, WARNING, Finding

_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_VALIDITY: Final = 3
"""Its place after the serial number, the algorithm and the issuer."""
_LONG_LENGTH: Final = 0x80
_MOST_LENGTH_BYTES: Final = 4
_CENTURY_SPLIT: Final = 50


SOON: Final = timedelta(days=30)
"""A certificate that ends within this time is a finding."""


class Validity(NamedTuple):
    """The first and last moment of a certificate."""

    begins: datetime
    ends: datetime


class _Element(NamedTuple):
    tag: int
    content: bytes


def read_validity(certificate: bytes) -> Validity:
    """The dates of a certificate in DER. Raises ValueError if it can't be read."""
    outer = next(_elements(certificate), None)
    if outer is None or outer.tag != _SEQUENCE:
        raise ValueError("not a certificate")
    body = next(_elements(outer.content), None)
    if body is None:
        raise ValueError("an empty certificate")
    parts = [part for part in _elements(body.content) if part.tag != _VERSION]
    if len(parts) <= _VALIDITY + 1:
        raise ValueError("a certificate without validity")
    times = [_time(time) for time in _elements(parts[_VALIDITY].content)]
    if len(times) != 2:
        raise ValueError("a certificate without validity")
    return Validity(times[0], times[1])


def _elements(data: bytes) -> Iterator[_Element]:
    place = 0
    while place < len(data):
        if place + 2 > len(data):
            raise ValueError("a certificate that ends early")
        tag, length = data[place], data[place + 1]
        place += 2
        if length & _LONG_LENGTH:
            count = length & ~_LONG_LENGTH
            if not 0 < count <= _MOST_LENGTH_BYTES or place + count > len(data):
                raise ValueError("a length that can't be read")
            length = int.from_bytes(data[place : place + count], "big")
            place += count
        if place + length > len(data):
            raise ValueError("a certificate that ends early")
        yield _Element(tag, data[place : place + length])
        place += length


def _time(element: _Element) -> datetime:
    text = element.content.decode("ascii")
    if element.tag == _UTC_TIME:
        text = ("19" if int(text[:2]) >= _CENTURY_SPLIT else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def certificate_findings(subject: str, valid: Validity, now: datetime) -> Iterator[Finding]:
    """The findings about the time in which a listener's certificate is valid."""
    renew = "Issue a new one, replace the file, and set ssl.keystore.location again by kafka-configs."
    if valid.ends < now:
        what = f"Its certificate has expired, at {valid.ends:%Y-%m-%d %H:%M} UTC."
        yield Finding(CRITICAL, "certificate-expired", subject, what, renew)
    elif valid.ends - now < SOON:
        days = (valid.ends - now).days
        what = f"Its certificate expires in {days} days, at {valid.ends:%Y-%m-%d %H:%M} UTC."
        yield Finding(WARNING, "certificate-expires-soon", subject, what, renew)
    if valid.begins > now:
        what = f"Its certificate is valid only from {valid.begins:%Y-%m-%d %H:%M} UTC on."
        yield Finding(CRITICAL, "certificate-not-yet-valid", subject, what, "Check the clocks.")
