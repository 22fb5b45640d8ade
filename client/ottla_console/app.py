"""The console as an aiohttp application: which page is where."""

from __future__ import annotations

from collections.abc import AsyncIterator

from aiohttp import web

from .login import CALLBACK, Login
from .pages import access, group_history, groups, landing, messages, overview, quotas, topics, transactions
from .settings import WebSettings
from .site import Site

MOST_FORM_BYTES = 256 << 10


def build(settings: WebSettings) -> web.Application:
    """The application, which connects to the cluster when it starts. Raises ConfigurationError."""
    site = Site(settings)
    app = web.Application(middlewares=[site.guard], client_max_size=MOST_FORM_BYTES)
    app.on_response_prepare.append(site.prepare)
    login = Login(site)
    jobs = landing.Landing(site)

    async def running(_: web.Application) -> AsyncIterator[None]:
        try:
            await site.sessions.start()
            yield
        finally:
            await jobs.close()
            await site.sessions.close()
            await login.close()
            await site.schemas.close()
            site.audit.close()

    app.cleanup_ctx.append(running)
    app.add_routes(_pages(site, jobs))
    app.add_routes(
        [
            web.get("/login", login.form),
            web.post("/login", login.log_in),
            web.get("/login/provider", login.begin),
            web.get(CALLBACK, login.callback),
            web.post("/logout", login.log_out),
            web.get("/static/{name}", site.asset),
        ]
    )
    return app


def _pages(site: Site, jobs: landing.Landing) -> list[web.RouteDef]:
    """The pages for people who have logged in."""
    reading = messages.Messages(site.schemas)
    kept = group_history.GroupHistory(site.settings)
    return [
        web.get("/", site.page(overview.overview)),
        web.get("/brokers", site.page(overview.brokers)),
        web.get(r"/brokers/{broker:\d{1,9}}", site.page(overview.broker)),
        web.get("/topics", site.page(topics.topics)),
        web.get("/topics/{topic}", site.page(topics.topic)),
        web.get("/topics/{topic}/messages", site.page(reading.messages)),
        web.get("/topics/{topic}/found", site.stream(reading.found)),
        web.get("/topics/{topic}/{partition}/{offset}", site.page(reading.message)),
        web.get("/topics/{topic}/{partition}/{offset}/value", site.page(messages.download)),
        web.get("/groups", site.page(groups.groups)),
        web.get("/group", site.page(groups.group)),
        web.get("/group/history", site.page(kept.history)),
        web.post("/group/reset", site.change(groups.reset)),
        web.post("/group/delete", site.change(groups.delete)),
        web.get("/transactions", site.page(transactions.transactions)),
        web.post("/transactions/abort", site.change(transactions.abort)),
        web.get("/moves", site.page(transactions.moves)),
        web.get("/access", site.page(access.access)),
        web.post("/access/add", site.change(access.add)),
        web.post("/access/remove", site.change(access.remove)),
        web.get("/quotas", site.page(quotas.quotas)),
        web.post("/quotas/set", site.change(quotas.set_quota)),
        web.post("/quotas/remove", site.change(quotas.remove_quota)),
        web.get("/landing", site.page(jobs.landing)),
        web.get("/landing/dead-letters/{topic}", site.page(jobs.dead_letters)),
        web.post("/confirm", site.form(site.confirm)),
    ]
