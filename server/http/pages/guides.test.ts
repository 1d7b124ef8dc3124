import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fastify } from 'fastify';
import { brandNames } from '../../brand.ts';
import type { App } from '../server.ts';
import { staticRoutes } from './static.ts';

/** The guides as a browser gets them, before and after they are built. */
describe('serving the guides', () => {
  let directory: string;
  let app: App;

  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'trellis-guides-'));
    app = fastify() as unknown as App;
    await staticRoutes(app, {
      web: { directory, building: () => ({ is: 'running' }) },
      brand: brandNames('acme'),
      baseUrl: 'https://trellis.example.com/',
      frameAncestors: [],
    });
  });
  after(async () => {
    await app.close();
    await rm(directory, { recursive: true });
  });

  test('during the build, a page shows that and reloads itself', async () => {
    for (const path of ['/guides', '/guides/connect', '/llms.txt']) {
      const answer = await app.inject(path);
      assert.match(answer.body, /is being built/, path);
      assert.match(answer.body, /location.reload/);
    }
  });

  test('pages have addresses without an ending, and their Markdown has one', async () => {
    await mkdir(join(directory, 'guides/reference'), { recursive: true });
    const files = ['index.html', 'connect.html', 'connect.md', 'reference/errors.html', 'not-found.html'];
    for (const file of files) await writeFile(join(directory, 'guides', file), `this is ${file}`);
    await writeFile(join(directory, 'guides/connect.html.gz'), 'compressed');
    await writeFile(join(directory, 'secret.md'), 'secret');
    const shown: Record<string, string> = {
      '/guides': 'index.html',
      '/guides/': 'index.html',
      '/guides/connect': 'connect.html',
      '/guides/connect?from=mail': 'connect.html',
      '/guides/connect.md': 'connect.md',
      '/guides/reference/errors': 'reference/errors.html',
    };
    for (const [path, file] of Object.entries(shown)) {
      const { statusCode, body, headers } = await app.inject(path);
      assert.equal(statusCode, 200, path);
      assert.equal(body, `this is ${file}`);
      assert.match(String(headers['content-type']), file.endsWith('.md') ? /markdown/ : /html/);
    }
  });

  test('an unknown address gets the page that says so, and nothing outside can be read', async () => {
    for (const path of [
      'none',
      'connect.html',
      '../secret.md',
      '%2e%2e/secret.md',
      '..%2fsecret.md',
      'x%00',
      '.env',
    ]) {
      const { statusCode, body } = await app.inject(`/guides/${path}`);
      assert.equal(statusCode, 404, path);
      assert.notEqual(body, 'secret', path);
    }
    assert.equal((await app.inject('/guides/none')).body, 'this is not-found.html');
  });

  test('the browser runs only scripts and styles from files of the service', async () => {
    const { headers } = await app.inject('/guides/connect');
    const policy = String(headers['content-security-policy']);
    assert.match(policy, /^default-src 'none'; script-src 'self'; style-src 'self';/);
    assert.ok(!/unsafe|nonce/.test(policy), policy);
    assert.match(policy, /frame-ancestors 'none'/);
  });

  test('a browser keeps a page by its ETag, and gets the compressed copy', async () => {
    const url = '/guides/connect';
    const first = await app.inject({ url, headers: { 'accept-encoding': 'gzip' } });
    assert.equal(first.headers['content-encoding'], 'gzip');
    assert.equal(first.body, 'compressed');
    assert.match(String(first.headers['cache-control']), /max-age=0/);
    const etag = String(first.headers.etag);
    const again = await app.inject({ url, headers: { 'accept-encoding': 'gzip', 'if-none-match': etag } });
    assert.equal(again.statusCode, 304);
  });

  test('llms.txt names pages by the address of the service', async () => {
    await writeFile(join(directory, 'guides/llms.txt'), '- [Connect](__BASE_URL__/guides/connect.md)');
    for (const path of ['/llms.txt', '/guides/llms.txt']) {
      const { body, headers } = await app.inject(path);
      assert.equal(body, '- [Connect](https://trellis.example.com/guides/connect.md)');
      assert.match(String(headers['content-type']), /^text\/plain/);
    }
  });
});
