// @ts-check
// The live page: asks /api every two seconds, or every four where there are many caches, and shows
// what has changed. All text is set as text, never as HTML. An update moves neither the focus nor
// the scroll position.

const INTERVAL_MS = 2000;
/** Above this number of caches every second poll is left out: it costs some milliseconds. */
const CACHES_MANY = 100;
/** A request that takes longer has failed. */
const TIMEOUT_MS = 4000;
/** Points of the small charts in the tiles: two minutes, or four with many caches. */
const POINTS = 60;
/** Rows of a table before "show all". */
const ROWS = 50;

/** @typedef {Record<string, any>} Item */
/** @typedef {{ title: string, value: (item: Item) => any, show?: (value: any, item: Item) => string, numeric?: boolean, link?: (item: Item) => string, tone?: (value: any, item: Item) => string, wide?: boolean }} Column */

/** @param {string} id */
const byId = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/**
 * @param {string} name
 * @param {Record<string, string>} [attributes]
 * @param {(Node | string)[]} children
 */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** A link to a page of the documentation. @param {string} address */
function more(address) {
  const page = address.replace(/^.*\/|\.md.*$/g, "");
  return element("a", { href: address, rel: "noreferrer" }, page === "headers" ? "more" : page);
}

/** Sets a text if it differs: the browser then has nothing to lay out.
 * @param {Node} node @param {string} text */
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** @param {Element} node @param {string} name @param {string | null} value */
function setAttribute(node, name, value) {
  if (value === null || value === "") node.removeAttribute(name);
  else if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

// Numbers as people read them.

/** Much faster than Intl.NumberFormat. @param {number} value */
function whole(value) {
  const digits = String(Math.round(value));
  return value < 1000 ? digits : digits.replace(/\B(?=(\d{3})+$)/g, ",");
}

/** @param {any} value */
function count(value) {
  return typeof value === "number" ? whole(value) : "–";
}

/** @param {any} value */
function rate(value) {
  if (typeof value !== "number") return "–";
  if (value === 0) return "0";
  if (value < 0.01) return "< 0.01";
  return value < 10 ? value.toFixed(value < 1 ? 2 : 1) : whole(value);
}

/** @param {any} value */
function bytes(value) {
  if (typeof value !== "number") return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value < 10 && unit > 0 ? value.toFixed(1) : whole(value)} ${units[unit]}`;
}

/** @param {any} value */
function percent(value) {
  if (typeof value !== "number") return "–";
  return `${(100 * value).toFixed(value > 0.0995 && value < 0.9995 ? 0 : 1)} %`;
}

/** @param {any} seconds */
function duration(seconds) {
  if (typeof seconds !== "number") return "–";
  if (seconds === 0) return "0 s";
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${Math.round(seconds * 1e3)} ms`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

/** @param {any} time The seconds between a time and the snapshot. */
function age(time) {
  const then = Date.parse(time);
  return Number.isNaN(then) ? null : Math.max(0, (now - then) / 1000);
}

/** The time of the latest answer, by the clock of Weir. */
let now = Date.now();

// Tables.

/** What is typed in the search box, in lower case. */
let search = "";

/** A table that sorts by its heads, shows what the search finds, and keeps its rows. */
class Table {
  /**
   * @param {string} id The id of its section.
   * @param {string} title
   * @param {string} about One sentence under the title.
   * @param {Column[]} columns The first one names the row.
   * @param {(item: Item) => string} key
   * @param {{ sort: number, descending: boolean } | null} order null if it cannot be sorted.
   * @param {string} empty What stands for no rows.
   */
  constructor(id, title, about, columns, key, order, empty) {
    this.columns = columns;
    this.key = key;
    this.order = order;
    this.empty = empty;
    this.showsAll = false;
    /** @type {Item[]} */
    this.items = [];
    /** @type {Map<string, { row: HTMLTableRowElement, cells: HTMLElement[], shown: string[] }>} */
    this.rows = new Map();
    this.countText = element("span", { class: "count" });
    this.all = element("button", { type: "button", hidden: "" });
    this.all.addEventListener("click", () => {
      this.showsAll = !this.showsAll;
      this.draw();
    });
    this.heads = columns.map((column, place) => this.head(column, place));
    this.body = element("tbody");
    this.none = element("p", { class: "none" });
    this.table = element(
      "table",
      {},
      element("caption", { class: "hidden" }, title),
      element("thead", {}, element("tr", {}, ...this.heads)),
      this.body,
    );
    const heading = element("h2", { id: `${id}-title` }, title);
    const scroll = element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": `${title}, table` }, this.table, this.none);
    byId(id).append(
      element("div", { class: "head" }, heading, element("span", { class: "count" }, about), this.countText, this.all),
      scroll,
    );
  }

  /** @param {Column} column @param {number} place */
  head(column, place) {
    const head = element("th", { scope: "col", class: column.numeric ? "number" : "" });
    if (this.order === null) {
      head.append(column.title);
      return head;
    }
    const button = element("button", { type: "button" }, column.title);
    button.addEventListener("click", () => {
      const again = this.order?.sort === place;
      const descending = again ? !this.order?.descending : column.numeric === true;
      this.order = { sort: place, descending };
      this.draw();
    });
    head.append(button);
    return head;
  }

  /** @param {Item[]} items */
  set(items) {
    this.items = items;
    this.draw();
  }

  sorted() {
    const texts = this.items.map((item) => ({ item, values: this.columns.map((column) => column.value(item)) }));
    const found = texts.filter(({ item, values }) => {
      if (search === "") return true;
      const shown = this.columns.map((column, place) => this.shown(column, values[place], item));
      return shown.join(" ").toLowerCase().includes(search);
    });
    const order = this.order;
    if (order !== null) {
      const { sort, descending } = order;
      const sign = descending ? -1 : 1;
      found.sort((one, other) => sign * compare(one.values[sort], other.values[sort]));
    }
    return found;
  }

  /** @param {Column} column @param {any} value @param {Item} item */
  shown(column, value, item) {
    return column.show ? column.show(value, item) : String(value ?? "");
  }

  draw() {
    const found = this.sorted();
    const shown = this.showsAll ? found : found.slice(0, ROWS);
    const gone = new Set(this.rows.keys());
    let before = null;
    for (const { item, values } of shown) {
      const key = this.key(item);
      gone.delete(key);
      let known = this.rows.get(key);
      if (known === undefined) {
        known = this.row();
        this.rows.set(key, known);
      }
      this.columns.forEach((column, place) => {
        const text = this.shown(column, values[place], item);
        const cell = /** @type {NonNullable<typeof known>} */ (known).cells[place];
        const kept = /** @type {NonNullable<typeof known>} */ (known).shown;
        const tone = column.tone ? column.tone(values[place], item) : "";
        const mark = `${tone}|${text}`;
        if (kept[place] !== mark) {
          kept[place] = mark;
          const link = column.link ? column.link(item) : "";
          if (link === "") cell.textContent = text;
          else cell.replaceChildren(text, text === "" ? "" : " ", more(link));
          if (column.tone) cell.className = `${column.numeric ? "number " : ""}${tone}`;
        }
      });
      const place = before === null ? this.body.firstChild : before.nextSibling;
      if (place !== known.row) this.body.insertBefore(known.row, place);
      before = known.row;
    }
    for (const key of gone) {
      this.rows.get(key)?.row.remove();
      this.rows.delete(key);
    }
    this.heads.forEach((head, place) => {
      const order = this.order?.sort === place ? (this.order.descending ? "descending" : "ascending") : null;
      if (this.order !== null) setAttribute(head, "aria-sort", order);
    });
    const all = this.items.length;
    setText(this.countText, search === "" ? `${count(all)} in all` : `${count(found.length)} of ${count(all)} match`);
    this.all.hidden = found.length <= ROWS;
    setText(this.all, this.showsAll ? `Show the first ${ROWS}` : `Show all ${count(found.length)}`);
    this.none.hidden = found.length > 0;
    this.table.hidden = found.length === 0;
    setText(this.none, all === 0 ? this.empty : "Nothing matches the search.");
  }

  row() {
    const row = /** @type {HTMLTableRowElement} */ (element("tr"));
    const cells = this.columns.map((column, place) => {
      const kind = column.numeric ? "number" : column.wide ? "wide" : "";
      return place === 0
        ? element("th", { scope: "row", class: kind })
        : element("td", { class: kind });
    });
    row.append(...cells);
    return { row, cells, shown: this.columns.map(() => "") };
  }
}

const collator = new Intl.Collator("en");

/** Orders numbers and texts; what is not known comes last among the large.
 * @param {any} one @param {any} other */
function compare(one, other) {
  if (typeof one === "number" && typeof other === "number") return one - other;
  if (typeof one === "number") return 1;
  if (typeof other === "number") return -1;
  return collator.compare(String(one ?? ""), String(other ?? ""));
}

/** @param {string} title @param {string} field @param {Partial<Column>} [more] @returns {Column} */
const column = (title, field, more = {}) => ({ title, value: (item) => item[field], ...more });
/** @param {string} title @param {string} field @param {(value: any) => string} show @param {Partial<Column>} [more] @returns {Column} */
const numeric = (title, field, show, more = {}) => ({ title, value: (item) => item[field], show, numeric: true, ...more });

/** @param {any} value @returns {string} */
function difference(value) {
  if (!value) return "";
  const keys = value.objects.map((/** @type {any} */ it) => `${it.key} (cache ${it.cache ?? "none"}, API server ${it.upstream ?? "none"})`);
  return `${duration(age(value.time))} ago, wrong: ${value.wrong}: ${keys.join(", ")}`;
}

const caches = new Table(
  "caches",
  "Caches",
  "",
  [
    { title: "Resource", value: (it) => (it.group === "" ? it.resource : `${it.resource}.${it.group}`) },
    column("Version", "version"),
    column("Namespace", "namespace", { show: (value) => value || "all" }),
    column("Form", "representation"),
    column("State", "state", {
      show: (value, it) => `${it.overBudget ? "over budget, " : ""}${it.quarantined ? "quarantined, " : ""}${value} for ${duration(age(it.stateSince))}`,
      tone: (value, it) => (it.overBudget || it.quarantined || value === "backing-off" || value === "reviewing" ? "bad" : value === "watching" ? "good" : "warn"),
    }),
    numeric("Objects", "objects", count),
    numeric("Memory", "bytes", bytes),
    numeric("History", "historySeconds", duration),
    numeric("Last progress", "progressAgeSeconds", duration),
    numeric("Watches", "watchers", count),
    numeric("Behind", "watchersBehind", count, { tone: (value) => (value > 0 ? "warn" : "") }),
    numeric("Hits/s", "hitsPerSecond", rate),
    numeric("Events/s", "eventsPerSecond", rate),
    numeric("Relists", "relists", count),
    column("Last check", "lastCheck", { show: (value) => (value ? `${duration(age(value))} ago` : "") }),
    column("Last difference", "lastDifference", { show: difference, tone: (value) => (value ? "bad" : ""), wide: true }),
    column("Last failure", "lastFailure", { show: (value) => (value ? `${duration(age(value.time))} ago: ${value.cause}` : ""), wide: true }),
  ],
  (it) => [it.group, it.version, it.resource, it.namespace, it.representation].join("/"),
  { sort: 9, descending: true },
  "No cache is in use. A cache starts when a client first reads a resource.",
);

const reasons = new Table(
  "reasons",
  "Why not from a cache",
  "",
  [
    column("Reason", "reason"),
    column("Origin", "cacheStatus", { show: (value) => (value === "forward" ? "forwarded" : "Weir's error"), tone: (value) => (value === "forward" ? "" : "bad") }),
    numeric("Now/s", "perSecond", rate),
    numeric("Share", "shareOfRequests", percent),
    numeric("In all", "total", count),
    column("Meaning", "meaning", { wide: true }),
    column("What would change it", "change", { wide: true, link: (it) => it.link }),
  ],
  (it) => `${it.cacheStatus}/${it.reason}`,
  { sort: 3, descending: true },
  "Every request was answered from a cache.",
);

const clients = new Table(
  "clients",
  "Clients by cost",
  "",
  [
    { title: "Client", value: (it) => it.user || it.userAgent || "(no user agent)" },
    column("Verb", "verb"),
    column("Resource", "resource"),
    numeric("Share of cost", "share", percent),
    numeric("Requests/s", "requestsPerSecond", rate),
    numeric("Forwarded/s", "forwardedPerSecond", rate),
    numeric("Refused/s", "refusedPerSecond", rate, { tone: (value) => (value > 0 ? "warn" : "") }),
    numeric("Bytes/s", "bytesPerSecond", bytes),
    numeric("Seats upstream", "upstreamSeats", rate),
    numeric("CPU here", "cpuCores", rate),
  ],
  (it) => [it.user ?? it.userAgent, it.verb, it.resource].join("|"),
  { sort: 3, descending: true },
  "Costs are not added up: flowControl.mode is off, or no client came yet.",
);

const findings = new Table(
  "findings",
  "What clients could do better",
  "",
  [
    column("Finding", "title"),
    column("Weight", "weight", { tone: (value) => (value === "critical" ? "bad" : value === "warning" ? "warn" : "") }),
    { title: "Client", value: (it) => it.client },
    column("Resource", "resource"),
    column("Seen", "evidence", { wide: true }),
    column("Estimated cost", "cost"),
    column("Fix", "fix", { wide: true }),
  ],
  (it) => [it.rule, it.client, it.resource].join("|"),
  null,
  "Nothing to say about the clients.",
);

const events = new Table(
  "events",
  "What happened lately",
  "",
  [
    { title: "When", value: (it) => it.number, show: (_, it) => `${duration(age(it.time))} ago` },
    column("Kind", "kind", { tone: (value) => (["rewind", "back-off", "budget", "overload", "quarantine", "rights", "certificate", "credentials"].includes(value) ? "warn" : "") }),
    column("What", "subject"),
    column("Event", "text", { wide: true }),
    numeric("Times", "count", count),
  ],
  (it) => [it.kind, it.subject, it.text].join("|"),
  null,
  "Nothing notable happened.",
);

const limits = new Table(
  "limits",
  "Limits",
  "",
  [
    column("Limit", "name"),
    numeric("Used", "used", (value) => String(value), { show: (value, it) => (it.unit === "bytes" ? bytes(value) : count(value)) }),
    numeric("Most", "limit", (value) => String(value), { show: (value, it) => (it.unit === "bytes" ? bytes(value) : count(value)) }),
    { title: "Used part", value: (it) => (typeof it.used === "number" && it.limit > 0 ? it.used / it.limit : null), show: percent, numeric: true, tone: (value) => (value >= 0.9 ? "bad" : value >= 0.7 ? "warn" : "") },
    numeric("Times met", "timesMet", count, { tone: (value) => (value > 0 ? "warn" : "") }),
    column("Setting", "setting"),
  ],
  (it) => it.name,
  { sort: 3, descending: true },
  "No limit is known.",
);

// Tiles.

/** @type {Record<string, { value: HTMLElement, note: HTMLElement, line: SVGPolylineElement, points: number[] }>} */
const tiles = {};

/** @param {string} id @param {string} title @param {string} value @param {string} note @param {any} point */
function tile(id, title, value, note, point) {
  let known = tiles[id];
  if (known === undefined) {
    const space = "http://www.w3.org/2000/svg";
    const chart = document.createElementNS(space, "svg");
    chart.setAttribute("viewBox", `0 0 ${POINTS - 1} 20`);
    chart.setAttribute("preserveAspectRatio", "none");
    chart.setAttribute("aria-hidden", "true");
    const line = document.createElementNS(space, "polyline");
    chart.append(line);
    const large = element("dd", { class: "large" });
    const small = element("dd", { class: "note" });
    byId("tiles").append(element("div", { id: `tile-${id}` }, element("dt", {}, title), large, small, element("dd", { "aria-hidden": "true" }, chart)));
    known = { value: large, note: small, line, points: [] };
    tiles[id] = known;
  }
  setText(known.value, value);
  setText(known.note, note);
  known.points.push(typeof point === "number" ? point : 0);
  if (known.points.length > POINTS) known.points.shift();
  const most = Math.max(...known.points, 1e-9);
  const from = POINTS - known.points.length;
  const points = known.points.map((each, place) => `${from + place},${(19 - 18 * (each / most)).toFixed(1)}`);
  known.line.setAttribute("points", points.join(" "));
}

/** @param {Item} overview */
function drawOverview(overview) {
  const { rates, totals, watches, saved, memory, upstream, configuration } = overview;
  const [short, long] = [rates["10s"], rates["1m"]];
  tile("hits", "From cache", percent(long.hitShare), `${count(totals.hits)} of ${count(totals.requests)} in all`, long.hitShare);
  tile("requests", "Requests", `${rate(short.requestsPerSecond)}/s`, `${rate(short.forwardedPerSecond)}/s forwarded`, short.requestsPerSecond);
  const behind = watches.behind === null ? "" : `, ${count(watches.behind)} behind`;
  tile("watches", "Watches", count(watches.open), `${rate(short.eventsPerSecond)} events/s${behind}`, short.eventsPerSecond);
  tile("saved", "Upstream saved", `${rate(saved.requestsPerSecond)}/s`, `${bytes(saved.bytesPerSecond)}/s, ${rate(saved.cores)} cores by estimate`, saved.requestsPerSecond);
  const ratio = memory.usedRatio ? `${percent(memory.usedRatio)} of the limit` : "no limit is known";
  tile("memory", "Memory", bytes(memory.usedBytes), ratio, memory.usedBytes);
  tile("delay", "Events are late by", duration(watches.delaySeconds), "1 of 100 is later; last minute", watches.delaySeconds);
  setText(byId("instance"), `${overview.version} on ${overview.instance}, up ${duration(overview.uptimeSeconds)}`);
  const pending = configuration.pendingFields > 0 ? `, ${count(configuration.pendingFields)} fields need a restart` : "";
  setText(
    byId("about"),
    `Upstream ${upstream.version ?? "of an unknown version"}, ${count(upstream.connections)} connections, median ${duration(upstream.medianSeconds)}. Configuration ${configuration.hash}, read ${duration(age(configuration.read))} ago${pending}. Saved CPU is an estimate.`,
  );
  const { level, text, deed, link } = overview.verdict;
  verdict(level, text, deed, link);
}

const WORDS = /** @type {Record<string, string>} */ ({ well: "Well", warning: "Warning", critical: "Critical", unknown: "No answer" });

/** Says it only when it changes, since a screen reader reads it aloud.
 * @param {string} level @param {string} text @param {string} deed @param {string} [link] */
function verdict(level, text, deed, link = "") {
  const place = byId("verdict");
  setAttribute(place, "data-level", level);
  const mark = `${level}|${text}|${deed}|${link}`;
  if (place.dataset.mark === mark) return;
  place.dataset.mark = mark;
  const parts = [element("strong", {}, WORDS[level] ?? level), document.createTextNode(" "), element("span", {}, text)];
  if (deed !== "") parts.push(element("span", { class: "deed" }, deed));
  if (link !== "") parts.push(document.createTextNode(" "), more(link));
  place.replaceChildren(...parts);
  document.title = level === "well" ? "Weir" : `${WORDS[level]} – Weir`;
}

// Data.

/** @type {Map<string, any>} */
const latest = new Map();

/** Returns null where it is off. @param {string} path */
async function get(path) {
  const response = await fetch(`/api/${path}`, { signal: AbortSignal.timeout(TIMEOUT_MS), cache: "no-cache" });
  if (response.status === 404) return null;
  if (!response.ok) throw new Error(`${response.status} ${response.statusText}`);
  return await response.json();
}

/** @param {any} report The clients of the shortest window that have cost anything, by what they do. */
function actions(report) {
  const windows = report?.windows ?? [];
  const used = windows.find((/** @type {any} */ it) => it.actions.length > 0);
  return used?.actions ?? [];
}

function draw() {
  const overview = latest.get("overview");
  if (overview === undefined) return;
  const began = performance.now();
  now = Date.parse(overview.time);
  drawOverview(overview);
  caches.set(latest.get("caches")?.items ?? []);
  reasons.set(latest.get("reasons")?.items ?? []);
  clients.set(actions(latest.get("clients?limit=100")));
  findings.set(latest.get("findings")?.items ?? []);
  events.set(latest.get("events")?.items ?? []);
  limits.set(latest.get("limits")?.items ?? []);
  byId("findings").hidden = latest.get("findings") === null;
  performance.measure("draw", { start: began });
}

const PATHS = ["caches", "reasons", "events", "limits"];
/** Only where costs are added up. */
const COST_PATHS = ["clients?limit=100", "findings"];
/** The last error of a poll; empty after a success. */
let failure = "";
let isPaused = false;
let isAsking = false;

async function poll() {
  if (isAsking || isPaused || document.hidden) return;
  isAsking = true;
  try {
    const overview = await get("overview");
    const paths = overview?.countsClients ? [...PATHS, ...COST_PATHS] : PATHS;
    const answers = await Promise.all(paths.map(get));
    COST_PATHS.forEach((path) => latest.set(path, null));
    latest.set("overview", overview);
    paths.forEach((path, place) => latest.set(path, answers[place]));
    failure = "";
    document.body.classList.remove("stale");
    draw();
  } catch (error) {
    failure = error instanceof Error ? error.message : String(error);
    document.body.classList.add("stale");
    verdict("unknown", `Weir's admin listener does not answer (${failure}); what you see is old.`, "Does the process run? Does kubectl port-forward?");
  }
  isAsking = false;
}

// What people do.

const box = /** @type {HTMLInputElement} */ (byId("search"));

function readFragment() {
  const fragment = new URLSearchParams(location.hash.slice(1));
  box.value = fragment.get("search") ?? "";
  search = box.value.trim().toLowerCase();
}

box.addEventListener("input", () => {
  search = box.value.trim().toLowerCase();
  const fragment = search === "" ? " " : `#search=${encodeURIComponent(box.value.trim())}`;
  history.replaceState(null, "", fragment.trim() === "" ? location.pathname : fragment);
  draw();
});
window.addEventListener("hashchange", () => {
  if (location.hash.startsWith("#search=")) {
    readFragment();
    draw();
  }
});
document.addEventListener("keydown", (event) => {
  const isTyping = document.activeElement instanceof HTMLInputElement;
  if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    box.focus();
  } else if (event.key === "Escape" && document.activeElement === box) {
    box.value = "";
    box.dispatchEvent(new Event("input"));
    box.blur();
  }
});
byId("pause").addEventListener("click", (event) => {
  isPaused = !isPaused;
  const button = /** @type {HTMLElement} */ (event.currentTarget);
  setAttribute(button, "aria-pressed", String(isPaused));
  setText(button, isPaused ? "Go on" : "Pause");
  void poll();
});
document.addEventListener("visibilitychange", () => void poll());

readFragment();
void poll();
let ticks = 0;
setInterval(() => {
  const hasMany = (latest.get("caches")?.items.length ?? 0) > CACHES_MANY;
  ticks += 1;
  if (!hasMany || ticks % 2 === 0) void poll();
}, INTERVAL_MS);
