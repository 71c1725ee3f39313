// The JavaScript client through Weir: lists, pages, watches and informs, and gets the same results
// as without Weir.
//
//     node client.js WEIR_KUBECONFIG [DIRECT_KUBECONFIG]
//
// Other changes in the cluster have no effect: it compares at one resourceVersion, and watches
// objects of its own namespace. Every wait has a condition and a limit. It imports the client that
// is installed beside it: `tests/clients/run` copies this file there.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import * as k8s from '@kubernetes/client-node';

// Longer than any step takes on a busy machine.
const PATIENCE_MS = 60_000;
const PAGE = 3;
const NAMESPACE = `weir-clients-javascript-${randomBytes(3).toString('hex')}`;
const MERGE = k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch);

class Kind {
  constructor(word, body, config) {
    const api = config.makeApiClient(k8s.CoreV1Api);
    const path = word === 'Pod' ? 'pods' : 'configmaps';
    Object.assign(this, { word, body, api, config });
    this.path = `/api/v1/namespaces/${NAMESPACE}/${path}`;
    this.allPath = `/api/v1/${path}`;
  }

  listAll(options) {
    return this.api[`list${this.word}ForAllNamespaces`](options);
  }

  list() {
    return this.api[`listNamespaced${this.word}`]({ namespace: NAMESPACE });
  }

  async create(name) {
    const metadata = { name, labels: { 'made-by': 'javascript' } };
    const create = () =>
      this.api[`createNamespaced${this.word}`]({ namespace: NAMESPACE, body: { metadata, ...this.body } });
    // A new namespace accepts no pods until its service account exists.
    await until(`${name} is created`, () => answers(403, create));
  }

  async change(name) {
    const body = { metadata: { labels: { changed: randomBytes(3).toString('hex') } } };
    await this.api[`patchNamespaced${this.word}`]({ name, namespace: NAMESPACE, body }, MERGE);
  }

  async delete(name) {
    await this.api[`deleteNamespaced${this.word}`]({ name, namespace: NAMESPACE, gracePeriodSeconds: 0 });
  }
}

const configMaps = (config) => new Kind('ConfigMap', { data: { key: 'value' } }, config);
const pods = (config) =>
  new Kind('Pod', { spec: { containers: [{ name: 'c', image: 'registry.example.com/none' }] } }, config);

async function main() {
  const [weir, direct = weir] = process.argv.slice(2).map((file) => {
    const config = new k8s.KubeConfig();
    config.loadFromFile(file);
    return config;
  });
  const namespaces = weir.makeApiClient(k8s.CoreV1Api);
  await namespaces.createNamespace({ body: { metadata: { name: NAMESPACE } } });
  try {
    for (const kind of [configMaps, pods]) {
      // More than a page, even in a cluster without other objects.
      const names = Array.from({ length: PAGE + 1 }, (_, number) => `listed-${number}`);
      for (const name of names) await kind(weir).create(name);
      await lists(kind(weir), kind(direct));
      await pages(kind(weir), kind(direct));
      for (const name of names) await kind(weir).delete(name);
      await watches(kind(weir));
      await watchList(kind(weir));
      await informs(kind(weir), kind(direct));
    }
    await expires(pods(weir), pods(direct));
  } finally {
    await namespaces.deleteNamespace({ name: NAMESPACE });
  }
}

async function lists(through, direct) {
  step(through, 'lists');
  // At any resourceVersion, then at the latest one.
  for (const options of [{ resourceVersion: '0' }, {}]) {
    const seen = await through.listAll(options);
    assert.deepEqual(versions(seen.items), versions((await at(direct, seen)).items));
  }
}

async function pages(through, direct) {
  step(through, 'pages');
  // Through Weir alone, then alternating: each server accepts the tokens of the other.
  for (const turns of [[through], [through, direct], [direct, through]]) {
    const first = await turns[0].listAll({ limit: PAGE });
    const items = [...first.items];
    let number = 0;
    for (let page = first; page.metadata._continue; items.push(...page.items)) {
      number += 1;
      page = await turns[number % turns.length].listAll({ limit: PAGE, _continue: page.metadata._continue });
      assert.equal(page.metadata.resourceVersion, first.metadata.resourceVersion);
    }
    assert.deepEqual(versions(items), versions((await at(direct, first)).items));
    assert.ok(number > 0, 'there is more than one page');
  }
}

async function watches(kind) {
  step(kind, 'watches');
  await kind.create('there');
  const start = (await kind.list()).metadata.resourceVersion;
  for (const options of [{ resourceVersion: start }, {}]) {
    const seen = await Seen.open(kind, kind.path, options);
    if (!options.resourceVersion) await seen.wait('there', 'ADDED');
    await kind.create('watched');
    await seen.wait('watched', 'ADDED');
    await kind.change('watched');
    await seen.wait('watched', 'MODIFIED');
    await kind.delete('watched');
    await seen.wait('watched', 'DELETED');
    seen.close();
    const events = seen.events.filter((event) => event.name === 'watched').map((event) => event.type);
    assert.equal(events[0], 'ADDED');
    assert.equal(events.at(-1), 'DELETED');
    assert.deepEqual([...new Set(events.slice(1, -1))], ['MODIFIED']);
  }
  await kind.delete('there');
}

/** The state as a watch that ends with a bookmark; another watch resumes from its resourceVersion. */
async function watchList(kind) {
  step(kind, 'starts with a watch');
  await kind.create('first');
  const state = await Seen.open(kind, kind.path, {
    sendInitialEvents: true,
    resourceVersionMatch: 'NotOlderThan',
    allowWatchBookmarks: true,
  });
  const end = await state.wait(undefined, 'BOOKMARK');
  state.close();
  assert.equal(end.object.metadata.annotations?.['k8s.io/initial-events-end'], 'true');
  assert.ok(state.events.some((event) => event.name === 'first' && event.type === 'ADDED'));

  await kind.create('second');
  const resourceVersion = end.object.metadata.resourceVersion;
  const resumed = await Seen.open(kind, kind.path, { resourceVersion, allowWatchBookmarks: true });
  await resumed.wait('second', 'ADDED');
  resumed.close();
  assert.ok(!resumed.events.some((event) => event.name === 'first' && event.type === 'ADDED'));
  await kind.delete('first');
  await kind.delete('second');
}

async function informs(through, direct) {
  step(through, 'informs');
  await through.create('before');
  const informer = k8s.makeInformer(through.config, through.path, () => through.list());
  const errors = complaints(informer);
  await informer.start();
  await converge(informer, direct, ['before']);
  for (const name of ['one', 'two']) await through.create(name);
  await through.change('one');
  await through.delete('before');
  await converge(informer, direct, ['one', 'two']);
  await through.delete('one');
  await converge(informer, direct, ['two']);
  await informer.stop();
  // The changes while it is disconnected arrive when it resumes.
  await through.create('meanwhile');
  await through.delete('two');
  await informer.start();
  await converge(informer, direct, ['meanwhile']);
  await through.delete('meanwhile');
  await converge(informer, direct, []);
  await informer.stop();
  assert.deepEqual(errors, []);
}

/** Expired history is a 410, after which an informer lists again. */
async function expires(through, direct) {
  step(through, 'gets a 410 for expired history');
  const isGone = async (kind) => {
    const watch = await Seen.open(kind, kind.allPath, { resourceVersion: '1', timeoutSeconds: 1 });
    await until('a watch without a future ends', () => watch.ended);
    return watch.events[0]?.type === 'ERROR' && watch.events[0].object.code === 410;
  };
  // A simulated cluster drops history after enough events, a real API server when it starts; an API
  // server as young as its cluster still has all of it.
  const deadline = Date.now() + PATIENCE_MS / 2;
  while (!(await isGone(direct))) {
    if (Date.now() > deadline) return console.log('javascript: skipped: this cluster has all its history');
  }
  assert.ok(await isGone(through));

  await through.create('expired');
  let lists = 0;
  const watch = new k8s.Watch(through.config);
  const list = () => ((lists += 1), through.list());
  const informer = new k8s.ListWatch(through.path, watch, list, false);
  const errors = complaints(informer);
  informer.resourceVersion = '1';
  await informer.start();
  await converge(informer, direct, ['expired']);
  await informer.stop();
  assert.deepEqual([lists, errors], [1, []]);
  await through.delete('expired');
}

/** A watch and its events. */
class Seen {
  events = [];
  ended = false;

  static async open(kind, path, options) {
    const seen = new Seen();
    const take = (type, object) => seen.events.push({ type, name: object.metadata?.name, object });
    seen.controller = await new k8s.Watch(kind.config).watch(path, options, take, (error) => {
      seen.ended = true;
      seen.error = error;
    });
    return seen;
  }

  async wait(name, type) {
    const found = () => this.events.find((event) => event.type === type && (!name || event.name === name));
    await until(`${type} of ${name}`, () => {
      assert.ok(found() || !this.ended, `the watch ended before ${type} of ${name}: ${this.error}`);
      return found();
    });
    return found();
  }

  close() {
    this.controller.abort();
  }
}

/** Waits until an informer holds exactly these objects, and the whole namespace. */
async function converge(informer, direct, names) {
  await until(`the informer holds ${names}`, async () => {
    const seen = informer.list(NAMESPACE);
    const ours = seen.filter((item) => item.metadata.labels?.['made-by'] === 'javascript');
    const same = ours.map((item) => item.metadata.name).sort().join() === names.join();
    return same && String(versions(seen)) === String(versions((await direct.list()).items));
  });
}

/** Collects an informer's errors. A stop causes errors of its own, because it aborts its request. */
function complaints(informer) {
  const errors = [];
  informer.on(k8s.ERROR, (error) => error?.name === 'AbortError' || errors.push(error));
  return errors;
}

/** The list at the exact resourceVersion of another list. */
function at(kind, seen) {
  const { resourceVersion } = seen.metadata;
  return kind.listAll({ resourceVersion, resourceVersionMatch: 'Exact' });
}

function versions(items) {
  return items.map(({ metadata: m }) => `${m.namespace}/${m.name}@${m.resourceVersion}`).sort();
}

/** Whether a call succeeded; false for the expected rejection, any other is an error. */
async function answers(refusal, call) {
  try {
    await call();
    return true;
  } catch (error) {
    if (error.code !== refusal) throw error;
    return false;
  }
}

async function until(what, condition) {
  const deadline = Date.now() + PATIENCE_MS;
  while (!(await condition())) {
    assert.ok(Date.now() < deadline, `still not: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

function step(kind, what) {
  console.log(`javascript: ${kind.word} ${what}`);
}

await main();
// Aborted requests leave connections open.
process.exit(0);
