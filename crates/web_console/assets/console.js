// Shortcuts, local times, live regions, charts, and secrets that are hidden again. Pages work without this script.
"use strict";
(() => {
  const each = (selector, callback, root = document) => root.querySelectorAll(selector).forEach(callback);

  // "/" focuses the search field, except while typing; Ctrl+K always.
  const typing = (target) => /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || target.isContentEditable;
  document.addEventListener("keydown", (event) => {
    const field = document.getElementById("q");
    if (!field) return;
    const modified = event.ctrlKey || event.altKey || event.metaKey;
    const slash = event.key === "/" && !modified && !typing(event.target);
    const chord = event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey);
    if (slash || chord) {
      event.preventDefault();
      field.focus();
      field.select();
    }
  });

  // On narrow screens the menu is closed at first.
  if (matchMedia("(max-width: 50rem)").matches) each("[data-collapse]", (menu) => menu.removeAttribute("open"));

  // Times are in UTC, or in the browser's zone after a click on the button. Either way the zone is named.
  const utc = (date) => date.toISOString().slice(0, 16).replace("T", " ") + " UTC";
  const local = (date) => new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", timeZoneName: "short" }).format(date);
  const zone = () => localStorage.getItem("zone") || "utc";
  const times = (root = document) => each("time[datetime]", (element) => {
    const date = new Date(element.getAttribute("datetime"));
    if (!isNaN(date)) element.textContent = zone() === "local" ? local(date) : utc(date);
  }, root);
  each("[data-zone]", (button) => {
    const label = () => { button.textContent = zone() === "local" ? "Local time" : "UTC"; button.title = "Switch between UTC and local time"; };
    button.hidden = false;
    label();
    button.addEventListener("click", () => { localStorage.setItem("zone", zone() === "local" ? "utc" : "local"); label(); times(); });
  });
  times();

  // Live regions: after an event whose kind begins with a word of data-live, the page is fetched and the region replaced.
  const due = new Set();
  let timer = 0;
  const refresh = async () => {
    timer = 0;
    const ids = [...due];
    due.clear();
    const response = await fetch(location.href, { headers: { "HX-Request": "true" }, credentials: "same-origin" });
    if (!response.ok || response.redirected) return;
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
    for (const id of ids) {
      const current = document.getElementById(id), next = fresh.getElementById(id);
      // A region that has the focus stays as it is.
      if (!current || !next || current.contains(document.activeElement)) continue;
      current.replaceChildren(...next.childNodes);
      times(current);
      charts(current);
    }
  };
  const regions = [...document.querySelectorAll("[data-live][id]")];
  if (regions.length && window.EventSource) {
    const source = new EventSource("/console/events");
    const changed = (event) => {
      for (const region of document.querySelectorAll("[data-live][id]")) {
        if (region.dataset.live.split(" ").some((kind) => event.type.startsWith(kind))) due.add(region.id);
      }
      if (due.size && !timer) timer = setTimeout(refresh, 1000);
    };
    for (const kind of (document.body.dataset.events || "").split(" ").filter(Boolean)) source.addEventListener(kind, changed);
    source.addEventListener("lagged", () => { regions.forEach((region) => due.add(region.id)); if (!timer) timer = setTimeout(refresh, 1000); });
    addEventListener("pagehide", () => source.close());
  }

  // Polled regions: the page is fetched every data-every seconds, while it is visible and used: a page that is left alone must not
  // keep its session from expiring.
  const used = 10 * 60 * 1000;
  let lastUse = Date.now();
  for (const kind of ["pointerdown", "pointermove", "keydown", "scroll"]) addEventListener(kind, () => { lastUse = Date.now(); }, { passive: true });
  each("[data-every][id]", (region) => setInterval(() => {
    if (document.hidden || timer || Date.now() - lastUse > used) return;
    due.add(region.id);
    refresh().catch(() => {});
  }, 1000 * Number(region.dataset.every)));

  // Charts of tables: the first column is the time, each further column a series.
  function charts(root = document) {
    if (!window.uPlot) return;
    each("figure[data-chart]", (figure) => {
      const table = figure.querySelector("table");
      if (!table || figure.querySelector(".uplot")) return;
      const head = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent);
      const rows = [...table.querySelectorAll("tbody tr")].map((row) => [...row.children].map((cell) => cell.dataset.value || cell.textContent));
      const x = rows.map((row) => Date.parse(row[0]) / 1000);
      const style = getComputedStyle(document.documentElement);
      const colours = ["--accent", "--bad", "--warn", "--good", "--calm"].map((name) => style.getPropertyValue(name).trim());
      const faint = style.getPropertyValue("--faint").trim(), line = style.getPropertyValue("--line").trim();
      const axis = { stroke: faint, grid: { stroke: line, width: 1 }, ticks: { stroke: line } };
      const bars = figure.dataset.chart === "bars";
      const series = head.slice(1).map((label, index) => ({
        label, stroke: colours[index % colours.length], width: 2, fill: bars ? colours[index % colours.length] + "99" : undefined,
        paths: bars ? uPlot.paths.bars({ size: [0.7, 40] }) : undefined, points: { show: false },
      }));
      const container = document.createElement("div");
      container.setAttribute("aria-hidden", "true");
      figure.prepend(container);
      const width = () => Math.max(280, figure.clientWidth);
      const plot = new uPlot({
        width: width(), height: 220, tzDate: zone() === "local" ? undefined : (stamp) => uPlot.tzDate(new Date(stamp * 1e3), "Etc/UTC"),
        series: [{}, ...series], axes: [axis, { ...axis, size: 56 }], scales: { y: { range: (_, low, high) => [0, Math.max(1, high)] } },
      }, [x, ...head.slice(1).map((_, index) => rows.map((row) => Number(row[index + 1])))], container);
      addEventListener("resize", () => plot.setSize({ width: width(), height: 220 }));
    }, root);
  }
  addEventListener("load", () => charts());

  // A secret is hidden after its time. A sign-in link has its code in the fragment, which browsers do not send to servers.
  each("[data-hides-after]", (element) => setTimeout(() => element.replaceChildren("hidden"), 1000 * Number(element.dataset.hidesAfter)));
  each("[data-code-from-link]", (field) => {
    const code = new URLSearchParams(location.hash.slice(1)).get("code");
    if (!code) return;
    history.replaceState(null, "", location.pathname + location.search);
    field.value = code;
    field.form.requestSubmit();
  });
  // The page of a security key has the options of the ceremony. Its form sends the response.
  const bytes = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (letter) => letter.charCodeAt(0));
  const text = (buffer) => buffer && btoa(String.fromCharCode(...new Uint8Array(buffer))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  each("[data-security-key]", (form) => {
    const options = JSON.parse(form.dataset.options);
    options.challenge = bytes(options.challenge);
    if (options.user) options.user.id = bytes(options.user.id);
    for (const one of [...(options.allowCredentials ?? []), ...(options.excludeCredentials ?? [])]) one.id = bytes(one.id);
    const [button, alert] = [form.querySelector("button"), form.querySelector("[role=alert]")];
    const use = async () => {
      alert.hidden = true;
      try {
        if (!navigator.credentials) throw new Error("This browser does not offer security keys on this page.");
        const { rawId, response } = await navigator.credentials[form.dataset.securityKey]({ publicKey: options });
        const created = response.attestationObject;
        form.elements.response.value = JSON.stringify(created ? {
          client_data_json: text(response.clientDataJSON), attestation_object: text(created), transports: response.getTransports?.() ?? [],
        } : {
          credential_id: text(rawId), client_data_json: text(response.clientDataJSON), authenticator_data: text(response.authenticatorData),
          signature: text(response.signature), user_handle: text(response.userHandle) || undefined,
        });
        form.requestSubmit();
      } catch (error) {
        const known = { InvalidStateError: "This security key is registered already.", NotAllowedError: "The security key did not respond: the request was cancelled, timed out, or the key is not registered here." };
        alert.textContent = known[error.name] ?? error.message;
        alert.hidden = button.hidden = false;
        button.focus();
      }
    };
    button.addEventListener("click", use);
    use();
  });
  each("[data-copy]", (button) => {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      button.textContent = "Copied";
    });
  });
})();
