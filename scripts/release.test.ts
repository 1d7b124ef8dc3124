// Slow: it compiles, copies and packs the packages.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';

const root = join(import.meta.dirname, '..');
const run = promisify(execFile);

test('a dry run makes all files of a release without network, and only prints what would publish them', async (t) => {
  const home = await mkdtemp(join(tmpdir(), 'trellis-release-'));
  t.after(() => rm(home, { recursive: true }));
  const made = join(home, 'release');
  const env = { ...process.env, npm_config_offline: 'true', GITHUB_REPOSITORY: 'example/trellis' };
  const script = [join(root, 'scripts/release.ts'), '--dry-run', made];
  const { stdout } = await run(process.execPath, script, { cwd: home, env });
  assert.deepEqual((await readdir(made)).map((file) => file.replace(/-\d+\.\d+\.\d+/, '')).sort(), [
    'SHA256SUMS',
    'notes.md',
    'sbom.cdx.json',
    'trellis-chart.tgz',
    'trellis-run-client.tgz',
    'trellis-run-trellis.tgz',
  ]);
  await run('sha256sum', ['--check', '--strict', 'SHA256SUMS'], { cwd: made });
  const commands = [...stdout.matchAll(/^\$ (\w+)/gm)].map(([, program]) => program);
  assert.deepEqual(commands, ['cosign', 'npm', 'npm', 'docker', 'helm', 'gh']);

  const contentsOf = async (part: string) => {
    const file = (await readdir(made)).find((name) => name.includes(part))!;
    const list = async (...args: string[]) =>
      (await run('tar', [...args, join(made, file)], { maxBuffer: 1e8 })).stdout;
    const manifest = async () =>
      JSON.parse((await run('tar', ['-xOzf', join(made, file), 'package/package.json'])).stdout) as Record<
        string,
        unknown
      >;
    return { paths: (await list('-tzf')).trim().split('\n'), manifest };
  };
  const chart = await contentsOf('chart');
  assert.ok(chart.paths.includes('trellis/Chart.yaml') && chart.paths.includes('trellis/values.schema.json'));

  const repository = { type: 'git', url: 'git+https://github.com/example/trellis.git' };
  for (const name of ['trellis', 'client']) {
    const { paths, manifest } = await contentsOf(`trellis-run-${name}`);
    for (const file of ['README.md', 'LICENSE']) assert.ok(paths.includes(`package/${file}`), file);
    const { publishConfig, ...said } = await manifest();
    assert.deepEqual(publishConfig, { access: 'public', provenance: true });
    assert.deepEqual([said.name, said.repository], [`@trellis-run/${name}`, repository]);
    for (const field of ['description', 'license', 'engines', 'exports', 'types', 'files', 'bugs'])
      assert.ok(said[field], `${name}: ${field}`);
    assert.equal('private' in said, false);
  }

  const sbom = JSON.parse(await readFile(join(made, 'sbom.cdx.json'), 'utf8')) as {
    components: { name: string }[];
  };
  const components = sbom.components.map(({ name }) => name);
  assert.ok(components.includes('fastify') && !components.includes('vite'));
  assert.match(await readFile(join(made, 'notes.md'), 'utf8'), /^- /m);
});
