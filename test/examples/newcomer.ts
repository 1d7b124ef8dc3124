// Somebody with a clone, who goes by the README of an example. What is run are the commands that stand there.

import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmod, cp, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { makeClientPackage } from '../../scripts/client-package.ts';
import type { Db } from '../../server/db/pool.ts';
import { root } from '../docs/blocks.ts';
import { surroundings } from '../support/command.ts';
import { openTestDatabase, urlOf } from '../support/database.ts';
import { type RunningService, startRunningService } from '../support/service.ts';
import { haveWebPages } from '../support/web-pages.ts';
import { type Example, killTerminal, readmeOf, type Terminal, terminalOf } from './terminal.ts';

export type Newcomer = {
  service: RunningService;
  /** That of the service. */
  db: Db;
  /** Where the clone is. */
  clone: string;
  /** Types the commands of a README's block into a terminal of its own, in the clone. */
  type(commands: string, env?: Record<string, string>): Terminal;
  /** Goes where a connect link leads, and allows what is asked. */
  follow(link: string): Promise<void>;
  close(): Promise<void>;
};
/** The first block starts the service: this says with which settings. */
function startSettings(example: Example): Record<string, string> {
  const [start = ''] = readmeOf(example).commands;
  const [, settings] = /^npm ci && ((?:[A-Z_]+=\S+ )*)npm start\n$/.exec(start) ?? [];
  assert.ok(settings !== undefined, `${start} starts the service`);
  return Object.fromEntries(settings.split(' ').flatMap((one) => (one ? [one.split('=')] : [])));
}

export async function openNewcomer(): Promise<Newcomer> {
  const { db, target, drop } = await openTestDatabase();
  await haveWebPages();
  const home = await mkdtemp(join(tmpdir(), 'trellis-examples-'));
  const clone = join(home, 'clone');
  const [service] = await Promise.all([
    startRunningService({
      env: {
        DATABASE_URL: urlOf(target),
        TRELLIS_ENCRYPTION_KEYS: `k1:${randomBytes(32).toString('base64')}`,
        ...startSettings('script'),
        ...startSettings('app'),
      },
    }),
    prepareClone(home, clone),
  ]);
  await symlink(service.dataDir, join(clone, '.trellis'));
  const terminals: ChildProcess[] = [];

  return {
    service,
    db,
    clone,
    type(commands, env = {}) {
      const text = commands
        .replaceAll('http://localhost:3003', service.baseUrl)
        .replaceAll('http://localhost:3004', service.sandboxUrl);
      const child = spawn('bash', ['--noprofile', '--norc', '-e', '-c', text], {
        cwd: clone,
        env: {
          ...surroundings,
          PATH: `${join(home, 'bin')}:${process.env.PATH}`,
          TRELLIS_URL: service.baseUrl,
          PORT: '0',
          ...env,
        },
        stdio: ['ignore', 'pipe', 'pipe'],
        // Ctrl-C goes to all that a terminal runs.
        detached: true,
      });
      terminals.push(child);
      return terminalOf(child);
    },
    async follow(link) {
      const token = new URL(link).searchParams.get('session_token');
      const begin = `${service.baseUrl}/oauth/connect/google-sheet?connect_session_token=${token}`;
      const begun = await fetch(begin, { redirect: 'manual' });
      const cookies = begun.headers.getSetCookie().map((line) => line.split(';', 1)[0]);
      const asked = { url: begun.headers.get('location'), account: 'ada@example.com' };
      const { redirect } = (await service.sandbox('POST', 'authorize', asked)) as { redirect: string };
      const landed = await fetch(redirect, { headers: { cookie: cookies.join('; ') } });
      assert.equal(landed.status, 200, await landed.text());
    },
    async close() {
      for (const child of terminals) if (child.exitCode === null) killTerminal(child, 'SIGKILL');
      await service.stop();
      await rm(home, { recursive: true, force: true });
      await drop();
    },
  };
}

/** With the client made, and an npm that installs out of the clone's own packages: tests have no network. */
async function prepareClone(home: string, clone: string): Promise<void> {
  await mkdir(join(home, 'bin'));
  await mkdir(clone);
  const npm = join(home, 'bin/npm');
  const isOwn = (path: string) => !/\/(node_modules|data)$/.test(path);
  await Promise.all([
    cp(join(root, 'examples'), join(clone, 'examples'), { recursive: true, filter: isOwn }),
    symlink(join(root, 'node_modules'), join(clone, 'node_modules')),
    makeClientPackage(join(clone, 'dist.client')),
    writeFile(npm, `#!/bin/sh\nexec '${process.execPath}' '${join(import.meta.dirname, 'npm.ts')}' "$@"\n`),
  ]);
  await chmod(npm, 0o755);
}
