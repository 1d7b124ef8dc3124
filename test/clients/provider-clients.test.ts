// docs/guides/provider-clients.md: each program does what the page says, and so do the table of repeated calls and the warnings.
// The Python ones run where TEST_PYTHON, or python3, has their clients; test/long/provider-clients.long.ts installs them.
// Slow: it drives published clients.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { installInto } from '../support/client-package.ts';
import { connect, openTrellis, type TestTrellis } from '../support/trellis.ts';
import { type PageProgram, page, pagePrograms, runProgram } from './page-programs.ts';
import { bothTried, type Repeats, repeats } from './repeats.ts';

const python = process.env.TEST_PYTHON ?? 'python3';
const hasClients = spawnSync(python, ['-c', 'import gspread, googleapiclient']).status === 0;
const languages = {
  js: { command: process.execPath, skip: false },
  python: {
    command: python,
    skip: hasClients ? false : `${python} has no gspread and googleapiclient; TEST_PYTHON may name one`,
  },
} as const;

const text = await readFile(join(import.meta.dirname, '../..', page), 'utf8');
const programs = pagePrograms(text);

let trellis: TestTrellis;
let directory: string;
before(async () => {
  directory = await mkdtemp(join(tmpdir(), 'trellis-clients-'));
  await Promise.all([
    openTrellis().then((opened) => {
      trellis = opened;
    }),
    installInto(directory, ['@googleapis/sheets', 'google-spreadsheet']),
  ]);
});
after(async () => {
  await trellis?.close();
  await rm(directory, { recursive: true, force: true });
});

type Place = { account: string; env: Record<string, string>; headers: Record<string, string> };

/** A connection of an account of its own, with the spreadsheet that the page speaks of. */
async function openPlace(): Promise<Place> {
  const account = `${crypto.randomUUID()}@example.com`;
  await trellis.control('POST', 'accounts', { email: account });
  const csv = 'code,city\n7,Oslo\n8,Rome\n9,Bonn';
  const sheet = { account, title: 'Cities', sheet: 'cities', csv };
  const { spreadsheetId } = await trellis.control('POST', 'spreadsheets', sheet);
  // One after the other: what is new is found by what was there.
  const made = connecting.then(() => connect(trellis, { account }));
  connecting = made.then(
    () => {},
    () => {},
  );
  const { connectionId, headers } = await made;
  const at = { TRELLIS_URL: trellis.baseUrl, TRELLIS_SECRET_KEY: trellis.keys.dev, CONN: connectionId };
  return { account, headers, env: { ...at, SHEET: String(spreadsheetId) } };
}
let connecting = Promise.resolve();

const values = async ({ env, headers }: Place) => {
  const { body } = await trellis.call('GET', `/proxy/v4/spreadsheets/${env.SHEET}/values/cities`, {
    headers,
  });
  return body.values as string[][];
};
const tabs = async ({ env, headers }: Place) => {
  const { body } = await trellis.call('GET', `/proxy/v4/spreadsheets/${env.SHEET}`, { headers });
  return (body.sheets as { properties: { title: string } }[]).map(({ properties }) => properties.title);
};
/** The service's address is another one here, and a token is another one each time. */
const asOnThePage = (output: string) =>
  output
    .replaceAll(trellis.baseUrl, 'http://localhost:3003')
    .replaceAll(/(session_token=\w+session_)\w+/g, '$1...');

for (const program of programs) {
  const { language, heading } = program;
  const { command, skip } = languages[language];
  describe(`${page}, ${heading}`, { skip, concurrency: true }, () => {
    test('the program reads, appends and adds a tab', async () => {
      const place = await openPlace();
      const { stdout, stderr, code } = await runProgram(program, { directory, command, env: place.env });
      assert.equal(asOnThePage(stdout), program.alive, stderr);
      assert.equal(code, 0);
      assert.deepEqual((await values(place)).at(-1), ['10', 'Paris']);
      assert.deepEqual(await tabs(place), ['cities', 'notes']);
    });

    test('it knows a dead connection', async () => {
      const place = await openPlace();
      await trellis.control('POST', 'revoke', { account: place.account });
      const { stdout, stderr, code } = await runProgram(program, { directory, command, env: place.env });
      assert.equal(asOnThePage(stdout), program.dead, stderr);
      assert.equal(code, 0);
    });

    test('any other error ends it', async () => {
      const place = await openPlace();
      await trellis.control('POST', 'faults', { case: 'api_403', account: place.account });
      const { stdout, code } = await runProgram(program, { directory, command, env: place.env });
      assert.equal(stdout, '');
      assert.notEqual(code, 0);
    });
  });
}

test('the page has a program for each client that it names', () => {
  assert.deepEqual(
    programs.map(({ heading }) => heading),
    [
      'fetch',
      'By @trellis-run/client',
      '@googleapis/sheets',
      'google-spreadsheet',
      'google-api-python-client',
      'gspread',
    ],
  );
});

test('the versions on the page are those that are run', async () => {
  const { devDependencies } = JSON.parse(
    await readFile(join(import.meta.dirname, '../../package.json'), 'utf8'),
  ) as { devDependencies: Record<string, string> };
  const wanted = await readFile(join(import.meta.dirname, 'requirements.txt'), 'utf8');
  const pinned = Object.fromEntries(
    [...wanted.matchAll(/^(\S+)==(\S+)$/gm)].map(([, name, version]) => [name!, version!]),
  );
  for (const [, name, version] of text.matchAll(/^\| \[`([^`]+)`\].* \| (\d[\d.]*) \|$/gm))
    assert.equal(devDependencies[name!] ?? pinned[name!], version, name!);
});

/** Runs what is behind the set-up of a page's program. */
const probe = (heading: string, code: string, { env }: Place) => {
  const program = programs.find((one) => one.heading === heading)!;
  const [setUp = ''] = program.text.split(/^try/m);
  const { command } = languages[program.language];
  return runProgram({ ...program, text: `${setUp}\n${code}\n` }, { directory, command, env });
};

describe(`${page}: who repeats a call`, { concurrency: true }, () => {
  const rows = [...text.matchAll(/^\| (`.*) \| (\d) \| (\d) \|$/gm)].map(([, who, read, append]) => ({
    who: who!,
    read: Number(read),
    append: Number(append),
  }));

  test('the table has all that are tried', () => {
    assert.deepEqual(
      rows.map(({ who }) => who),
      Object.keys(repeats),
    );
  });

  const languageOf = ({ heading }: Repeats): PageProgram['language'] =>
    programs.find((one) => one.heading === heading)!.language;
  for (const { who, ...told } of rows) {
    const tried = repeats[who as keyof typeof repeats] as Repeats | undefined;
    if (tried === undefined) continue;
    test(who, languages[languageOf(tried)], async () => {
      const place = await openPlace();
      await trellis.control('POST', 'faults', { case: 'api_503', account: place.account });
      const { stdout, stderr } = await probe(tried.heading, bothTried(tried, languageOf(tried)), place);
      assert.equal(stdout.trim(), 'failed\nfailed', stderr);
      const { calls } = (await trellis.control('GET', 'calls/last')) as {
        calls: { route: string; account: string }[];
      };
      const sent = (method: string) =>
        calls.filter(({ route, account }) => account === place.account && route.startsWith(`${method} /v4/`));
      assert.deepEqual({ read: sent('GET').length, append: sent('POST').length }, told);
    });
  }

  test('num_retries appends a second time where an answer was lost', languages.python, async () => {
    const place = await openPlace();
    await trellis.control('POST', 'faults', { case: 'api_reset_after', account: place.account, times: 1 });
    const { heading, append } = repeats['`google-api-python-client` with `execute(num_retries=2)`'];
    const { code, stderr } = await probe(heading, append, place);
    assert.equal(code, 0, stderr);
    assert.deepEqual((await values(place)).slice(4), [
      ['10', 'Paris'],
      ['10', 'Paris'],
    ]);
  });
});

describe(`${page}: the key goes to Trellis alone`, () => {
  test('google-spreadsheet sends it neither to Drive nor with a download', async () => {
    const place = await openPlace();
    const code = `
      const seen = [];
      const fetch = async (request) => {
        seen.push([new URL(request.url).host, request.headers.get('authorization')?.includes(TRELLIS_SECRET_KEY) ?? false]);
        return new Response('', { status: 401 });
      };
      doc.driveApi = doc.driveApi.extend({ fetch });
      await doc.loadInfo();
      doc.sheetsApi = doc.sheetsApi.extend({ fetch });
      await doc.delete().catch(() => {});
      await doc.downloadAsXLSX().catch(() => {});
      console.log(JSON.stringify(seen));`;
    const { stdout, stderr } = await probe('google-spreadsheet', code, place);
    assert.notEqual(stdout, '', stderr);
    const seen = JSON.parse(stdout) as [string, boolean][];
    assert.ok(seen.length >= 2);
    for (const [host, hasKey] of seen) assert.equal(hasKey, false, host);
  });

  test('the Python programs refuse addresses that are not behind it', languages.python, async () => {
    const place = await openPlace();
    for (const [heading, code] of [
      ['google-api-python-client', 'TrellisHttp().request("https://www.googleapis.com/drive/v3/files")'],
      ['gspread', 'client.open("Cities")'],
    ] as const) {
      const { stderr } = await probe(heading, code, place);
      assert.match(stderr, /ValueError: https:\/\/www\.googleapis\.com\/.* is not behind Trellis/);
    }
  });
});
