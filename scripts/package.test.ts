import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';

const run = promisify(execFile);

test('npm run pack runs, although npm runs prepack before it, and npm pack of a clone is refused', async (t) => {
  const manifest = JSON.parse(await readFile(join(import.meta.dirname, '../package.json'), 'utf8')) as {
    scripts: { prepack: string };
  };
  const folder = await mkdtemp(join(tmpdir(), 'trellis-pack-'));
  t.after(() => rm(folder, { recursive: true }));
  const scripts = { pack: 'echo the package is made', prepack: manifest.scripts.prepack };
  await writeFile(join(folder, 'package.json'), JSON.stringify({ name: 'clone', version: '1.0.0', scripts }));
  const { stdout } = await run('npm', ['run', 'pack'], { cwd: folder });
  assert.match(stdout, /the package is made/);
  await assert.rejects(run('npm', ['pack', '--dry-run'], { cwd: folder }), /Use npm run pack/);
});
