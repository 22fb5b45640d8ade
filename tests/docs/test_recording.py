"""The recording on the page about clusters, and how it is drawn."""

from __future__ import annotations

from xml.etree import ElementTree

from bench.recording import Frame, draw
from tests.docs.pages import ROOT

SVG = "{http://www.w3.org/2000/svg}"


def frames_of(picture: str) -> list[str]:
    """The text of each frame, without its layout."""
    root = ElementTree.fromstring(picture)
    return ["".join(group.itertext()) for group in root.iter(f"{SVG}g")]


def test_a_frame_is_drawn_where_the_terminal_has_it() -> None:
    picture = draw(
        [Frame(1.0, "Brokers  \x1b[32m3\x1b[0m"), Frame(2.0, "Brokers  \x1b[1;31m<2>\x1b[0m")], 4.0
    )
    assert frames_of(picture) == ["Brokers  3", "Brokers  <2>"]
    number = list(ElementTree.fromstring(picture).iter(f"{SVG}tspan"))[-1]
    assert number.get("x") == f"{14 + 9 * 8.4:.1f}"
    assert number.get("class") == "b"
    assert number.get("fill") == "#ff7b72"


def test_the_recording_shows_a_broker_that_dies_and_returns() -> None:
    found = frames_of((ROOT / "docs/cluster-watch.svg").read_text(encoding="utf-8"))
    dead = ["not running: 2" in frame for frame in found]
    assert not dead[0]
    assert any(dead)
    assert not dead[-1]
