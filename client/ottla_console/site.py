"""The site: sessions, protection, rendering, and the ways that a page is asked for. Pages are in ``pages``."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final, TextIO
from urllib.parse import SplitResult, urlsplit

import click
from aiohttp import web

from ottla_client.admin import Admin
from ottla_client.errors import ClientError, ConfigurationError, ConnectError
from ottla_protocol.loopback import LOOPBACK_NAMES

from .failures import Failure, failure_of
from .rendering import PAGE_ROWS, Slice, View, assets, link, render, render_live
from .schemas import Schemas
from .sessions import Change, Session, Sessions
from .settings import WebSettings, is_address

Handler = Callable[[web.Request, Session], Awaitable[View | web.StreamResponse]]
"""A page. What it raises of ClientError, TimeoutError and click.ClickException becomes a page as well."""
Proposal = Callable[[web.Request, Session], Awaitable[Change]]
"""Reads a form, and works out the change that it asks for. Raises like a page."""
Stream = Callable[[web.Request, Session, web.StreamResponse], Awaitable[None]]
"""Sends events to a response that has begun."""
Raw = Callable[[web.Request], Awaitable[web.StreamResponse]]

_LOG: Final = logging.getLogger("ottla.console")
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Server": "Ottla",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_KINDS: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
FORM_SECONDS: Final = 10.0
"""The longest time for a form to arrive."""
_FORM: Final = "application/x-www-form-urlencoded"
_STRANGERS_BYTES: Final = 8 << 10
"""The largest form of someone without a session: a login."""
_MOST_STREAMS: Final = 200
_STREAM_SECONDS: Final = 3600.0
"""A browser connects again after it."""
_ALIVE_SECONDS: Final = 15.0
_LOOK_SECONDS: Final = 0.5
_FLAGS: Final = {
    "": False,
    "0": False,
    "no": False,
    "false": False,
    "1": True,
    "yes": True,
    "true": True,
    "on": True,
}
_FAILED: Final = (ClientError, TimeoutError, click.ClickException)


def _split(address: str) -> SplitResult:
    """An address's parts; none if it can't be one, as an open bracket."""
    try:
        return urlsplit(address)
    except ValueError:
        return SplitResult("", "", "", "", "")


class Site:
    """The parts that all pages share. Belongs to the event loop that serves it."""

    def __init__(self, settings: WebSettings) -> None:
        self.settings = settings
        self.schemas = Schemas(settings.registry, settings.schemas)
        self.audit = AuditLog(settings.audit_log)
        self.sessions = Sessions(
            settings.client,
            settings.timeout,
            settings.session_minutes,
            settings.refresh,
            logs_in=settings.logs_in,
            zookeeper=settings.zookeeper,
        )
        # Cookies don't know ports: each console on a machine has its own.
        name = f"ottla_console_{settings.port}"
        self.cookie = f"__Host-{name}" if settings.is_tls else name
        self._streams = 0
        self._names = {*LOOPBACK_NAMES, settings.host.lower(), *(each.lower() for each in settings.names)}

    # Protection

    def _is_for_us(self, request: web.Request) -> bool:
        """Whether the request names this site: a page elsewhere could have its own name lead here (DNS rebinding)."""
        host = _split(f"//{request.host}").hostname or ""
        return is_address(host) or host.lower() in self._names

    @staticmethod
    def _is_from_us(request: web.Request) -> bool:
        """Whether a browser says that a form came from this site; those that say nothing have the form's token."""
        site = request.headers.get("Sec-Fetch-Site")
        if site is not None and site not in ("same-origin", "none"):
            return False
        origin = request.headers.get("Origin")
        return origin is None or _split(origin).netloc.lower() == request.host.lower()

    async def prepare(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(_HEADERS)
        response.headers.setdefault("Cache-Control", "no-store")
        response.headers.setdefault("Vary", "Accept, Cookie")
        if self.settings.is_tls:
            response.headers["Strict-Transport-Security"] = "max-age=31536000"

    @web.middleware
    async def guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Refuse other hosts and other sites' forms, and turn what fails into a page."""
        if not self._is_for_us(request):
            return web.Response(
                status=421,
                text=f"The console isn't served as {request.host[:100]!r}: start it with --name for this name.\n",
            )
        try:
            if request.method == "POST" and not self._is_from_us(request):
                return self.failed(
                    request, None, Failure(403, "The form came from another site.", "Nothing was changed.")
                )
            if request.method == "POST" and not await self._has_form(request):
                return self.failed(
                    request, None, Failure(408, "The form didn't arrive in time.", "Nothing was changed.")
                )
            return await handler(request)
        except web.HTTPRequestEntityTooLarge:
            return self.failed(
                request,
                None,
                Failure(413, "The form is too large.", "Nothing was changed. Send less at a time."),
            )
        except web.HTTPException as error:
            if error.status < 400:
                raise
            what = {
                400: "The form can't be read.",
                404: "There is no such page.",
                405: "This page doesn't take that method.",
                415: "The form has another type than the console's.",
            }
            return self.failed(
                request,
                None,
                Failure(error.status, what.get(error.status, error.reason), "Start from the overview."),
            )
        except Exception as error:
            if isinstance(error, ConnectionError) and not isinstance(error, ClientError):
                raise  # the browser has gone
            if not isinstance(error, _FAILED):
                _LOG.exception("%s %s failed", request.method, request.path)
            return self.failed(request, self.session_of(request), self._failure(error))

    async def _has_form(self, request: web.Request) -> bool:
        """Read the form, which the request keeps; False if it doesn't arrive. Raises HTTPException for a wrong one."""
        if request.match_info.http_exception is not None:
            return True  # There is no such form.
        if request.can_read_body and request.content_type != _FORM:
            raise web.HTTPUnsupportedMediaType
        size = request.content_length
        if (size is None or size > _STRANGERS_BYTES) and self.session_of(request, touch=False) is None:
            raise web.HTTPRequestEntityTooLarge(max_size=_STRANGERS_BYTES, actual_size=size or 0)
        try:
            async with asyncio.timeout(FORM_SECONDS):
                await request.post()
        except TimeoutError:
            return False
        except (ValueError, LookupError):
            # Not in the encoding that it names, or one that doesn't exist.
            raise web.HTTPBadRequest from None
        return True

    # Sessions

    def session_of(self, request: web.Request, *, touch: bool = True) -> Session | None:
        token = request.cookies.get(self.cookie, "")
        return self.sessions.find(token, touch=touch) if token else None

    def set_cookie(self, response: web.StreamResponse, session: Session) -> None:
        response.set_cookie(
            self.cookie, session.token, path="/", httponly=True, secure=self.settings.is_tls, samesite="Lax"
        )

    def drop_cookie(self, response: web.StreamResponse) -> None:
        response.del_cookie(self.cookie, path="/", httponly=True, secure=self.settings.is_tls, samesite="Lax")

    # Responses

    def _shared(self, request: web.Request, session: Session | None) -> dict[str, Any]:
        return {
            "csrf": "" if session is None else session.csrf,
            "user": "" if session is None else session.user,
            "logs_in": self.settings.logs_in,
            "logged_in": session is not None,
            "read_only": self.settings.read_only,
            "path": request.path,
            "query": request.query,
            "here": request.path_qs,
        }

    def respond(self, request: web.Request, session: Session | None, view: View) -> web.Response:
        text = render(view, self._shared(request, session))
        response = web.Response(text=text, status=view.status, content_type="text/html")
        response.enable_compression()
        return response

    def failed(self, request: web.Request, session: Session | None, failure: Failure) -> web.Response:
        return self.respond(
            request, session, View("failed.html", {"failure": failure}, status=failure.status)
        )

    @property
    def _ended(self) -> Failure:
        """The reason why a browser has no session (any more)."""
        if self.settings.logs_in:
            return Failure(401, "Your session has ended.", "Nothing was changed. Log in and start again.")
        return Failure(
            401,
            "The console doesn't know this page.",
            "Nothing was changed. It was started again, or your browser keeps no cookies: reload the page.",
        )

    def _failure(self, error: BaseException) -> Failure:
        """A failure, where only those who have logged in may do so again."""
        failure = failure_of(error)
        if failure.status != 401 or self.settings.logs_in:
            return failure
        return Failure(502, failure.what, "Start the console with a user that the cluster accepts.")

    async def asset(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        data = assets().files.get(name)
        if data is None:
            raise web.HTTPNotFound
        kind = _KINDS[name.rpartition(".")[2]]
        response = web.Response(body=data, content_type=kind, charset="utf-8")
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        response.enable_compression()
        return response

    # Ways to ask for a page

    def page(self, handler: Handler) -> Raw:
        """A page to read. As an event stream, it sends what changes for as long as the browser stays."""

        async def answer(request: web.Request) -> web.StreamResponse:
            streams = "text/event-stream" in request.headers.get("Accept", "")
            session = self.session_of(request, touch=not streams)
            if session is None:
                if self.settings.logs_in:
                    if streams:
                        return await self._tell_ended(request)
                    raise web.HTTPSeeOther(link("/login", next=request.path_qs))
                session = self.sessions.open()
            if streams:
                return await self._stream(request, session, handler)
            async with while_reachable(session.admin, 2 * self.settings.timeout):
                view = await handler(request, session)
            response = self.respond(request, session, view) if isinstance(view, View) else view
            if not response.prepared and request.cookies.get(self.cookie) != session.token:
                self.set_cookie(response, session)
            return response

        return answer

    def stream(self, handler: Stream) -> Raw:
        """Events that a page asks for: the hits of a search. It ends by itself, or when the browser goes away."""

        async def answer(request: web.Request) -> web.StreamResponse:
            session = self.session_of(request)
            if session is None:
                return await self._tell_ended(request)
            return await self._streaming(request, session, handler)

        return answer

    def form(self, handler: Handler) -> Raw:
        """A form that was sent: only with the session that it was made for, and not where the console only reads."""

        async def answer(request: web.Request) -> web.StreamResponse:
            session = self.session_of(request)
            if session is None:
                return self.failed(request, None, self._ended)
            form = await request.post()
            if not session.matches(str(form.get("csrf", ""))):
                failure = Failure(
                    403, "The form is from another session.", "Nothing was changed. Reload the page."
                )
                return self.failed(request, session, failure)
            if self.settings.read_only:
                failure = Failure(
                    403,
                    "This console only reads.",
                    "Nothing was changed. Start it without --read-only for changes.",
                )
                return self.failed(request, session, failure)
            check_reachable(session.admin)
            # Once begun, its outcome is waited for: a change may be made when a broker is back.
            async with asyncio.timeout(2 * self.settings.timeout):
                view = await handler(request, session)
            return self.respond(request, session, view) if isinstance(view, View) else view

        return answer

    def change(self, proposal: Proposal) -> Raw:
        """A form that proposes a change. The page shows exactly what would change, and asks."""

        async def ask(request: web.Request, session: Session) -> View:
            change = await proposal(request, session)
            return View("confirm.html", {"change": change, "token": session.propose(change)})

        return self.form(ask)

    async def confirm(self, request: web.Request, session: Session) -> View:
        """Make a change that was shown and confirmed. It is finished even if the browser goes away meanwhile."""
        form = await request.post()
        change = session.confirm(str(form.get("token", "")))
        if change is None:
            failure = Failure(
                409,
                "This change was made already, or has waited too long.",
                "Look at the page, and start again if needed.",
            )
            return View("failed.html", {"failure": failure}, status=failure.status)
        return await asyncio.shield(asyncio.ensure_future(self._make(request, session, change)))

    async def _make(self, request: web.Request, session: Session, change: Change) -> View:
        user, address = session.user, request.remote or ""
        try:
            self.audit.write("change", user=user, address=address, what=change.what, change=change.audit)
        except OSError as error:
            failure = Failure(
                500,
                f"The audit log can't be written: {error.strerror}.",
                "Nothing was changed. Make room for it first.",
            )
            return View("failed.html", {"failure": failure}, status=failure.status)
        session.busy += 1
        failed: Failure | None = None
        try:
            await change.run()
        except _FAILED as error:
            failed = self._failure(error)
        finally:
            session.busy -= 1
            session.watch.forget()
        outcome = "done" if failed is None else f"failed: {failed.what}"
        try:
            self.audit.write("outcome", user=user, address=address, what=change.what, outcome=outcome)
        except OSError as error:
            # The change is made, and the log has it; only its outcome is missing there.
            _LOG.error("the audit log can't be written: %s; %s: %s", error.strerror, change.what, outcome)
        status = 200 if failed is None else failed.status
        return View("done.html", {"change": change, "failure": failed}, status=status)

    # Live

    async def _tell_ended(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        await send_event(response, "ended", f"{self._ended.what} {self._ended.action}")
        return response

    async def _stream(self, request: web.Request, session: Session, handler: Handler) -> web.StreamResponse:
        """Render the page again and again, and send what differs from the last time."""

        async def follow(request: web.Request, session: Session, response: web.StreamResponse) -> None:
            await self._follow(request, session, handler, response)

        return await self._streaming(request, session, follow)

    async def _streaming(self, request: web.Request, session: Session, work: Stream) -> web.StreamResponse:
        """Send events. What fails becomes an event: the response has begun."""
        if self._streams >= _MOST_STREAMS:
            raise web.HTTPServiceUnavailable
        self._streams += 1
        try:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
            await response.prepare(request)
            try:
                await work(request, session, response)
            except Exception as error:
                if isinstance(error, ConnectionError) and not isinstance(error, ClientError):
                    raise  # the browser has gone
                if not isinstance(error, _FAILED):
                    _LOG.exception("events of %s failed", request.path)
                failure = self._failure(error)
                await send_event(response, "failed", f"{failure.what} {failure.action}")
            return response
        finally:
            self._streams -= 1

    async def _follow(
        self, request: web.Request, session: Session, handler: Handler, response: web.StreamResponse
    ) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + _STREAM_SECONDS
        last, sent = "", loop.time()
        while loop.time() < until:
            if session.ended or self.session_of(request, touch=False) is not session:
                if self.settings.logs_in:
                    await send_event(response, "ended", "Your session has ended. Log in again.")
                return
            try:
                async with while_reachable(session.admin, 2 * self.settings.timeout):
                    view = await handler(request, session)
                if not isinstance(view, View) or not view.live:
                    failure = view.values.get("failure") if isinstance(view, View) else None
                    if isinstance(failure, Failure):
                        # What the page shows is gone: the browser needn't ask again.
                        await send_event(response, "ended", f"{failure.what} {failure.action}")
                    return
                event, text = "live", render_live(view, self._shared(request, session))
            except _FAILED as error:
                failure = self._failure(error)
                event, text = "failed", f"{failure.what} {failure.action}"
            if text != last:
                await send_event(response, event, text)
                last, sent = text, loop.time()
            elif loop.time() - sent > _ALIVE_SECONDS:
                await response.write(b":\n\n")
                sent = loop.time()
            await asyncio.sleep(self.settings.refresh)
            if request.transport is None or request.transport.is_closing():
                return


async def send_event(response: web.StreamResponse, event: str, data: object) -> None:
    """An event whose data is JSON, so that it is one line."""
    await response.write(f"event: {event}\ndata: {json.dumps(data)}\n\n".encode())


def number_in(
    values: Mapping[str, str], name: str, default: int, least: int = 0, most: int = 2**63 - 1
) -> int:
    """A number from a query or a form. Raises click.BadParameter, which the page shows."""
    text = str(values.get(name, "")).strip()
    if not text:
        return default
    if not text.isascii() or not text.isdecimal() or len(text) > 19 or not least <= int(text) <= most:
        raise click.BadParameter(f"{name} is {text[:40]!r}; a number from {least:,} to {most:,} is needed")
    return int(text)


def flag_in(values: Mapping[str, str], name: str) -> bool:
    """A yes or no from a query or a form. Raises click.BadParameter."""
    text = str(values.get(name, ""))
    if text.lower() not in _FLAGS:
        raise click.BadParameter(f"{name} is {text[:40]!r}, which is neither yes nor no")
    return _FLAGS[text.lower()]


def page_of(query: Mapping[str, str], rows: Sequence[Any], size: int = PAGE_ROWS) -> Slice:
    """The rows on the page that a query asks for. Raises click.BadParameter."""
    pages = max(1, -(-len(rows) // size))
    page = min(number_in(query, "page", 1, 1, 10**6), pages)
    return Slice(rows[(page - 1) * size : page * size], page, pages, len(rows))


def check_reachable(admin: Admin) -> None:
    """Raises ConnectError if no broker can be reached, as far as the admin knows. Its refresh goes on trying."""
    if admin.unreachable is not None:
        raise ConnectError(admin.unreachable) from None


@asynccontextmanager
async def while_reachable(admin: Admin, seconds: float) -> AsyncIterator[None]:
    """Raises ConnectError if no broker can be reached, at once or a moment after the last one went.

    Raises TimeoutError after so many seconds.
    """
    loop = asyncio.get_running_loop()
    check_reachable(admin)

    def look() -> None:
        if admin.unreachable is None:
            timers[0] = loop.call_later(_LOOK_SECONDS, look)
        elif not limit.expired():
            limit.reschedule(loop.time())

    timers = [loop.call_later(_LOOK_SECONDS, look)]
    try:
        async with asyncio.timeout(seconds) as limit:
            yield
    except TimeoutError:
        check_reachable(admin)
        raise
    finally:
        timers[0].cancel()


class AuditLog:
    """One line of JSON for each login, and for each change that somebody confirmed, in a file or standard error.

    A change is written before it is made, and again with its end.
    """

    def __init__(self, path: str | None) -> None:
        """Raises ConfigurationError if the file can't be written."""
        self._own = path is not None
        try:
            self._file: TextIO = sys.stderr if path is None else open(path, "a", encoding="utf-8")  # noqa: SIM115
        except OSError as error:
            raise ConfigurationError(f"--audit-log {path}: {error.strerror}") from None

    def write(self, event: str, *, user: str, address: str, **fields: object) -> None:
        """Raises OSError: a change that can't be written isn't made."""
        line = {
            "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "level": "info",
            "event": event,
            "user": user,
            "address": address,
            **fields,
        }
        self._file.write(json.dumps(line, ensure_ascii=True, default=str) + "\n")
        self._file.flush()

    def close(self) -> None:
        if self._own:
            self._file.close()
