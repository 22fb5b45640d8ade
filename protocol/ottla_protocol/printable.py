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


LONGEST_SHOWN = 249
"""The length of the longest topic's name; longer names of groups and clients are cut where they are shown."""


def quoted(name: str) -> str:
    """A name, in quotes if one can't see where it begins or ends, as a shell wants it."""
    return printable(name) if name and name == name.strip() else f"'{printable(name)}'"


def shown_name(name: str) -> str:
    """A name in a sentence, quoted; a very long one is cut."""
    text = quoted(name)
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 1]}…"
