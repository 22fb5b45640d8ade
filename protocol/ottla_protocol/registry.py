"""Maps API keys to message classes, importing each API's module on first use."""

from __future__ import annotations

from importlib import import_module

from .api_keys import ApiKey
from .errors import ProtocolError
from .schema import Message

_requests: dict[int, type[Message]] = {}
_responses: dict[int, type[Message]] = {}


def request_class(api_key: int, version: int) -> type[Message]:
    """Return the request class of an API. Raises ProtocolError for an undeclared API or version."""
    cls = _requests.get(api_key)
    if cls is None:
        cls = _requests[api_key] = _load(api_key, "Request")
    first, last = cls.VERSIONS
    if not first <= version <= last:
        raise ProtocolError(f"{cls.__name__} has no version {version}")
    return cls


def response_class(api_key: int) -> type[Message]:
    """Return the response class of an API. Raises ProtocolError for an undeclared API."""
    cls = _responses.get(api_key)
    if cls is None:
        cls = _responses[api_key] = _load(api_key, "Response")
    return cls


def _load(api_key: int, kind: str) -> type[Message]:
    try:
        name = ApiKey(api_key).name
        module = import_module(f".messages.{name.lower()}", __package__)
    except (ValueError, ModuleNotFoundError):
        raise ProtocolError(f"no API has the key {api_key}") from None
    cls: type[Message] = getattr(module, "".join(map(str.capitalize, name.split("_"))) + kind)
    return cls
