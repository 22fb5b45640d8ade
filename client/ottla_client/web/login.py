"""Logging in and out: with the cluster's own users, by SCRAM or PLAIN, which the cluster checks."""

from __future__ import annotations

from urllib.parse import urlsplit

from aiohttp import web

from ..errors import AuthenticationError, ClientError
from .failures import Failure, failure_of
from .rendering import View
from .sessions import TooManyTriesError
from .site import Site


class Login:
    """The pages of a login. Its form needs no session: there is none yet, and other sites' forms are refused."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def form(self, request: web.Request) -> web.StreamResponse:
        if not self._site.settings.logs_in:
            raise web.HTTPSeeOther("/")
        return self._form(request, "", "", 200)

    def _form(self, request: web.Request, user: str, wrong: str, status: int) -> web.Response:
        view = View(
            "login.html",
            {"name": user, "wrong": wrong, "next": _local(request.query.get("next", ""))},
            status,
        )
        return self._site.respond(request, None, view)

    async def log_in(self, request: web.Request) -> web.StreamResponse:
        site = self._site
        if not site.settings.logs_in:
            raise web.HTTPSeeOther("/")
        form = await request.post()
        user, password = str(form.get("user", "")), str(form.get("password", ""))
        address = request.remote or ""
        if not user or not password:
            return self._form(request, user, "Give a user and a password.", 400)
        try:
            session = await site.sessions.log_in(user, password, address)
        except TooManyTriesError as error:
            return self._form(request, user, f"{error}.".capitalize(), 429)
        except AuthenticationError:
            site.audit.write("login", user=user, address=address, outcome="refused")
            return self._form(request, user, "The cluster refuses this user or password.", 401)
        except (ClientError, TimeoutError) as error:
            failure = failure_of(error)
            return self._form(request, user, f"{failure.what} {failure.action}", failure.status)
        try:
            site.audit.write("login", user=user, address=address, outcome="done")
        except OSError:
            site.sessions.end(session)
            raise
        old = site.session_of(request)
        if old is not None:
            site.sessions.end(old)
        response = web.HTTPSeeOther(_local(request.query.get("next", "")) or "/")
        site.set_cookie(response, session)
        raise response

    async def log_out(self, request: web.Request) -> web.StreamResponse:
        site = self._site
        session = site.session_of(request)
        if session is not None:
            form = await request.post()
            if not session.matches(str(form.get("csrf", ""))):
                failure = Failure(403, "The form is from another session.", "Reload the page.")
                return site.failed(request, session, failure)
            site.sessions.end(session)
        response = web.HTTPSeeOther("/login" if site.settings.logs_in else "/")
        site.drop_cookie(response)
        raise response


def _local(target: str) -> str:
    """A path of this site; "" for anything else, as an address of another one."""
    parts = urlsplit(target)
    is_local = (
        not parts.scheme and not parts.netloc and target.startswith("/") and target[1:2] not in ("/", "\\")
    )
    return target if is_local and not any(ord(each) < 32 for each in target) else ""
