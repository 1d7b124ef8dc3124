// Each command of the official command line that speaks with a service: what it says, and what is so afterwards. It takes
// npm's registry, and half a minute for a version.

import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { compatibilityPage, namedUnder } from '../clients/nango/compatibility-page.ts';
import { connect, openTrellis, type TestTrellis } from '../support/trellis.ts';
import { type CommandLine, copyFunctions, openCommandLine, type Passed } from './nango-cli.ts';

const key = 'google-sheet';
type Recorded = {
  step: string;
  method: string;
  path: string;
  headers: Record<string, string>;
  body?: {
    flowConfigs?: { syncName: string; type: string; fileBody: { ts: string } }[];
    onEventScriptsByProvider?: { scripts: { name: string; fileBody: { ts: string } }[] }[];
  };
};
const recorded = JSON.parse(
  await readFile(join(import.meta.dirname, '../clients/cli-requests.json'), 'utf8'),
) as Recorded[];

/** The project that the recorded requests are of. */
const sources = new Map(
  recorded.flatMap(({ body = {} }) => [
    ...(body.flowConfigs ?? []).map(
      ({ syncName, type, fileBody: { ts } }) => [`${key}/${type}s/${syncName}.ts`, ts] as const,
    ),
    ...(body.onEventScriptsByProvider ?? []).flatMap(({ scripts }) =>
      scripts.map(({ name, fileBody: { ts } }) => [`${key}/on-events/${name}.ts`, ts] as const),
    ),
  ]),
);
const indexOf = (paths: Iterable<string>) =>
  [...paths].map((path) => `import './${path.replace(/\.ts$/, '.js')}';\n`).join('');

for (const version of ['0.70.4', '0.71.10']) {
  describe(`nango ${version}`, { timeout: 900_000 }, () => {
    let trellis: TestTrellis;
    let line: CommandLine;
    let connectionId: string;
    let spreadsheetId: string;
    let template: string;
    before(async () => {
      trellis = await openTrellis({ TRELLIS_BRAND: 'nango' });
      const made = await connect(trellis);
      connectionId = made.connectionId;
      const sheet = await trellis.call('POST', '/proxy/v4/spreadsheets', { headers: made.headers, body: {} });
      spreadsheetId = String(sheet.body.spreadsheetId);
      const values = [
        ['name', 'country'],
        ['Oslo', 'NO'],
        ['Rome', 'IT'],
      ];
      const range = `/proxy/v4/spreadsheets/${spreadsheetId}/values/A1?valueInputOption=RAW`;
      await trellis.call('PUT', range, { headers: made.headers, body: { values } });
      await trellis.call('POST', '/connections/metadata', {
        body: { provider_config_key: key, connection_id: connectionId, metadata: { spreadsheetId } },
      });
      line = await openCommandLine({ version, baseUrl: trellis.baseUrl, keys: trellis.keys });
      template = await line.read('index.ts');
      for (const [path, text] of sources) await line.write(path, text);
      await line.write('index.ts', indexOf(sources.keys()));
    });
    after(async () => {
      await line?.close();
      await trellis?.close();
    });

    const functions = async (environment: 'dev' | 'prod' = 'dev') => {
      const { body } = await trellis.call('GET', '/functions?limit=100', { key: trellis.keys[environment] });
      return (body.data as { name: string; type: string; version: number }[])
        .map(({ type, name, version: number }) => `${type} ${name} ${number}`)
        .sort();
    };
    const succeeds = async (...words: string[]) => {
      const { code, output } = await line.run(words);
      assert.equal(code, 0, output);
      return output;
    };

    test('compile: a bundle for each function, and nothing is sent but that it was run', async () => {
      line.passed();
      await succeeds('compile');
      const built = (await readdir(join(line.project, 'build'))).filter((name) => name.endsWith('.cjs'));
      assert.equal(built.length, sources.size);
      assert.deepEqual(
        line.passed().filter(({ path }) => path !== '/cli/telemetry'),
        [],
      );
    });

    test('deploy: tells what changes and does it, and what it deploys runs', async () => {
      line.passed();
      const output = await succeeds('deploy', 'dev');
      assert.match(output, /Successfully deployed/);
      assert.deepEqual(await functions(), ['action add-city 1', 'on-event greet 1', 'sync cities 1']);
      if (version === '0.71.10') assertAsRecorded('deploy dev', line.passed());
      await succeeds('deploy', 'dev');
      assert.deepEqual(await functions(), ['action add-city 1', 'on-event greet 1', 'sync cities 1']);

      const headers = { 'connection-id': connectionId, 'provider-config-key': key };
      await trellis.call('POST', '/sync/trigger', { headers, body: { syncs: ['cities'] } });
      assert.deepEqual(await cities(trellis, headers), ['Oslo', 'Rome']);
      const input = { spreadsheetId, name: 'Kyiv', country: 'UA' };
      const added = await trellis.call('POST', '/action/trigger', {
        headers,
        body: { action_name: 'add-city', input },
      });
      assert.equal(added.status, 200, added.text);
    });

    test('deploy: one function, one integration, another environment, and what is gone', async () => {
      const path = `${key}/syncs/cities.ts`;
      const text = sources.get(path)!;
      await line.write(path, text.replace('every hour', 'every 2 hours'));
      await succeeds('deploy', 'dev', '--action', 'add-city');
      assert.ok((await functions()).includes('sync cities 1'));
      await succeeds('deploy', 'dev', '--sync', 'cities');
      assert.ok((await functions()).includes('sync cities 2'));
      await succeeds('deploy', 'dev', '--integration', key);

      await trellis.call('POST', '/integrations/quickstart', {
        key: trellis.keys.prod,
        body: { provider: key, unique_key: key },
      });
      await succeeds('deploy', 'prod');
      assert.deepEqual(await functions('prod'), ['action add-city 1', 'on-event greet 1', 'sync cities 1']);

      const left = [...sources.keys()].filter((one) => one !== path);
      await line.write('index.ts', indexOf(left));
      const warned = await line.run(['deploy', 'dev'], { CI: 'true' });
      assert.notEqual(warned.code, 0, warned.output);
      assert.match(warned.output, /- google-sheet → cities +\(1 impacted connections\)/);
      assert.ok((await functions()).includes('sync cities 2'), 'a sync with connections does not go unasked');
      const output = await succeeds('deploy', 'dev', '--allow-destructive');
      assert.match(output, /models have been removed: City/);
      assert.deepEqual(await functions(), ['action add-city 1', 'on-event greet 1']);
      await line.write(path, text);
      await line.write('index.ts', indexOf(sources.keys()));
      await succeeds('deploy', 'dev');
    });

    test('deploy: what the service refuses is told in its words, and nothing is deployed', async () => {
      const before = await functions();
      await line.write('index.ts', indexOf(sources.keys()) + template);
      const { code, output } = await line.run(['deploy', 'dev']);
      assert.equal(code === 0, false);
      assert.match(output, /No integration of this environment has the ID "github"/);
      assert.match(output, /unknown_provider_config/);
      const wrong = await line.run(['deploy', 'dev'], { NANGO_SECRET_KEY_DEV: crypto.randomUUID() });
      assert.notEqual(wrong.code, 0);
      assert.match(wrong.output, /unknown_account/);
      assert.deepEqual(await functions(), before);
      const few = await line.run(['deploy', 'dev'], {
        NANGO_SECRET_KEY_DEV: await trellis.keyWith('functions:read'),
      });
      assert.match(few.output, /forbidden/);
      await line.write('index.ts', indexOf(sources.keys()));
    });

    test('dryrun: a sync and an action run here, on the connection there, and nothing is saved', async () => {
      line.passed();
      const sync = await succeeds('dryrun', 'cities', connectionId, '--environment', 'dev', '--validate');
      assert.match(sync, /"name": "Oslo"/);
      assert.match(sync, /"added": 3/);
      if (version === '0.71.10') assertAsRecorded('dryrun cities', line.passed());
      line.passed();
      const input = JSON.stringify({ spreadsheetId, name: 'Bonn', country: 'DE' });
      const words = ['dryrun', 'add-city', connectionId, '--environment', 'dev', '--input', input];
      assert.match(await succeeds(...words), /"range": "[^"]*A5:B5"/);
      if (version === '0.71.10') assertAsRecorded('dryrun add-city', line.passed());
      const stubbed = await succeeds(
        'dryrun',
        'cities',
        connectionId,
        '--environment',
        'dev',
        '--metadata',
        JSON.stringify({ spreadsheetId }),
        '--checkpoint',
        '{"seen":3}',
      );
      assert.match(stubbed, /Seen before: 3/);
      const nobody = await line.run(['dryrun', 'cities', 'nobody', '--environment', 'dev']);
      assert.match(nobody.output, /has no connection/);
    });

    test('pull: the source comes back as it was written', async () => {
      const path = `${key}/syncs/cities.ts`;
      line.passed();
      await line.remove(path);
      await succeeds('pull', key, 'cities', '--env', 'dev', '--force');
      assert.equal(await line.read(path), sources.get(path));
      if (version === '0.71.10') assertAsRecorded('pull google-sheet', line.passed());
      const none = await line.run(['pull', key, 'none', '--env', 'dev', '--force']);
      assert.notEqual(none.code, 0);
      assert.match(none.output, /has no function "none"/);
    });

    test('functions of its own template, and ours that are written for it, deploy as they are', async () => {
      const { status, text } = await trellis.call('POST', '/integrations', {
        body: {
          provider: 'github',
          unique_key: 'github',
          credentials: { type: 'OAUTH2', client_id: 'the client', client_secret: 'the secret of it' },
        },
      });
      assert.equal(status, 200, text);
      const samples = join(import.meta.dirname, '../functions/samples');
      await copyFunctions(join(samples, 'github'), join(line.project, 'github'));
      await copyFunctions(join(samples, key), join(line.project, key));
      const ours = (await readFile(join(samples, 'index.ts'), 'utf8'))
        .split('\n')
        // It says what only functions of this service's own kind say.
        .filter((one) => one !== '' && !one.includes('read-range'))
        .join('\n');
      await line.remove(`${key}/actions/read-range.ts`);
      await line.write('index.ts', `${template}\n${ours}\n`);
      await succeeds('deploy', 'dev', '--allow-destructive');
      assert.deepEqual(
        (await functions()).map((one) => one.replace(/ \d+$/, '')),
        [
          'action append-row',
          'action create-spreadsheet',
          'action createIssue',
          'action remember-range',
          'on-event check-account',
          'on-event first-look',
          'on-event pre-connection-deletion',
          'sync changed-rows',
          'sync fetchIssues',
          'sync issues',
          'sync rows',
          'sync tabs',
        ],
      );
    });

    test('docs/reference/compatibility.md names every command, and every method of functions that is not here', async () => {
      const help = (await line.run(['--help'])).output.split('Commands:')[1] ?? '';
      const commands = [...help.matchAll(/^ {2}([a-z][\w:-]*) /gm)].map(([, name]) => name!);
      const known = [...namedUnder('The command line'), 'help'];
      const mentioned = (name: string) => known.includes(name) || compatibilityPage.includes(`\`${name}\``);
      assert.ok(commands.length > 10);
      assert.deepEqual(
        commands.filter((name) => !mentioned(name)),
        [],
      );
      if (version !== '0.71.10') return;
      const declared = 'node_modules/@nangohq/runner-sdk/dist';
      const theirs = `${await line.read(`${declared}/action.d.ts`)}${await line.read(`${declared}/sync.d.ts`)}`;
      const ours = await readFile(join(import.meta.dirname, '../../sdk/functions/context.ts'), 'utf8');
      const namesIn = (text: string, form: RegExp) =>
        new Set([...text.matchAll(form)].map(([, name]) => name!));
      const methods = namesIn(theirs, /^ {4}(?:abstract )?(?!constructor\b)([a-z]\w*)[<(]/gim);
      const here = namesIn(ours, /^ {2}([a-z]\w*)[<(]/gim);
      assert.ok(methods.size > 30);
      assert.deepEqual(
        [...methods].filter((name) => !here.has(name)).sort(),
        namedUnder('In functions').sort(),
      );
    });

    /** What test/clients/cli.test.ts sends is what it sends. */
    function assertAsRecorded(step: string, passed: Passed[]): void {
      const plain = ({ method, path }: { method: string; path: string }) =>
        `${method} ${path.replaceAll(connectionId, '{connection}').replaceAll(spreadsheetId, '{spreadsheet}')}`;
      const ofStep = recorded.filter((one) => one.step === step);
      const isWanted = ({ path }: { path: string }) =>
        path !== '/cli/telemetry' || ofStep.some((one) => one.path === path);
      const sent = passed.filter(isWanted);
      assert.deepEqual(sent.map(plain), ofStep.map(plain));
      for (const [at, { headers, fields }] of sent.entries()) {
        const known = Object.keys(ofStep[at]!.headers).filter((name) => name !== 'nango-cli-device-id');
        const ofConnection = ['host', 'connection', 'content-length', 'authorization', 'transfer-encoding'];
        // Sent once it has a place to keep it.
        ofConnection.push('nango-cli-device-id');
        assert.deepEqual(
          Object.keys(headers)
            .filter((name) => !ofConnection.includes(name))
            .sort(),
          known.sort(),
          plain(sent[at]!),
        );
        assert.deepEqual(fields.sort(), Object.keys(ofStep[at]!.body ?? {}).sort());
      }
    }
  });
}

/** Names of the records, once the run that saves them is over. */
async function cities(trellis: TestTrellis, headers: Record<string, string>): Promise<string[]> {
  for (let left = 200; left > 0; left--) {
    const { body } = await trellis.call('GET', '/records?model=City', { headers });
    const names = ((body.records ?? []) as { name: string }[]).map(({ name }) => name);
    if (names.length > 0) return names;
    await pause(50);
  }
  throw new Error('no record was saved');
}
