"""XXH32, the checksum in the headers of lz4 frames. For a few bytes: libraries do it faster for more."""

from __future__ import annotations

from struct import Struct
from typing import Final

_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
_WORD: Final = 0xFFFFFFFF
_STRIPE: Final = 16
_LITTLE_4 = Struct("<4I")


def _rotate(number: int, bits: int) -> int:
    number &= _WORD
    return (number << bits | number >> (32 - bits)) & _WORD


def xxh32(data: bytes) -> int:
    """Return the XXH32 hash of a few bytes, with seed 0."""
    position = 0
    if len(data) >= _STRIPE:
        lanes = [(_PRIME_1 + _PRIME_2) & _WORD, _PRIME_2, 0, -_PRIME_1 & _WORD]
        while position + _STRIPE <= len(data):
            words = _LITTLE_4.unpack_from(data, position)
            lanes = [
                _rotate(lane + word * _PRIME_2, 13) * _PRIME_1 & _WORD
                for lane, word in zip(lanes, words, strict=True)
            ]
            position += _STRIPE
        number = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        number = _PRIME_5
    number = (number + len(data)) & _WORD
    while position + 4 <= len(data):
        word = int.from_bytes(data[position : position + 4], "little")
        number = _rotate(number + word * _PRIME_3, 17) * _PRIME_4 & _WORD
        position += 4
    for byte in data[position:]:
        number = _rotate(number + byte * _PRIME_5, 11) * _PRIME_1 & _WORD
    number = (number ^ number >> 15) * _PRIME_2 & _WORD
    number = (number ^ number >> 13) * _PRIME_3 & _WORD
    return number ^ number >> 16
