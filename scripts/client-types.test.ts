// Slow: quicktype takes seconds for all schemas.
import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { type OpenApi, operationsOf, type Placed, readRawDocument } from '../test/support/openapi.ts';
import { openTrellis } from '../test/support/trellis.ts';
import { clientTypes } from './client-types.ts';

const run = promisify(execFile);
const without = (program: string, argument: string) =>
  spawnSync(program, [argument]).status === 0 ? false : `${program} is not installed`;

let directory: string;
let files: Record<string, string>;
let document: OpenApi;
before(async () => {
  directory = await mkdtemp(join(tmpdir(), 'trellis-types-'));
  const trellis = await openTrellis();
  document = await readRawDocument(trellis);
  await trellis.close();
  files = await clientTypes(document.components.schemas);
  for (const [name, text] of Object.entries(files)) await writeFile(join(directory, name), text);
});
after(() => rm(directory, { recursive: true, force: true }));

/** Example responses of the document, by the name of their schema. */
function examples(): Record<string, unknown> {
  type Responses = Placed['operation']['responses'];
  const shared = Object.values(document.components.responses as Responses);
  const inline = operationsOf(document.paths).flatMap(({ operation }) => Object.values(operation.responses));
  const found = [...inline, ...shared].map(({ content }) => content?.['application/json']);
  const named = found.map((media): [string, unknown] => [
    media?.schema?.$ref?.split('/').at(-1) ?? '',
    media?.example,
  ]);
  return Object.fromEntries(named.filter(([name, example]) => name !== '' && example !== undefined));
}

test('the types for Python read and write the objects of the API', {
  skip: without('python3', '--version'),
}, async () => {
  const { Connection, ListIntegrationsResponse, Run } = examples();
  const program = `
import json, sys, trellis
for name, example in json.loads(sys.argv[1]).items():
    kind = getattr(trellis, name)
    assert kind.from_dict(example).to_dict() == example, name
assert trellis.Connection.from_dict(json.loads(sys.argv[1])["Connection"]).health.status
`;
  const given = JSON.stringify({ Connection, ListIntegrationsResponse, Run });
  await run('python3', ['-c', program, given], {
    env: { ...process.env, PYTHONPATH: directory, PYTHONDONTWRITEBYTECODE: '1' },
  });
});

test('the types for Go compile', { skip: without('go', 'version') }, async () => {
  await writeFile(join(directory, 'go.mod'), 'module trellis\n\ngo 1.19\n');
  const env = { ...process.env, GOCACHE: join(directory, 'cache'), GOFLAGS: '-mod=mod', GOPROXY: 'off' };
  await run('go', ['vet', './...'], { cwd: directory, env });
});

test('each named schema has a type in both languages', () => {
  const { 'trellis.py': python = '', 'trellis.go': go = '' } = files;
  // Each language writes ID and API in its own case.
  for (const name of ['Connection', 'Integration', 'Run', 'Delivery', 'Environment', 'ApiKey']) {
    assert.match(python, new RegExp(`^class ${name}:`, 'im'));
    assert.match(go, new RegExp(`^type ${name} struct`, 'im'));
  }
});
