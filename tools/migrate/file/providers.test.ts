// biome-ignore-all lint/suspicious/noTemplateCurlyInString: definitions have such templates
import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { afterEach, beforeEach, test } from 'node:test';
import { insertConnection } from '../../../server/connections/store/save.ts';
import { createIntegration } from '../../../server/integrations/store.ts';
import {
  findEnvironmentDefinition,
  insertEnvironmentDefinition,
} from '../../../server/providers/environment-definitions.ts';
import { type Installation, openInstallation, outcomesOf } from '../migrate.fixture.ts';
import type { Report } from '../report.ts';
import { type EntryInput, type EntryOf, lineOf } from './entries.ts';
import { bytesFrom, linesFrom, takeFile, withFile } from './file.fixture.ts';
import { importProvider } from './providers.ts';
import { tryFile } from './run.ts';

const at = new Date('2026-01-01T00:00:00.000Z');
const name = 'own-crm';
const crm = (host: string, title = 'Our CRM') => `# our own
display_name: ${title}
categories: [crm]
docs: https://crm.example/docs
auth_mode: API_KEY
placement: [{ in: header, name: X-Key, value: "\${credentials.apiKey}" }]
api: { base_url: https://${host} }
`;

let there: Installation;
let here: Installation;
beforeEach(async () => {
  [there, here] = await Promise.all([openInstallation('there'), openInstallation('here')]);
});
afterEach(() => Promise.all([there.drop(), here.drop()]));

async function define({ db, reading, environment }: Installation, text: string): Promise<void> {
  const { catalog } = reading;
  const { content } = catalog.read({ name, text });
  await db.transaction((tx) =>
    insertEnvironmentDefinition(tx, { catalog, environmentId: environment.id, name, text, content, at }),
  );
}

async function connect({ db, vault, reading, environment }: Installation): Promise<void> {
  await db.transaction(async (tx) => {
    const integration = await createIntegration(tx, {
      ...reading,
      environmentId: environment.id,
      key: 'crm',
      provider: name,
    });
    await insertConnection(tx, {
      vault,
      integration,
      connectionId: 'ada',
      at,
      grant: {},
      credentials: { type: 'API_KEY', apiKey: 'key-of-ada-0001' },
    });
  });
}

const exported = () => bytesFrom(there, { number: 1, now: at, hasRecords: false, hasApiKeys: false });
async function take(bytes: Buffer): Promise<Report> {
  const [taken] = await takeFile(here, bytes, { now: () => at });
  return taken!.report;
}
async function dryRun(bytes: Buffer): Promise<Report> {
  const run = { db: here.db, reading: here.reading, environmentName: undefined, overwrites: false };
  const [tried] = await withFile(bytes, (file) => tryFile({ ...run, now: () => at }, file));
  return tried!.report;
}
const reasonsOf = ({ integrations }: Report) => integrations.map(({ outcome, reason }) => reason ?? outcome);
const textHere = async () =>
  (await findEnvironmentDefinition(here.db, { environmentId: here.environment.id, name }))?.text;

test('a definition of the environment comes with its integrations and connections', async () => {
  await define(there, crm('crm.example'));
  await connect(there);
  const bytes = await exported();
  assert.deepEqual(reasonsOf(await dryRun(bytes)), ['to_make']);
  assert.equal(await textHere(), undefined);
  const report = await take(bytes);
  assert.deepEqual([reasonsOf(report), outcomesOf(report), report.next_steps], [['made'], { made: 1 }, []]);
  assert.equal(await textHere(), crm('crm.example'));
  assert.ok(await here.find('crm', 'ada'));
  assert.deepEqual(reasonsOf(await take(bytes)), ['used']);
});

test('a definition with other addresses keeps the credentials of the file out, one with other texts does not', async () => {
  await define(there, crm('crm.example'));
  await connect(there);
  await define(here, crm('other.example'));
  const bytes = await exported();
  for (const report of [await dryRun(bytes), await take(bytes)]) {
    assert.deepEqual(reasonsOf(report), ['definition_differs']);
    assert.match(report.next_steps.join(), /"own-crm" already exists and was not changed/);
  }
  assert.equal(await here.find('crm', 'ada'), undefined);
  assert.equal(await textHere(), crm('other.example'));

  await here.db.query('delete from provider_definition');
  await define(here, crm('crm.example', 'The CRM'));
  assert.deepEqual(reasonsOf(await take(bytes)), ['made']);
  assert.equal(await textHere(), crm('crm.example', 'The CRM'));
});

test('a definition that this version refuses is reported, and its integrations are skipped', async () => {
  await define(there, crm('crm.example'));
  const [line] = (await Array.fromAsync(linesFrom(there, { hasRecords: false, hasApiKeys: false, now: at })))
    .map((text) => JSON.parse(text.toString()) as EntryOf<'provider'>)
    .filter(({ kind }) => kind === 'provider');
  const entry = { ...line!, content: { ...line!.content, of_another_version: 1 } };
  const { db, environment, reading } = here;
  const { read, step } = await importProvider({ db, environment, now: at }, entry, reading);
  assert.equal(read, undefined);
  assert.match(
    step!,
    /"own-crm" is not valid in this version: of_another_version: is no key that is known here/,
  );
  assert.equal(await textHere(), undefined);
});

test('a definition whose name integrations here use already is not created', async () => {
  await define(there, crm('crm.example'));
  await connect(there);
  // As of a definition of the operator whose file is gone.
  await define(here, crm('crm.example'));
  const { db, reading, environment } = here;
  await db.transaction((tx) =>
    createIntegration(tx, { ...reading, environmentId: environment.id, key: 'left', provider: name }),
  );
  await db.query('delete from provider_definition');
  const report = await take(await exported());
  assert.match(report.next_steps.join(), /"own-crm" was not created\. The name is in use by left/);
  assert.deepEqual(reasonsOf(report), ['unknown_provider']);
});

test('credentials of a file whose definition cannot be used are not sent where the definition here says', async () => {
  await define(there, crm('crm.example'));
  await connect(there);
  await define(here, crm('other.example'));
  const contents = { hasRecords: false, hasApiKeys: false, now: at };
  const entries = (await Array.fromAsync(linesFrom(there, contents))).map(
    (line) => JSON.parse(line.toString()) as EntryInput,
  );
  const ofAnotherVersion = entries.map((entry) =>
    entry.kind === 'provider' ? { ...entry, content: { ...entry.content, of_another_version: 1 } } : entry,
  );
  // As of a definition in the operator's folder of the source.
  const without = entries
    .filter(({ kind }) => kind !== 'provider')
    .map((entry) => (entry.kind === 'end' ? { ...entry, counts: { ...entry.counts, provider: 0 } } : entry));
  for (const [number, changed] of [ofAnotherVersion, without].entries()) {
    const bytes = await bytesFrom(there, { ...contents, number, lines: Readable.from(changed.map(lineOf)) });
    for (const report of [await dryRun(bytes), await take(bytes)])
      assert.deepEqual(reasonsOf(report), ['definition_differs']);
    assert.equal(await here.find('crm', 'ada'), undefined);
  }
});
