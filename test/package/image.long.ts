// The image without a container engine: what the Dockerfile copies and says, run with a read-only root as the user it names.
// The system below it is this machine's, or that of IMAGE_SYSTEM, a directory with the packages that the Dockerfile installs.

import assert from 'node:assert/strict';
import { type ExecFileException, execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { copyFile, mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { scanDirectory } from '../../scripts/scan-secrets.ts';
import { surroundings } from '../support/command.ts';
import { startRunningService } from '../support/service.ts';

const root = join(import.meta.dirname, '../..');
const run = promisify(execFile);
const system = process.env.IMAGE_SYSTEM ?? '/';

let home: string;
let tree: string;
let image: Image;

before(async () => {
  home = await mkdtemp(join(tmpdir(), 'trellis-image-'));
  tree = join(home, 'tree');
  await run(process.execPath, [join(root, 'scripts/image.ts'), tree], { env: process.env });
  // The Dockerfile copies it from the official image, which has the same program.
  await copyFile(process.execPath, join(tree, 'opt/trellis/bin/node'));
  image = readImage(await readFile(join(root, 'Dockerfile'), 'utf8'));
  const [uid, gid] = image.user.split(':');
  await writeFile(join(home, 'passwd'), `trellis:x:${uid}:${gid}::/data:/usr/sbin/nologin\n`);
  const size = (await run('du', ['-sk', tree])).stdout;
  console.log(`# beside its system: ${Math.round(Number.parseInt(size, 10) / 1024)} MB`);
});
after(() => rm(home, { recursive: true, force: true }));

type Image = {
  env: Record<string, string>;
  user: string;
  workdir: string;
  entrypoint: string[];
  command: string[];
  healthcheck: string[];
  stopSignal: string;
};

/** What the last stage of a Dockerfile says of how it is run. */
function readImage(text: string): Image {
  const stage = text.slice(text.lastIndexOf('\nFROM ')).replaceAll(/\\\n\s*/g, '');
  const said = (name: string) => new RegExp(`^${name} (.+)$`, 'm').exec(stage)?.[1] ?? '';
  const list = (name: string) => JSON.parse(said(name)) as string[];
  const env = said('ENV')
    .split(' ')
    .map((pair) => pair.split(/=(.*)/s).slice(0, 2) as [string, string]);
  return {
    env: Object.fromEntries(env),
    user: said('USER'),
    workdir: said('WORKDIR'),
    entrypoint: list('ENTRYPOINT'),
    command: list('CMD'),
    healthcheck: JSON.parse(/^HEALTHCHECK .*CMD (\[.*\])$/m.exec(stage)?.[1] ?? '[]') as string[],
    stopSignal: said('STOPSIGNAL'),
  };
}

/** A container of it, whose /data is this directory. `docker run` differs in that it has a network of its own. */
function contained(data: string, env: Record<string, string> = {}): string[] {
  const [uid = '', gid = ''] = image.user.split(':');
  const bind = (option: string, from: string, to = from) => [option, from, to];
  return [
    'bwrap',
    '--unshare-user',
    '--unshare-pid',
    '--as-pid-1',
    '--uid',
    uid,
    '--gid',
    gid,
    '--cap-drop',
    'ALL',
    // A read-only system allows no new mount points, so its parts are bound one by one.
    ...bind('--ro-bind', join(system, 'usr'), '/usr'),
    ...['bin', 'sbin', 'lib', 'lib64'].flatMap((name) => ['--symlink', `usr/${name}`, `/${name}`]),
    ...bind('--ro-bind', join(system, 'etc'), '/etc'),
    ...bind('--ro-bind', join(home, 'passwd'), '/etc/passwd'),
    // As an engine gives them; no mount point can be made for one that the system lacks.
    ...['/etc/hosts', '/etc/resolv.conf']
      .filter((path) => existsSync(join(system, path)))
      .flatMap((path) => bind('--ro-bind', path)),
    ...bind('--ro-bind', join(tree, 'opt/trellis'), '/opt/trellis'),
    ...bind('--bind', data, '/data'),
    ...bind('--bind', tmpdir()),
    '--proc',
    '/proc',
    '--dev',
    '/dev',
    '--remount-ro',
    '/',
    '--clearenv',
    ...Object.entries({ ...image.env, ...env }).flatMap((pair) => ['--setenv', ...pair]),
    '--chdir',
    image.workdir,
    '--',
  ];
}

/** A system that is not the image's has no tini. */
const entrypoint = () =>
  existsSync(join(system, 'usr/bin/tini'))
    ? image.entrypoint
    : image.entrypoint.slice(image.entrypoint.indexOf('--') + 1);

function runIn([file, ...words]: string[]): Promise<{ code: unknown; stdout: string; stderr: string }> {
  return new Promise((resolve) => {
    execFile(file!, words, { env: surroundings }, (error: ExecFileException | null, stdout, stderr) => {
      resolve({ code: error === null ? 0 : error.code, stdout, stderr });
    });
  });
}

async function freshData(): Promise<string> {
  const data = await mkdtemp(join(home, 'data-'));
  await mkdir(data, { recursive: true, mode: 0o700 });
  return data;
}

test('it holds no secret, no npm and nothing that is set aside for development', async () => {
  const at = join(tree, 'opt/trellis');
  assert.deepEqual(scanDirectory(at), []);
  for (const path of ['node_modules/npm', 'node_modules/typescript', 'node_modules/vite', 'test', 'web/api'])
    assert.equal(existsSync(join(at, path)), false, path);
  // The program `trellis` needs both, and each user must be able to run them.
  for (const path of ['bin/trellis', 'bin/node'])
    assert.equal((await stat(join(at, path))).mode & 0o555, 0o555, path);
});

test('it starts as the Dockerfile says, is healthy, writes to /data alone, and stops at its signal', async () => {
  assert.deepEqual(image.command, ['start']);
  assert.equal(image.stopSignal, 'SIGTERM');
  const data = await freshData();
  const service = await startRunningService({
    dataDir: data,
    program: [...contained(data, { PORT: '0', LOG_LEVEL: 'trace' }), ...entrypoint()],
  });
  try {
    assert.equal(service.sandboxUrl, '', 'it is off in production');
    assert.equal((await fetch(`${service.baseUrl}/ready`)).status, 200);
    assert.equal((await fetch(`${service.baseUrl}/`)).status, 200);
    // The process of functions starts too: describing them needs it.
    const { data: shipped } = (await service.call('GET', '/functions/shipped?provider=google-sheet')) as {
      data: unknown[];
    };
    assert.ok(shipped.length > 3);
    const { port } = new URL(service.baseUrl);
    const health = (at: string) => runIn([...contained(data, { PORT: at }), ...image.healthcheck]);
    assert.equal((await health(port)).code, 0);
    assert.equal((await health('1')).code, 1);
    for (const path of ['/x', '/opt/trellis/x', '/etc/x', '/usr/x']) {
      const { code, stderr } = await runIn([...contained(data), 'touch', path]);
      assert.equal(code, 1);
      assert.match(stderr, /Read-only file system|Permission denied/, path);
    }
    const { stdout: brought } = await runIn([...contained(data), 'sh', '-c', 'command -v npm npx']);
    // A system that is not the image's may have one of its own.
    assert.deepEqual(
      brought.split('\n').filter((path) => path !== '' && (system !== '/' || path.startsWith('/opt/'))),
      [],
    );
  } finally {
    assert.equal(await service.stop(), 0);
  }
  const again = await startRunningService({
    dataDir: data,
    program: [...contained(data, { PORT: '0' }), ...entrypoint()],
  });
  assert.equal(await again.stop(), 0);
});

test('it does the main job', async () => {
  const data = await freshData();
  // The tour makes a data directory of its own below that for temporary files, and says so by a variable.
  const { DATA_DIR: _, ...env } = image.env;
  image = { ...image, env };
  const here = { HOST: '127.0.0.1', NODE_ENV: 'development', PORT: '0' };
  const words = contained(data, here).filter((word) => word !== '--clearenv');
  const { code, stdout, stderr } = await runIn([
    process.execPath,
    join(root, 'scripts/tour.ts'),
    ...words,
    ...entrypoint(),
  ]);
  assert.equal(code, 0, `${stdout}\n${stderr}`);
  assert.match(stdout, /All as promised/);
});
