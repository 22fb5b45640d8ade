"""Each API that is served has all of its parts."""

from __future__ import annotations

import re

import pytest
from tests.structure.index_apis import FILE, ROOT, index
from tests.support.handlers import api_of, module_of

from ottla_broker.handlers.index import INDEX
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.registry import request_class, response_class

each_api = pytest.mark.parametrize("key", [ApiKey(key) for key in INDEX], ids=lambda key: key.name.lower())


def title(key: ApiKey) -> str:
    """The name on pages: InitProducerId for INIT_PRODUCER_ID."""
    return "".join(map(str.capitalize, key.name.split("_")))


def test_the_index_says_what_the_modules_do() -> None:
    assert FILE.read_text(encoding="utf-8") == index(), "run `make format`"


@each_api
def test_its_messages_know_all_versions_that_are_served(key: ApiKey) -> None:
    served, last_served = api_of(key).versions
    for version in range(served, last_served + 1):
        request, response = request_class(key, version), response_class(key)
        assert (request.__name__, response.__name__) == (f"{title(key)}Request", f"{title(key)}Response")
        first, last = request.VERSIONS
        assert first <= version <= last
        assert response().encode(version) is not None


@each_api
def test_its_handler_names_it(key: ApiKey) -> None:
    assert callable(module_of(key).handle)
    assert module_of(key).__doc__.startswith(f"{title(key)}: ")


@each_api
def test_it_is_on_the_page(key: ApiKey) -> None:
    page = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| {int(key)} \| {title(key)} \|", page, re.MULTILINE)
