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
/** `below` is a second line in small letters, `about` explains the head, and a `name` may be long.
 * @typedef {{ title: string, value: (item: Item) => any, show?: (value: any, item: Item) => string, below?: (item: Item) => string, about?: string, name?: boolean, numeric?: boolean, link?: (item: Item) => string, tone?: (value: any, item: Item) => string, wide?: boolean }} Column */

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

/** A link to a page of the documentation, or its path where it has no address. @param {string} address */
function more(address) {
  if (!address.includes("://")) return element("code", {}, address);
  const page = address.replace(/^.*\/|\.md.*$/g, "");
  return element("a", { href: address, rel: "noreferrer" }, page === "headers" ? "more" : page);
}

/** Replaces invisible and direction-changing characters, since clients choose their names.
 * @param {string} text */
function visible(text) {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, "\ufffd");
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

/** @param {any} value Processors. */
function cores(value) {
  if (typeof value !== "number") return "–";
  if (value === 0) return "0";
  if (value >= 1) return `${rate(value)} CPU`;
  return value < 0.0001 ? "< 0.1 mCPU" : `${rate(1000 * value)} mCPU`;
}

/** @param {number} time By the clock of this browser. */
function clock(time) {
  return new Date(time).toLocaleTimeString("en-GB");
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
   * @param {number} most The most items that are asked for.
   */
  constructor(id, title, about, columns, key, order, empty, most = Infinity) {
    this.most = most;
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
    if (column.about) head.title = column.about;
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
      const shown = this.columns.map((column, place) => `${this.shown(column, values[place], item)} ${column.below?.(item) ?? ""}`);
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
    return visible(column.show ? column.show(value, item) : String(value ?? ""));
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
        const below = column.below ? visible(column.below(item)) : "";
        const mark = `${tone}|${text}|${below}`;
        if (kept[place] !== mark) {
          kept[place] = mark;
          const link = column.link ? column.link(item) : "";
          if (link !== "") cell.replaceChildren(text, text === "" ? "" : " ", more(link));
          else if (below !== "") cell.replaceChildren(text, element("span", { class: "below" }, below));
          else cell.textContent = text;
          if (column.tone) cell.className = `${kind(column)} ${tone}`;
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
    const inAll = all >= this.most ? `the first ${count(all)}` : `${count(all)} in all`;
    setText(this.countText, search === "" ? inAll : `${count(found.length)} of ${count(all)} match`);
    this.all.hidden = found.length <= ROWS;
    setText(this.all, this.showsAll ? `Show the first ${ROWS}` : `Show all ${count(found.length)}`);
    this.none.hidden = found.length > 0;
    this.table.hidden = found.length === 0;
    setText(this.none, all === 0 ? this.empty : "Nothing matches the search.");
  }

  row() {
    const row = /** @type {HTMLTableRowElement} */ (element("tr"));
    const cells = this.columns.map((column, place) => {
      const of = kind(column);
      return place === 0 ? element("th", { scope: "row", class: of }) : element("td", { class: of });
    });
    row.append(...cells);
    return { row, cells, shown: this.columns.map(() => "") };
  }
}

/** @param {Column} column */
const kind = (column) => (column.numeric ? "number" : column.wide ? "wide" : column.name ? "name" : "");

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

/** The last failure and the last comparisons of a cache. @param {Item} cache */
function past(cache) {
  const { lastFailure: failure, lastDifference: differs, lastCheck: check } = cache;
  const parts = [];
  if (failure) parts.push(`failed ${duration(age(failure.time))} ago: ${failure.cause}`);
  if (differs) {
    const keys = differs.objects.map((/** @type {any} */ it) => `${it.key} (cache ${it.cache ?? "none"}, API server ${it.upstream ?? "none"})`);
    parts.push(`${differs.count} different ${duration(age(differs.time))} ago, wrong: ${differs.wrong}: ${keys.join(", ")}`);
  }
  if (check) parts.push(`compared ${duration(age(check))} ago`);
  return parts.join("; ");
}

/** @param {Item} cache */
function form(cache) {
  return `${cache.version}, ${cache.representation}${cache.namespace ? `, in ${cache.namespace}` : ""}`;
}

const caches = new Table(
  "caches",
  "Caches",
  "",
  [
    { title: "Resource", value: (it) => (it.group === "" ? it.resource : `${it.resource}.${it.group}`), below: form },
    column("State", "state", {
      show: (value, it) => `${it.overBudget ? "over budget, " : ""}${it.quarantined ? "quarantined, " : ""}${value} for ${duration(age(it.stateSince))}`,
      below: past,
      tone: (value, it) => (it.overBudget || it.quarantined || it.lastDifference || value === "backing-off" || value === "reviewing" ? "bad" : value === "watching" ? "good" : "warn"),
    }),
    numeric("Objects", "objects", count),
    numeric("Memory", "bytes", bytes, { below: (it) => (it.budgetShare >= 0.01 ? `${percent(it.budgetShare)} of budget` : "") }),
    numeric("History", "historySeconds", duration, { about: "How far back a watch may resume" }),
    numeric("Lag", "lagSeconds", duration, {
      about: "The longest time from reading an event of the API server to its delivery, in the last one to two minutes",
      tone: (value) => (value > 1 ? "bad" : ""),
    }),
    numeric("Last heard", "progressAgeSeconds", duration, { about: "The time since the last list, event or bookmark of the API server; without changes it sends one a minute" }),
    numeric("Watches", "watchers", count, {
      below: (it) => (it.watchersBehind > 0 ? `${count(it.watchersBehind)} behind` : ""),
      tone: (_, it) => (it.watchersBehind > 0 ? "warn" : ""),
    }),
    numeric("Hits/s", "hitsPerSecond", rate, { about: "Of the resource, in all its caches" }),
    numeric("Events/s", "eventsPerSecond", rate, { about: "Sent to watches of the resource, in all its caches" }),
    numeric("Relists/h", "relistsPerHour", count, { about: "Lists after the first one, in the last hour", tone: (value) => (value > 6 ? "warn" : "") }),
  ],
  (it) => [it.group, it.version, it.resource, it.namespace, it.representation].join("/"),
  { sort: 7, descending: true },
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

/** The most clients that are asked for. */
const CLIENTS = 100;

/** The heaviest finding about a client, by what it does. @param {Item} client @returns {Item | undefined} */
function findingOf(client) {
  const all = /** @type {Item[]} */ (latest.get("findings")?.items ?? []);
  const name = client.user ? "user" : "userAgent";
  const own = all.filter((it) => it[name] === client[name]);
  return own.find((it) => it.resource === client.resource) ?? own[0];
}

/** What a client has open: of the user if that is known, else of the user agent.
 * @param {Item} client */
function openOf(client) {
  const all = /** @type {Item[]} */ (latest.get(COST_PATHS[0])?.connections ?? []);
  const name = client.user ? "user" : "userAgent";
  const own = all.filter((it) => it[name] === client[name]);
  const sum = (/** @type {string} */ field) => own.reduce((all, it) => all + it[field], 0);
  return { agents: own.map((it) => it.userAgent), addresses: sum("addresses"), requests: sum("openRequests") };
}

/** The user agents of a user. @param {Item} client */
function agents(client) {
  if (!client.user) return "";
  const { agents } = client.open;
  const first = client.finding?.userAgent || agents[0] || "";
  return agents.length > 1 ? `${first} and ${agents.length - 1} more` : first;
}

const clients = new Table(
  "clients",
  "Clients by cost",
  "",
  [
    { title: "Client", value: (it) => it.user || it.userAgent || "(no user agent)", below: agents },
    { title: "Reads", value: (it) => `${it.verb} ${it.resource}`, name: true },
    numeric("Share", "share", percent, { about: "By estimate: seconds of seats upstream, and of CPU here" }),
    numeric("Requests/s", "requestsPerSecond", rate, {
      below: (it) => (it.refusedPerSecond > 0 ? `${rate(it.refusedPerSecond)} refused` : ""),
      tone: (_, it) => (it.refusedPerSecond > 0 ? "warn" : ""),
    }),
    numeric("Forwarded/s", "forwardedPerSecond", rate),
    numeric("Bytes/s", "bytesPerSecond", bytes),
    numeric("Seats (est.)", "upstreamSeats", rate, { about: "Seats of the API server that it takes, by estimate" }),
    numeric("CPU here", "cpuCores", cores),
    {
      title: "Open",
      value: (it) => it.open.requests,
      show: count,
      below: (it) => from(it.open.addresses),
      numeric: true,
      about: "The open requests of the client, most of which are watches, and the addresses of its connections",
    },
    { title: "First finding", value: (it) => it.finding?.title ?? "", tone: (_, it) => weightTone(it.finding?.weight) },
  ],
  (it) => [it.user ?? it.userAgent, it.verb, it.resource].join("|"),
  { sort: 2, descending: true },
  "Costs are not added up: flowControl.mode is off, or no client came yet.",
  CLIENTS,
);

/** @param {number} addresses */
function from(addresses) {
  return addresses === 0 ? "" : addresses === 1 ? "1 address" : `${count(addresses)} addresses`;
}

/** @param {string | undefined} weight */
function weightTone(weight) {
  return weight === "critical" ? "bad" : weight === "warning" ? "warn" : "";
}

const findings = new Table(
  "findings",
  "What clients could do better",
  "",
  [
    column("Finding", "title"),
    column("Weight", "weight", { tone: weightTone }),
    column("Client", "client", { name: true }),
    column("Resource", "resource", { name: true }),
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
    column("Kind", "kind", { tone: (value) => (["rewind", "upstream", "relist", "back-off", "cache-stopped", "budget", "overload", "quarantine", "rights", "certificate", "credentials"].includes(value) ? "warn" : "") }),
    column("What", "subject", { name: true }),
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

const tables = [caches, reasons, clients, findings, events, limits];

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
  if (overview.instance !== shown.instance || overview.uptimeSeconds < shown.uptimeSeconds) {
    // Another process: its numbers do not continue those before.
    for (const each of Object.values(tiles)) each.points = [];
  }
  shown = overview;
  const fan = watches.open > 0 ? `; ${count(watches.open)} watches over ${count(watches.upstream)} upstream` : "";
  tile("hits", "From cache", percent(long.hitShare), `${count(totals.hits)} of ${count(totals.requests)} in all${fan}`, long.hitShare);
  tile("requests", "Requests", `${rate(short.requestsPerSecond)}/s`, `${rate(short.forwardedPerSecond)}/s forwarded`, short.requestsPerSecond);
  const behind = watches.behind === null ? "" : `, ${count(watches.behind)} behind`;
  tile("watches", "Watches", count(watches.open), `${rate(short.eventsPerSecond)} events/s${behind}`, short.eventsPerSecond);
  tile("saved", "Upstream saved", `${rate(saved.requestsPerSecond)}/s`, `${bytes(saved.bytesPerSecond)}/s, ${cores(saved.cores)} by estimate`, saved.requestsPerSecond);
  const ratio = memory.usedRatio ? `${percent(memory.usedRatio)} of the limit` : "no limit is known";
  tile("memory", "Memory", bytes(memory.usedBytes), ratio, memory.usedBytes);
  const slowest = overview.slowestCache;
  const within = watches.delaySeconds === null ? "" : `; 99 of 100 events within ${duration(watches.delaySeconds)}`;
  tile("slowest", "Slowest cache", duration(slowest?.lagSeconds), slowest ? `${slowest.resource}${within}` : "no cache", slowest?.lagSeconds);
  setText(byId("instance"), `${overview.version} on ${overview.instance}, up ${duration(overview.uptimeSeconds)}`);
  const pending = configuration.pendingFields > 0 ? `, ${count(configuration.pendingFields)} fields need a restart` : "";
  const [first] = overview.certificates;
  const left = first ? (Date.parse(first.expires) - now) / 1000 : 0;
  const expiry = first ? ` The first certificate to expire (${first.use}) ${left > 0 ? `does in ${duration(left)}` : "has expired"}.` : "";
  const { secondsPerMegabyte, secondsPerGet, secondsPerEvent } = saved.coefficients;
  setText(
    byId("about"),
    `Upstream ${upstream.version ?? "of an unknown version"}, ${count(upstream.connections)} connections, median ${duration(upstream.medianSeconds)} in the last minute.${expiry} Configuration ${configuration.hash}, read ${duration(age(configuration.read))} ago${pending}. Saved CPU is an estimate: ${duration(secondsPerMegabyte)} of the API server for a MB of JSON, ${duration(secondsPerGet)} for a GET, ${duration(secondsPerEvent)} for an event, less what the caches cost it.`,
  );
  setAttribute(byId("about"), "class", first && left < 604800 ? "warn" : "");
  verdict(overview.verdict);
}

/** The overview that is shown. @type {Item} */
let shown = {};

const WORDS = /** @type {Record<string, string>} */ ({ warning: "Warning", critical: "Critical", unknown: "No answer", paused: "Paused", off: "Details off" });

/** Shows the verdict. Only what differs is set: a screen reader reads the sentence aloud when it
 * changes, and a link that has the focus keeps it.
 * @param {{ level: string, text: string, deed?: string, link?: string, since?: string }} verdict */
function verdict({ level, text, deed = "", link = "", since }) {
  setAttribute(byId("verdict"), "data-level", level);
  const word = WORDS[level] ?? "";
  setText(byId("verdict-level"), word);
  setText(byId("verdict-text"), visible(text));
  setText(byId("verdict-since"), since ? `For ${duration(age(since))}.` : "");
  setText(byId("verdict-deed"), deed);
  const place = byId("verdict-link");
  const [old, next] = [place.firstElementChild, link === "" ? null : more(link)];
  if (old && next && old.tagName === next.tagName) {
    setText(old, next.textContent ?? "");
    setAttribute(old, "href", next.getAttribute("href"));
  } else if (old || next) {
    place.replaceChildren(...(next ? [next] : []));
  }
  const title = word === "" ? "Weir" : `${word} – Weir`;
  if (document.title !== title) document.title = title;
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

/** The clients of the shortest window that have cost anything, by what they do, each with what it
 * has open and its finding. @param {any} report */
function actions(report) {
  const windows = report?.windows ?? [];
  const used = windows.find((/** @type {any} */ it) => it.actions.length > 0);
  return (used?.actions ?? []).map((/** @type {Item} */ it) => ({ ...it, open: openOf(it), finding: findingOf(it) }));
}

function draw() {
  const overview = latest.get("overview");
  if (overview === undefined) return;
  if (overview === null) {
    verdict({
      level: "off",
      text: "Weir shows no details here; what you see is old.",
      deed: "They are switched off: set admin.detail: local in the configuration, and restart Weir.",
    });
    tables.forEach((table) => table.draw());
    return;
  }
  const began = performance.now();
  now = Date.parse(overview.time);
  drawOverview(overview);
  caches.set(latest.get("caches")?.items ?? []);
  reasons.set(latest.get("reasons")?.items ?? []);
  clients.set(actions(latest.get(COST_PATHS[0])));
  findings.set(latest.get("findings")?.items ?? []);
  events.set(latest.get("events")?.items ?? []);
  limits.set(latest.get("limits")?.items ?? []);
  byId("findings").hidden = latest.get("findings") === null;
  // For the tests. A page stays open for days.
  if (performance.getEntriesByName("draw").length >= MEASURES) performance.clearMeasures("draw");
  performance.measure("draw", { start: began });
}

/** Draws; an error of this script is shown as a fault of the page, not as an outage. */
function tryDraw() {
  try {
    draw();
  } catch (error) {
    console.error(error);
    verdict({ level: "unknown", text: `This page has a fault (${error}); Weir may be well.`, deed: "Load the page again, and report it. See /api/overview." });
  }
}

const PATHS = ["caches", "reasons", "events", "limits"];
/** Only where costs are added up. */
const COST_PATHS = [`clients?limit=${CLIENTS}`, "findings"];
/** The last redraws whose time is kept. */
const MEASURES = 100;
let hasFailed = false;
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
    hasFailed = false;
  } catch (error) {
    hasFailed = true;
    const failure = error instanceof Error ? error.message : String(error);
    // The pause may have begun after this request: its verdict stays.
    if (!isPaused) {
      verdict({
        level: "unknown",
        text: `Weir's admin listener does not answer (${failure}); what you see is old.`,
        deed: "Does the process run? Does kubectl port-forward?",
      });
    }
  }
  document.body.classList.toggle("stale", hasFailed || latest.get("overview") === null);
  if (!hasFailed && !isPaused) tryDraw();
  isAsking = false;
}

// Input: the search, the keyboard, the pause.

/** Draws what is found, while the verdict of a pause or of a failure stays. */
function redraw() {
  if (isPaused || hasFailed) tables.forEach((table) => table.draw());
  else tryDraw();
}

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
  redraw();
});
window.addEventListener("hashchange", () => {
  if (location.hash.startsWith("#search=")) {
    readFragment();
    redraw();
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
  const text = latest.get("overview")?.verdict.text ?? "";
  if (isPaused) verdict({ level: "paused", text: `at ${clock(Date.now())}; what you see is from then: ${text}` });
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
