"""Shows strangers' texts where control characters do harm: at terminals, in logs, in lines of their own."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with control characters, line ends, marks of direction and lone surrogates as escapes."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode()
        for each in text
    )
