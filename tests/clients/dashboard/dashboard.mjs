// Opens a page like a dashboard's in Chromium, through Weir and directly: both say the same of what
// a tenant may do, and through Weir the tenant's objects are there.
//
//     CHROMIUM=PATH MODULES=DIRECTORY node dashboard.mjs DIRECTORY
//
// ../tenants/setup.sh has written the kubeconfigs of the directory. `kubectl proxy` serves the page,
// and takes its requests to the API with the tenant's token.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const { CHROMIUM, MODULES } = process.env;
const { chromium } = createRequire(join(MODULES, 'package.json'))('playwright-core');
const WAIT_MS = 60_000;
const here = dirname(fileURLToPath(import.meta.url));

/** Starts kubectl as a proxy that also serves the page. */
async function proxy(kubeconfig) {
  const args = ['--kubeconfig', kubeconfig, 'proxy', '--port=0', `--www=${here}`, '--www-prefix=/page/'];
  const child = spawn('kubectl', args, { stdio: ['ignore', 'pipe', 'inherit'] });
  const address = await new Promise((resolve, reject) => {
    let output = '';
    child.stdout.on('data', (data) => {
      output += data;
      const match = output.match(/127\.0\.0\.1:\d+/);
      if (match) resolve(match[0]);
    });
    child.on('exit', () => reject(new Error(`kubectl proxy ended: ${output}`)));
  });
  return { child, url: `http://${address}/page/` };
}

/** Opens the page, and resolves with what it learned. */
async function open(browser, url) {
  const page = await browser.newPage();
  await page.goto(url);
  await page.waitForFunction(() => window.result !== undefined, null, { timeout: WAIT_MS });
  const result = await page.evaluate(() => window.result);
  result.shown = await page.locator('li').allTextContents();
  await page.close();
  return result;
}

const directory = process.argv[2];
const through = await proxy(join(directory, 'tenant.through'));
const direct = await proxy(join(directory, 'tenant.direct'));
const browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox'] });
try {
  const answers = ({ reviews }) => reviews.map(({ cache, ...answer }) => answer);
  const expected = await open(browser, direct.url);
  assert.equal(expected.reviews.length, 50);
  assert.equal(expected.status, 403);
  // The first reviews wait for a reason that an access review confirms.
  const deadline = Date.now() + WAIT_MS;
  for (;;) {
    const seen = await open(browser, through.url);
    assert.deepEqual(answers(seen), answers(expected));
    const allowed = seen.reviews.filter((review) => review.allowed);
    const hits = allowed.filter((review) => review.cache === 'hit');
    if (hits.length === allowed.length) {
      assert.ok(seen.shown.includes('weir-tenant-b/listed-1'), String(seen.shown));
      assert.ok(!seen.shown.some((name) => name.startsWith('weir-tenant-c/')));
      const round = (milliseconds) => milliseconds.toFixed(0);
      console.log(
        `dashboard: ${seen.reviews.length} reviews in ${round(seen.milliseconds)} ms ` +
          `(${round(expected.milliseconds)} directly), ${hits.length} of them from memory: all that roles allow`,
      );
      break;
    }
    assert.ok(Date.now() < deadline, `only ${hits.length} of ${allowed.length} answers come from memory`);
  }
} finally {
  await browser.close();
  through.child.kill();
  direct.child.kill();
}
