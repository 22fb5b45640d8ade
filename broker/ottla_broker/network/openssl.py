"""A mode of OpenSSL that Python's ssl module sets and has no call to clear.

With SSL_MODE_AUTO_RETRY, one call of SSL_read goes on as long as records without data arrive. A TLS 1.3 client that
sends nothing but KeyUpdates, which take longer than they take to send, would keep the event loop in that call.
"""

from __future__ import annotations

import ctypes
import ssl
from functools import cache
from typing import Final

from ottla_broker.events import get_logger

_log = get_logger()

_CLEAR_MODE: Final = 78
"""SSL_CTRL_CLEAR_MODE."""
_AUTO_RETRY: Final = 4
"""SSL_MODE_AUTO_RETRY."""
_WORD: Final = ctypes.sizeof(ctypes.c_void_p)


def clear_auto_retry(sock: ssl.SSLSocket) -> bool:
    """Have reads of a socket end after each record; False if that can't be done with this Python, which is logged."""
    library = _library()
    if library is None:
        return False
    connection = _connection_of(sock)
    if connection is None:
        _complain("the objects of Python's ssl module have another layout")
        return False
    library.SSL_ctrl(connection, _CLEAR_MODE, _AUTO_RETRY, None)
    return True


def _connection_of(sock: ssl.SSLSocket) -> int | None:
    """The address of OpenSSL's ``SSL``; None if it isn't where it was in Python 3.11 to 3.14.

    Layout of ``PySSLSocket``: the object's head, a reference to the socket, the ``SSL``, the context. The context is
    known, so a layout without it there is recognised.
    """
    inner = sock._sslobj  # type: ignore[attr-defined]
    at = object.__basicsize__ + _WORD
    if type(inner).__basicsize__ < at + 2 * _WORD:
        return None
    connection, context = (ctypes.c_void_p * 2).from_address(id(inner) + at)
    return connection if context == id(inner.context) else None


@cache
def _library() -> ctypes.CDLL | None:
    """The OpenSSL that Python uses."""
    import _ssl

    try:
        library = ctypes.CDLL(getattr(_ssl, "__file__", None))
        control = library.SSL_ctrl
    except (OSError, AttributeError) as error:
        _complain(str(error))
        return None
    control.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_void_p)
    control.restype = ctypes.c_long
    return library


@cache
def _complain(why: str) -> None:
    _log.warning(
        "OpenSSL's reads can't be limited: TLS clients that renew keys without end slow others", why=why
    )
