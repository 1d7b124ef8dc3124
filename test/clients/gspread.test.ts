// Slow: it drives published clients.

import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { comparable, openBothWays, type Way } from './both-ways.ts';

const run = promisify(execFile);
/** TEST_PYTHON names a Python that has gspread. */
const python = process.env.TEST_PYTHON ?? 'python3';
const hasGspread = spawnSync(python, ['-c', 'import gspread']).status === 0;
const skip = hasGspread ? false : `${python} has no gspread; TEST_PYTHON may name one that has`;

test('gspread works with cells, rows and tabs alike both ways', { skip }, async (t) => {
  const ways = await openBothWays('google-sheet');
  t.after(() => ways.close());
  const readAndWrite = async (way: Way) => {
    const { spreadsheetId: spreadsheet } = (await ways.trellis.control('POST', 'spreadsheets', {
      account: 'ada@example.com',
      title: 'Book',
      sheet: 'People',
      rows: [
        ['name', 'age'],
        ['Ann', 30],
        ['Bob', 40],
      ],
    })) as { spreadsheetId: string };
    const settings = JSON.stringify({ ...way, spreadsheet });
    const running = run(python, [join(import.meta.dirname, 'gspread-program.py')]);
    running.child.stdin?.end(settings);
    const { stdout } = await running;
    return comparable(JSON.parse(stdout), [spreadsheet]) as unknown[];
  };
  const straight = await readAndWrite(ways.straight);
  assert.deepEqual(await readAndWrite(ways.proxied), straight);
  assert.deepEqual(straight[1], [
    { name: 'Ann', age: 30 },
    { name: 'Bob', age: 40 },
  ]);
});
