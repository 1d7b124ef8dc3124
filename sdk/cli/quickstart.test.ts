// Slow: it starts processes of its own.

import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { runCommand } from '../../test/support/command.ts';
import { openTrellis, type TestTrellis } from '../../test/support/trellis.ts';

let trellis: TestTrellis;
let dataDir: string;
before(async () => {
  trellis = await openTrellis();
  dataDir = await mkdtemp(join(tmpdir(), 'trellis-quickstart-'));
});
after(async () => {
  await trellis.close();
  await rm(dataDir, { recursive: true });
});
const quickstart = (env: Record<string, string>) =>
  runCommand(['quickstart', '--url', trellis.baseUrl, '--sandbox', trellis.sandbox.url], {
    DATA_DIR: dataDir,
    ...env,
  });

test('each step is done and printed, as often as it is started, and the key is not printed', async () => {
  await writeFile(join(dataDir, 'dev.key'), trellis.keys.dev);
  for (const env of [{ TRELLIS_SECRET_KEY: trellis.keys.dev }, {}]) {
    const { code, stdout, stderr } = await quickstart(env);
    assert.deepEqual([code, stderr], [0, ''], stdout);
    assert.ok(!stdout.includes(trellis.keys.dev));
    assert.match(
      stdout,
      /^curl '.*\/integrations\/quickstart' -H "Authorization: Bearer \$TRELLIS_SECRET_KEY"/m,
    );
    assert.match(stdout, /^200 .*"values":\[\["code","city"\],/m);
    assert.match(stdout, /^curl -X PATCH .*\/records\/prune'.*\n200 \{"count":2,"has_more":false\}$/m);
    assert.match(stdout, /^200 .*"restored":2/m);
  }
  const { body } = await trellis.call('GET', '/connections');
  assert.equal((body.connections as object[]).length, 2);
});

test('without an address, the sandbox is expected at the port after that of the service', async () => {
  const { stdout } = await runCommand(['quickstart', '--url', trellis.baseUrl], {
    TRELLIS_SECRET_KEY: trellis.keys.dev,
  });
  const port = Number(new URL(trellis.baseUrl).port) + 1;
  assert.match(stdout, new RegExp(`^curl 'http://localhost:${port}/_sandbox/accounts'`, 'm'));
});

test('a missing key and a service that does not run are reported', async () => {
  await rm(join(dataDir, 'dev.key'));
  const none = await quickstart({});
  assert.deepEqual([none.code, none.stdout], [2, '']);
  assert.match(none.stderr, /TRELLIS_SECRET_KEY is not set, and .*dev\.key cannot be read/);
  const { code, stderr } = await runCommand(['quickstart', '--url', 'http://127.0.0.1:1'], {
    TRELLIS_SECRET_KEY: 'any',
  });
  assert.equal(code, 1);
  assert.match(stderr, /http:\/\/127\.0\.0\.1:1 cannot be reached/);
});
