// Slow: it compiles Go.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { connect, openTrellis, type TestTrellis } from '../../test/support/trellis.ts';
import { codeOf, connectionHeaders, type Language, type ServiceCall } from './call-code.ts';

const run = promisify(execFile);

/** Characters with a meaning in one of the languages, on one line and on several. */
const texts = [
  `It's "$HOME" \`date\` \\n {a,b} <?php %d 'Grüße' 世界 🦀`,
  'multi\n"""line"""\r\n\'\'\' end',
  'plain',
];

describe('the code that pages show runs as it is', () => {
  let trellis: TestTrellis;
  let directory: string;
  let headers: [string, string][];

  before(async () => {
    trellis = await openTrellis();
    directory = await mkdtemp(join(tmpdir(), 'trellis-snippets-'));
    const { connectionId } = await connect(trellis);
    headers = connectionHeaders({ integration: 'google-sheet', id: connectionId });
  });
  after(async () => {
    await rm(directory, { recursive: true, force: true });
    await trellis?.close();
  });

  /** By language: the command for a file of code, and an argument by which it is known to be installed. */
  const programs: [language: Language, file: string, command: string[], version: string][] = [
    ['curl', 'call.sh', ['bash'], '--version'],
    ['JavaScript', 'call.mjs', [process.execPath], '--version'],
    ['Python', 'call.py', ['python3'], '--version'],
    ['Go', 'call.go', ['go', 'run'], 'version'],
    ['PHP', 'call.php', ['php'], '--version'],
  ];
  for (const [language, file, [program = '', ...words], version] of programs) {
    test(`${language} saves and reads what it was given`, async (t) => {
      const isThere = await run(program, [version]).then(
        () => true,
        () => false,
      );
      if (!isThere) {
        t.skip(`${program} is not installed`);
        return;
      }
      const model = `Of${language}`;
      const execute = async (call: ServiceCall) => {
        const path = join(directory, file);
        await writeFile(path, codeOf[language](call));
        const { stdout } = await run(program, [...words, path], {
          env: { ...process.env, GOTOOLCHAIN: 'local', TRELLIS_SECRET_KEY: trellis.keys.dev },
        });
        return stdout;
      };
      const records = texts.map((text, at) => ({ id: String(at), text }));
      const bodies = [
        JSON.stringify({ model, records }),
        JSON.stringify({ model, records }, null, 2),
        JSON.stringify({ model, records: records.slice(-1) }, null, 2),
      ];
      for (const body of bodies) {
        await execute({
          method: 'POST',
          url: `${trellis.baseUrl}/records`,
          headers: [...headers, ['Content-Type', 'application/json']],
          body,
        });
      }
      const printed = await execute({
        method: 'GET',
        url: `${trellis.baseUrl}/records?model=${model}&limit=10`,
        headers,
      });
      const read = JSON.parse(printed.slice(printed.indexOf('{'))) as {
        records: { id: string; text: string }[];
      };
      assert.deepEqual(
        read.records.map(({ id, text }) => ({ id, text })),
        records,
      );
      if (language !== 'curl') assert.match(printed, /^200 /);
    });
  }

  test('the strings of PHP contain the call unchanged', () => {
    const call: ServiceCall = {
      method: 'PUT',
      url: "https://localhost/a'b",
      headers: [['X', '\\']],
      body: texts.join(),
    };
    const strings = Array.from(codeOf.PHP(call).matchAll(/'((?:[^'\\]|\\['\\])*)'/g), ([, text = '']) =>
      text.replace(/\\(['\\])/g, '$1'),
    );
    assert.deepEqual(strings, [
      call.url,
      'PUT',
      'Authorization: Bearer ',
      'TRELLIS_SECRET_KEY',
      'X: \\',
      call.body,
      ' ',
    ]);
  });
});
