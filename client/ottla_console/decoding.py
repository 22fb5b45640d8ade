"""Values as text, JSON or bytes, bounded whatever the bytes are. ``schemas`` has Avro and Protobuf."""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla_cli.shared.json_source import indented

FORMATS: Final = ("auto", "text", "json", "schema", "hex")
SHOWN_BYTES: Final = 64 << 10
PREVIEW: Final = 300
LISTED_BYTES: Final = 4 * PREVIEW
"""How much of a key or value a list looks at."""
_HEX_BYTES: Final = 4 << 10


class Shown(NamedTuple):
    """A value as text. ``form`` says how it was read; ``note`` what is missing, or why it isn't as was asked."""

    text: str
    form: str
    note: str = ""


def show(data: bytes | None, how: str = "auto", most: int = SHOWN_BYTES) -> Shown:
    """A key or value, at most ``most`` bytes of it."""
    if data is None:
        return Shown("null", "null")
    note = f"the first {most:,} of {len(data):,} bytes" if len(data) > most else ""
    cut = data[:most]
    if how == "hex":
        return _hex(cut, note)
    if how == "text":
        return Shown(clean(cut.decode(errors="backslashreplace")), "text", note)
    if how == "json" or (how == "auto" and cut[:1] in (b"{", b"[")):
        shown = _json(data, most)
        if shown is not None:
            return shown
        if how == "json":
            why = "it is cut" if note else "it isn't JSON"
            return Shown(
                clean(cut.decode(errors="backslashreplace")), "text", note or f"shown as text: {why}"
            )
    try:
        # A cut may be in the middle of a character.
        text = cut.decode() if not note else cut.decode(errors="ignore")
    except UnicodeDecodeError:
        return _hex(cut, note)
    if not note and sum(not each.isprintable() and each not in "\r\n\t" for each in text) > len(text) // 10:
        return _hex(cut, note)
    return Shown(clean(text), "text", note)


def _json(data: bytes, most: int) -> Shown | None:
    if len(data) > most:
        return None
    try:
        source = data.decode()
        # Indentation of something that is nested deeply may be much longer than the value.
        text = indented(source, 4 * most)
    except (ValueError, RecursionError):
        return None
    if len(text) > 4 * most:
        text = source
    return Shown(clean(text), "JSON")


def _hex(data: bytes, note: str) -> Shown:
    """As hexdump shows it: 16 bytes in a line."""
    lines = []
    for start in range(0, min(len(data), _HEX_BYTES), 16):
        row = data[start : start + 16]
        text = "".join(chr(each) if 32 <= each < 127 else "." for each in row)
        lines.append(f"{start:08x}  {row.hex(' '):<47}  {text}")
    if len(data) > _HEX_BYTES:
        note = note or f"the first {_HEX_BYTES:,} of {len(data):,} bytes"
    return Shown("\n".join(lines), "bytes", note)


def clean(text: str) -> str:
    """Without characters that a browser doesn't show or that reverse what follows."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(each if each.isprintable() or each in "\n\t" else _visible(each) for each in text)


def _visible(letter: str) -> str:
    code = ord(letter)
    return chr(0x2400 + code) if code < 32 else f"\\u{code:04x}"


def one_line(text: str) -> str:
    """Text on one line, whose line ends show as arrows."""
    return text.replace("\n", "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}")


def preview(data: bytes | None, how: str = "auto") -> Shown:
    """One line of a value for a list."""
    if data is None:
        return Shown("null", "null")
    shown = show(data[:LISTED_BYTES], "text" if how in ("auto", "json") and _is_text(data) else how)
    text = one_line(shown.text) if shown.form != "bytes" else data[:48].hex(" ")
    if len(text) > PREVIEW or len(data) > LISTED_BYTES:
        text = text[:PREVIEW] + "…"
    return Shown(text, shown.form)


def _is_text(data: bytes) -> bool:
    return show(
        data[:LISTED_BYTES] if len(data) <= LISTED_BYTES else data[: LISTED_BYTES + 1], "auto", LISTED_BYTES
    ).form in (
        "text",
        "JSON",
    )
