// The JavaScript client as a tenant of two namespaces: what may I do, and a list of all namespaces.
//
//     node tenant.js DIRECTORY
//
// ../tenants/setup.sh has written the kubeconfigs of the directory. Every wait has a limit. It
// imports the client that is installed beside it: `tests/clients/run` copies this file there.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import * as k8s from '@kubernetes/client-node';

const PATIENCE_MS = 60_000;
const VISIBLE = ['weir-tenant-a', 'weir-tenant-b'];

const [through, direct] = ['tenant.through', 'tenant.direct'].map((name) => {
  const config = new k8s.KubeConfig();
  config.loadFromFile(join(process.argv[2], name));
  return config;
});

async function reviews() {
  step('asks what it may do');
  for (const namespace of [...VISIBLE, 'weir-tenant-c', '']) {
    for (const verb of ['get', 'list', 'create']) {
      const resourceAttributes = { namespace, verb, resource: 'configmaps' };
      const ask = async (config) => {
        const api = config.makeApiClient(k8s.AuthorizationV1Api);
        const { status } = await api.createSelfSubjectAccessReview({ body: { spec: { resourceAttributes } } });
        return JSON.stringify(status);
      };
      await until(`${verb} in ${namespace} has one answer`, async () => (await ask(through)) === (await ask(direct)));
    }
  }
}

async function lists() {
  step('lists what it may see');
  const [ours, theirs] = [through, direct].map((config) => config.makeApiClient(k8s.CoreV1Api));
  await until('all is the union of its namespaces', async () => {
    const lists = await Promise.all(VISIBLE.map((namespace) => theirs.listNamespacedConfigMap({ namespace })));
    const all = await ours.listConfigMapForAllNamespaces();
    return String(versions(all.items)) === String(versions(lists.flatMap((list) => list.items)));
  });
  await assert.rejects(theirs.listConfigMapForAllNamespaces(), (error) => error.code === 403);
  await assert.rejects(ours.listSecretForAllNamespaces(), (error) => error.code === 403);
}

async function informs() {
  step('informs about what it may see');
  const api = through.makeApiClient(k8s.CoreV1Api);
  const informer = k8s.makeInformer(through, '/api/v1/configmaps', () => api.listConfigMapForAllNamespaces());
  const errors = [];
  informer.on(k8s.ERROR, (error) => error?.name === 'AbortError' || errors.push(error));
  await informer.start();
  await until('the informer holds both namespaces', () =>
    VISIBLE.every((namespace) => informer.list(namespace).some((item) => item.metadata.name === 'listed-3')),
  );
  assert.deepEqual(informer.list('weir-tenant-c'), []);
  await informer.stop();
  assert.deepEqual(errors, []);
}

function versions(items) {
  return items.map(({ metadata: m }) => `${m.namespace}/${m.name}@${m.resourceVersion}`).sort();
}

async function until(what, condition) {
  const deadline = Date.now() + PATIENCE_MS;
  while (!(await condition())) {
    assert.ok(Date.now() < deadline, `still not: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

function step(what) {
  console.log(`javascript: the tenant ${what}`);
}

await reviews();
await lists();
await informs();
// Aborted requests leave connections open.
process.exit(0);
