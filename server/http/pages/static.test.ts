import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fastify } from 'fastify';
import { brandNames } from '../../brand.ts';
import type { App } from '../server.ts';
import { type Building, staticRoutes } from './static.ts';

/** The dashboard's files as a browser gets them, before and after they are built. */
describe('serving the dashboard', () => {
  let directory: string;
  let app: App;
  let building: Building = { is: 'running' };

  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'trellis-web-'));
    app = fastify() as unknown as App;
    await staticRoutes(app, {
      web: { directory, building: () => building },
      brand: brandNames('acme'),
      baseUrl: 'https://trellis.example.com/base',
      frameAncestors: ['https://app.example.com'],
    });
  });
  after(async () => {
    await app.close();
    await rm(directory, { recursive: true });
  });

  test('during the build, a page shows that and reloads itself', async () => {
    const answer = await app.inject('/app/dev/connections');
    assert.equal(answer.statusCode, 200);
    assert.match(answer.body, /is being built/);
    assert.match(answer.body, /location.reload/);
    assert.equal(answer.headers['cache-control'], 'no-store');
  });

  test('a failed build is shown without its output, and the page does not reload', async () => {
    building = { is: 'failed', why: 'not /home/ada/web' };
    const answer = await app.inject('/');
    assert.match(answer.body, /could not be built/);
    assert.ok(!answer.body.includes('/home/ada'));
    assert.doesNotMatch(answer.body, /location.reload/);
  });

  test('a build that appears while the service runs is served at once', async () => {
    await mkdir(join(directory, 'dashboard'));
    await mkdir(join(directory, 'assets'));
    await writeFile(
      join(directory, 'dashboard/index.html'),
      '<html data-brand="__BRAND__"><script nonce="__NONCE__"></script><script nonce="__NONCE__"></script>',
    );
    await writeFile(join(directory, 'assets/main-abc123.js'), 'let plain;');
    await writeFile(join(directory, 'assets/main-abc123.js.br'), 'compressed');
    for (const path of ['..%2f..%2fpackage.json', 'x%00', '.env', 'a%5cb', 'none.js'])
      assert.equal((await app.inject(`/assets/${path}`)).statusCode, 404, path);
    for (const path of ['/', '/app', '/app/dev/activity', '/invitation', '/reset-password']) {
      const answer = await app.inject(path);
      assert.equal(answer.statusCode, 200, path);
      assert.match(answer.body, /data-brand="acme"/);
    }
  });

  test('scripts and styles run by a nonce that no other answer has', async () => {
    const nonces = new Set<string>();
    for (const _ of [1, 2]) {
      const { body, headers } = await app.inject('/app');
      const policy = String(headers['content-security-policy']);
      assert.ok(!policy.includes('unsafe'), policy);
      assert.match(policy, /frame-ancestors 'none'/);
      assert.match(policy, /default-src 'none'/);
      const [, nonce = ''] = /script-src 'self' 'nonce-([\w-]{24})'/.exec(policy) ?? [];
      assert.equal(body.split(`nonce="${nonce}"`).length, 3);
      assert.ok(!body.includes('__NONCE__'));
      assert.equal(headers['cache-control'], 'no-store');
      nonces.add(nonce);
    }
    assert.equal(nonces.size, 2);
  });

  test('only named origins may frame the connect page, and it sends no referrer', async () => {
    await mkdir(join(directory, 'connect'));
    await writeFile(
      join(directory, 'connect/index.html'),
      '<html data-base-url="__BASE_URL__"><script src="/assets/connect-1.js" nonce="__NONCE__"></script>',
    );
    for (const path of ['/connect/', '/connect/?session_token=x&lang=de']) {
      const { body, headers, statusCode } = await app.inject(path);
      assert.equal(statusCode, 200);
      const policy = String(headers['content-security-policy']);
      assert.match(policy, /frame-ancestors 'self' https:\/\/app\.example\.com$/);
      assert.ok(!policy.includes('unsafe'), policy);
      assert.equal(headers['x-frame-options'], undefined);
      assert.equal(headers['referrer-policy'], 'no-referrer');
      assert.equal(headers['cache-control'], 'no-store');
      // The service is reached through a proxy that takes this path away.
      assert.ok(body.includes('data-base-url="https://trellis.example.com/base"'));
      assert.ok(body.includes('src="/base/assets/connect-1.js"'));
    }
  });

  test('a file whose name changes with its content is kept for a year', async () => {
    const answer = await app.inject('/assets/main-abc123.js');
    assert.equal(answer.body, 'let plain;');
    assert.equal(answer.headers['cache-control'], 'public, max-age=31536000, immutable');
    assert.match(String(answer.headers['content-type']), /javascript/);
  });

  test('a browser that reads Brotli gets the copy that is there already', async () => {
    const answer = await app.inject({
      url: '/assets/main-abc123.js',
      headers: { 'accept-encoding': 'gzip, br' },
    });
    assert.equal(answer.headers['content-encoding'], 'br');
    assert.equal(answer.body, 'compressed');
    assert.match(String(answer.headers.vary), /accept-encoding/i);
  });

  test('the client is served to pages of any site, and again only if it has changed', async () => {
    for (const path of ['/connect.js', '/sdk/trellis-client.tgz'])
      assert.equal((await app.inject(path)).statusCode, 503, `${path}: not built yet`);
    await mkdir(join(directory, 'client'));
    await writeFile(join(directory, 'client/connect.js'), 'let one;');
    await writeFile(join(directory, 'client/connect.js.br'), 'compressed');
    await writeFile(join(directory, 'client/trellis-client.tgz'), 'tarball');
    const first = await app.inject('/connect.js');
    assert.deepEqual([first.statusCode, first.body], [200, 'let one;']);
    assert.match(String(first.headers['content-type']), /javascript/);
    assert.equal(first.headers['cache-control'], 'public, max-age=86400');
    assert.equal(first.headers['cross-origin-resource-policy'], 'cross-origin');
    const tag = String(first.headers.etag);
    const again = (etag: string) => app.inject({ url: '/connect.js', headers: { 'if-none-match': etag } });
    for (const known of [tag, `"other", ${tag}`, tag.slice(2), '*']) {
      const { statusCode, body, headers } = await again(known);
      assert.deepEqual([statusCode, body, headers.etag], [304, '', tag], known);
    }
    const compressed = await app.inject({ url: '/connect.js', headers: { 'accept-encoding': 'br' } });
    assert.deepEqual(
      [compressed.body, compressed.headers['content-encoding'], compressed.headers.etag],
      ['compressed', 'br', tag],
    );
    // Another version of the same length and date.
    await writeFile(join(directory, 'client/connect.js'), 'let two;');
    const other = await again(tag);
    assert.deepEqual([other.statusCode, other.body], [200, 'let two;']);
    const tarball = await app.inject('/sdk/trellis-client.tgz');
    assert.deepEqual([tarball.body, tarball.headers['cache-control']], ['tarball', 'no-cache']);
    for (const path of ['/sdk/', '/sdk/..%2fconnect.js', '/sdk/connect.js', '/client/connect.js'])
      assert.equal((await app.inject(path)).statusCode, 404, path);
  });

  test('nothing beside the assets can be read', async () => {
    for (const path of [
      '/assets/../dashboard/index.html',
      '/assets/%2e%2e/dashboard/index.html',
      '/assets/..%2fdashboard%2findex.html',
      '/assets/none.js',
      '/assets/',
    ]) {
      const answer = await app.inject(path);
      assert.ok([403, 404].includes(answer.statusCode), `${path}: ${answer.statusCode}`);
      assert.ok(!answer.body.includes('data-brand'), path);
    }
  });
});
