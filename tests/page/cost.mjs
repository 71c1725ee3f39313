// What a look at Weir costs with 300 caches: the page in Chromium, a scrape each 15 s, and the
// processor time that both take from Weir. Prints figures, and fails where one exceeds its target.
//
//     tests/page/run --cost
//
// It needs an optimized build in $WEIR, and a machine on which nothing else runs.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFile, mkdtemp, rm } from "node:fs/promises";
import { get } from "node:http";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

const { WEIR, CHROMIUM, MODULES } = process.env;
const { chromium } = createRequire(join(MODULES, "package.json"))("playwright-core");

const CACHES = 300;
const PHASE_MS = 60_000;
const SCRAPE_MS = 15_000;
const WAIT_MS = 60_000;
const TARGETS = {
  "page, bytes gzipped": 14_000,
  "first rows, ms": 1_000,
  "script of a refresh, ms": 20,
  "scrape, bytes gzipped": 60_000,
  "scrape, ms": 10,
  "page and scrapes, % of a core": 0.5,
};

const wait = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const directory = await mkdtemp(join(tmpdir(), "weir-cost-"));
/** @type {import("node:child_process").ChildProcess[]} */
const processes = [];

function start(...args) {
  const child = spawn(WEIR, args, { stdio: "ignore" });
  processes.push(child);
  return child;
}

async function eventually(what, condition) {
  const deadline = Date.now() + WAIT_MS;
  while (!(await condition().catch(() => false))) {
    assert.ok(Date.now() < deadline, `not in time: ${what}`);
    await wait(100);
  }
}

function freePort() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

/** The bytes of a gzipped answer, and the milliseconds that it took. */
function fetchGzipped(url, accept = "*/*") {
  return new Promise((resolve, reject) => {
    const began = performance.now();
    const headers = { Accept: accept, "Accept-Encoding": "gzip" };
    get(url, { headers }, (response) => {
      let bytes = 0;
      response.on("data", (data) => (bytes += data.length));
      response.on("end", () => {
        const isGzip = response.headers["content-encoding"] === "gzip";
        // Thrown here, an error would end this program before the processes that it started.
        if (response.statusCode === 200 && isGzip) resolve({ bytes, took: performance.now() - began });
        else reject(new Error(`${url}: ${response.statusCode}, gzip: ${isGzip}`));
      });
    }).on("error", reject);
  });
}

/** The processor time of a process in seconds. */
async function cpu(pid) {
  const stat = await readFile(`/proc/${pid}/stat`, "utf8");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

/** The processor time a second, in per cent of a core, during some work. */
async function load(pid, work) {
  const [began, before] = [performance.now(), await cpu(pid)];
  await work();
  return ((await cpu(pid)) - before) / ((performance.now() - began) / 1000) * 100;
}

/** Creates definitions, and lets Weir fill a cache of each. */
async function fill(api) {
  for (let number = 0; number < CACHES; number += 1) {
    const names = { plural: `things${number}`, singular: `thing${number}`, kind: `Thing${number}` };
    const schema = { openAPIV3Schema: { type: "object" } };
    const response = await fetch(`${api}/apis/apiextensions.k8s.io/v1/customresourcedefinitions`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({
        apiVersion: "apiextensions.k8s.io/v1",
        kind: "CustomResourceDefinition",
        metadata: { name: `${names.plural}.cost.example` },
        spec: {
          group: "cost.example",
          names: { ...names, listKind: `${names.kind}List` },
          scope: "Cluster",
          versions: [{ name: "v1", served: true, storage: true, schema }],
        },
      }),
    });
    assert.equal(response.status, 201, await response.text());
  }
  for (let number = 0; number < CACHES; number += 1) {
    await eventually(`a cache of things${number}`, async () => {
      const url = `${api}/apis/cost.example/v1/things${number}?resourceVersion=0`;
      const response = await fetch(url);
      await response.arrayBuffer();
      return response.headers.get("x-weir-cache")?.startsWith("hit");
    });
  }
}

async function measure(pid, url) {
  const figures = {};
  const files = ["", "page.css", "page.js", "icon.svg"];
  const parts = files.map((name) => fetchGzipped(url + name, name === "" ? "text/html" : "*/*"));
  figures["page, bytes gzipped"] = (await Promise.all(parts)).reduce((all, it) => all + it.bytes, 0);
  const scrapes = [];
  for (let count = 0; count < 21; count += 1) scrapes.push(await fetchGzipped(`${url}metrics`));
  figures["scrape, bytes gzipped"] = Math.max(...scrapes.map((it) => it.bytes));
  const times = scrapes.map((it) => it.took).toSorted((one, other) => one - other);
  // The median: others waited for a processor.
  figures["scrape, ms"] = times[10];

  const quiet = await load(pid, () => wait(PHASE_MS));
  const args = ["--no-sandbox", "--disable-gpu"];
  const browser = await chromium.launch({ executablePath: CHROMIUM, args });
  const page = await browser.newPage();
  // The first start of a browser is not the page's.
  await page.goto("about:blank");
  const began = performance.now();
  await page.goto(url);
  await page.locator("#caches tbody tr").first().waitFor({ timeout: WAIT_MS });
  figures["first rows, ms"] = performance.now() - began;
  await page.getByRole("button", { name: /Show all/ }).click();
  const busy = await load(pid, async () => {
    for (let passed = 0; passed < PHASE_MS; passed += SCRAPE_MS) {
      await fetchGzipped(`${url}metrics`);
      await wait(SCRAPE_MS);
    }
  });
  const drawn = await page.evaluate(() =>
    performance.getEntriesByName("draw").map((it) => it.duration),
  );
  assert.ok(drawn.length > 10, `only ${drawn.length} refreshes`);
  figures["script of a refresh, ms"] = drawn.toSorted((one, other) => one - other)[
    Math.floor(drawn.length / 2)
  ];
  await browser.close();
  console.log(`Weir alone: ${quiet.toFixed(2)} % of a core; with both ${busy.toFixed(2)} %`);
  figures["page and scrapes, % of a core"] = busy - quiet;
  return figures;
}

try {
  const [api, admin] = [await freePort(), await freePort()];
  const listen = `--listen=http://127.0.0.1:${await freePort()}`;
  start("demo", "--no-clients", "--dir", join(directory, "demo"), "--nodes=5", "--pods=20", "--churn=1", listen);
  const kubeconfig = join(directory, "demo/upstream.kubeconfig");
  await eventually("an API server", async () => (await readFile(kubeconfig, "utf8")).length > 0);
  const flags = [`--listen=http://127.0.0.1:${api}`, `--admin-listen=127.0.0.1:${admin}`];
  const weir = start("serve", "--kubeconfig", kubeconfig, ...flags);
  const url = `http://127.0.0.1:${admin}/`;
  await eventually("a ready Weir", async () => (await fetch(`${url}readyz`)).ok);
  await fill(`http://127.0.0.1:${api}`);
  const figures = await measure(weir.pid, url);
  const missed = Object.entries(TARGETS).filter(([name, most]) => figures[name] > most);
  for (const [name, most] of Object.entries(TARGETS)) {
    console.log(`${name}: ${Number(figures[name].toFixed(2))} (at most ${most})`);
  }
  assert.deepEqual(missed.map(([name]) => name), [], "targets that are missed");
} finally {
  for (const child of processes) child.kill("SIGKILL");
  await rm(directory, { recursive: true, force: true });
}
