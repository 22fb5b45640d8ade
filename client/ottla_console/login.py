"""Logging in and out: with the cluster's own users, by SCRAM or PLAIN, or at an OpenID Connect provider."""

from __future__ import annotations

from urllib.parse import urlsplit

from aiohttp import web

from ottla_client.errors import AuthenticationError, ClientError

from .failures import Failure, failure_of
from .oidc import LOGIN_SECONDS, OidcError, OidcProvider
from .rendering import View
from .sessions import Session, TooManyTriesError
from .site import Site

CALLBACK = "/login/callback"


class Login:
    """The pages of a login. Its form needs no session: there is none yet, and other sites' forms are refused."""

    def __init__(self, site: Site) -> None:
        """Raises ConfigurationError."""
        self._site = site
        settings = site.settings
        self._provider = None if settings.oidc is None else OidcProvider(settings.oidc)
        # Apart from the session's cookie: logging in again ends no session before it has succeeded.
        self._cookie = f"{site.cookie}_login"

    async def close(self) -> None:
        if self._provider is not None:
            await self._provider.close()

    async def form(self, request: web.Request) -> web.StreamResponse:
        if not self._site.settings.logs_in:
            raise web.HTTPSeeOther("/")
        return self._form(request, "", "", 200)

    def _form(self, request: web.Request, user: str, wrong: str, status: int) -> web.Response:
        provider = self._provider
        view = View(
            "login.html",
            {
                "name": user,
                "wrong": wrong,
                "next": _local(request.query.get("next", "")),
                "provider": "" if provider is None else provider.settings.host,
            },
            status,
        )
        return self._site.respond(request, None, view)

    async def log_in(self, request: web.Request) -> web.StreamResponse:
        site = self._site
        if not site.settings.logs_in or self._provider is not None:
            raise web.HTTPSeeOther("/login" if self._provider is not None else "/")
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
        raise self._logged_in(request, session, request.query.get("next", ""))

    def _logged_in(self, request: web.Request, session: Session, target: str) -> web.HTTPSeeOther:
        """The redirect of a new session. Raises OSError if the audit log can't be written: then there is none."""
        site = self._site
        try:
            site.audit.write("login", user=session.user, address=request.remote or "", outcome="done")
        except OSError:
            site.sessions.end(session)
            raise
        old = site.session_of(request)
        if old is not None:
            site.sessions.end(old)
        response = web.HTTPSeeOther(_local(target) or "/")
        site.set_cookie(response, session)
        return response

    # At a provider

    async def begin(self, request: web.Request) -> web.StreamResponse:
        """Send the browser to the provider."""
        if self._provider is None:
            raise web.HTTPNotFound
        site = self._site
        redirect = f"{'https' if site.settings.is_tls else 'http'}://{request.host}{CALLBACK}"
        try:
            started = await self._provider.begin(redirect, _local(request.query.get("next", "")))
        except OidcError as error:
            return self._form(request, "", _sentence(error), 502)
        response = web.HTTPSeeOther(started.url)
        response.set_cookie(
            self._cookie,
            started.cookie,
            path="/",
            max_age=round(LOGIN_SECONDS),
            httponly=True,
            secure=site.settings.is_tls,
            samesite="Lax",
        )
        raise response

    async def callback(self, request: web.Request) -> web.StreamResponse:
        """The browser comes back from the provider."""
        if self._provider is None:
            raise web.HTTPNotFound
        site = self._site
        address = request.remote or ""
        try:
            person = await self._provider.finish(request.query, request.cookies.get(self._cookie, ""))
        except OidcError as error:
            site.audit.write("login", user="", address=address, outcome="refused", reason=str(error))
            return self._form(request, "", _sentence(error), 401)
        try:
            session = await site.sessions.log_in_by_token(person.name, person.tokens)
        except AuthenticationError:
            site.audit.write("login", user=person.name, address=address, outcome="refused")
            wrong = "The cluster refuses the provider's token; its log says why. It expects an audience and an issuer."
            return self._form(request, "", wrong, 401)
        except (ClientError, TimeoutError) as error:
            failure = failure_of(error)
            return self._form(request, "", f"{failure.what} {failure.action}", failure.status)
        response = self._logged_in(request, session, person.next)
        response.del_cookie(
            self._cookie, path="/", httponly=True, secure=site.settings.is_tls, samesite="Lax"
        )
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


def _sentence(error: OidcError) -> str:
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."


def _local(target: str) -> str:
    """A path of this site; "" for anything else, as an address of another one."""
    try:
        parts = urlsplit(target)
    except ValueError:
        return ""
    is_local = (
        not parts.scheme and not parts.netloc and target.startswith("/") and target[1:2] not in ("/", "\\")
    )
    return target if is_local and not any(ord(each) < 32 for each in target) else ""
