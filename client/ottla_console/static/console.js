// Live pages, searches, themes and keys. Every page works without it, except that it must be reloaded.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const status = $("status");
  const say = (text) => { if (status.textContent !== text) status.textContent = text; };

  // Live: the server renders the page again, and sends it when something differs.
  const live = $("live");
  if (live && live.hasAttribute("data-live") && window.EventSource) {
    let source = null;
    let ended = false;
    const show = (event) => {
      say("");
      // Who is reading a selection, or has opened something, isn't interrupted.
      const selection = document.getSelection();
      if (selection && !selection.isCollapsed && live.contains(selection.anchorNode)) return;
      const active = document.activeElement;
      const inside = active && live.contains(active);
      const mark = inside && (active.getAttribute("href") || active.getAttribute("aria-label"));
      const open = [...live.querySelectorAll("details")].map((each) => each.open);
      const left = [...live.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
      live.innerHTML = JSON.parse(event.data);
      live.querySelectorAll("details").forEach((each, i) => { each.open = Boolean(open[i]); });
      live.querySelectorAll(".scroll").forEach((each, i) => { each.scrollLeft = left[i] || 0; });
      if (mark) {
        const again = [...live.querySelectorAll("a[href], [aria-label]")].find(
          (each) => each.getAttribute("href") === mark || each.getAttribute("aria-label") === mark);
        if (again) again.focus({ preventScroll: true });
      }
    };
    const start = () => {
      if (source || ended) return;
      source = new EventSource(location.href.split("#")[0]);
      source.addEventListener("live", show);
      source.addEventListener("failed", (event) => say(JSON.parse(event.data)));
      source.addEventListener("ended", (event) => { ended = true; say(JSON.parse(event.data)); stop(); });
      source.onerror = () => say("The console doesn't answer. What you see is the last that it sent.");
    };
    const stop = () => { if (source) { source.close(); source = null; } };
    // A page in the background costs the cluster nothing.
    document.addEventListener("visibilitychange", () => (document.hidden ? stop() : start()));
    addEventListener("pagehide", stop);
    addEventListener("pageshow", () => { if (!document.hidden) start(); });
    if (!document.hidden) start();
  }

  // A search: its hits come as they are found.
  const found = $("found");
  if (found && found.dataset.stream) {
    const source = new EventSource(found.dataset.stream);
    const button = $("stop");
    const stop = (text) => { source.close(); button.hidden = true; if (text) found.textContent = text; };
    button.hidden = false;
    button.addEventListener("click", () => stop(found.textContent + " (stopped)"));
    source.addEventListener("hits", (event) => {
      const data = JSON.parse(event.data);
      found.textContent = data.text;
      if (data.html) $("rows").innerHTML = data.html;
    });
    source.addEventListener("done", (event) => stop(JSON.parse(event.data)));
    source.addEventListener("failed", (event) => stop(JSON.parse(event.data)));
    source.addEventListener("ended", (event) => stop(JSON.parse(event.data)));
    source.onerror = () => stop("The search was interrupted. Search again.");
    addEventListener("pagehide", () => source.close());
  }

  // Forms leave out what is empty, so that links stay short.
  document.querySelectorAll("form[method=get]").forEach((form) => form.addEventListener("submit", () => {
    form.querySelectorAll("input, select").forEach((each) => { if (!each.value) each.disabled = true; });
  }));

  // The theme: the system's, light or dark.
  const store = (name, value) => { try { localStorage.setItem(name, value); } catch { /* not allowed */ } };
  const stored = (name) => { try { return localStorage.getItem(name) || ""; } catch { return ""; } };
  const theme = $("theme");
  const themes = ["", "light", "dark"];
  const apply = (name) => {
    if (name) document.documentElement.dataset.theme = name; else delete document.documentElement.dataset.theme;
    theme.textContent = "Theme: " + (name || "auto");
  };
  apply(themes.includes(stored("theme")) ? stored("theme") : "");
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const next = themes[(themes.indexOf(stored("theme")) + 1) % themes.length];
    store("theme", next);
    apply(next);
  });

  document.querySelectorAll("[data-copy]").forEach((button) => {
    if (!navigator.clipboard) return;
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(location.href);
      button.textContent = "Copied";
    });
  });

  // Keys, which can be turned off.
  const help = $("help");
  const off = $("keys-off");
  off.checked = stored("keys") === "off";
  off.addEventListener("change", () => store("keys", off.checked ? "off" : ""));
  $("keys").hidden = false;
  $("keys").addEventListener("click", () => help.showModal());
  let went = 0;
  document.addEventListener("keydown", (event) => {
    if (off.checked || help.open || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, select, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (event.key === "/") {
      const field = document.querySelector("[data-search]");
      if (field) { event.preventDefault(); field.focus(); field.select(); }
    } else if (event.key === "?") {
      help.showModal();
    } else if (went && Date.now() - went < 1500) {
      went = 0;
      const target = document.querySelector(`nav [data-key="${CSS.escape(event.key)}"]`);
      if (target) location.assign(target.href);
    } else if (event.key === "g") {
      went = Date.now();
    }
  });
})();
