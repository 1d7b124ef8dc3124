import { randomBytes } from 'node:crypto';
import { chmod, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { surroundings } from '../support/command.ts';
import { openTestDatabase, urlOf } from '../support/database.ts';
import { startRunningService } from '../support/service.ts';
import type { Answer, TestTrellis } from '../support/trellis.ts';
import { root } from './blocks.ts';
import { openShell } from './shell.ts';

/** A running service with a connected account, for the commands of the pages. */
export type Reader = {
  service: Pick<TestTrellis, 'call'>;
  /** A terminal for one page. */
  sitDown(page: string): Promise<Terminal>;
  /** Throws unless PostgreSQL can parse the statement. Changes nothing. */
  explain(sql: string): Promise<void>;
  close(): Promise<void>;
};

type Terminal = {
  /** Runs the commands of a block, and follows the connect links of their output. */
  type(commands: string): Promise<{ output: string; code: number }>;
  /** Runs JavaScript of a page, which may use the names that the page has introduced. */
  execute(code: string): Promise<{ output: string; code: number }>;
  /** Writes a module to the path of the first function of docs/guides/functions.md. */
  save(module: string): Promise<void>;
  close(): Promise<void>;
};

const email = 'ada@example.com';
const json = { 'content-type': 'application/json' };

export async function openReader(): Promise<Reader> {
  const { db, target, drop } = await openTestDatabase();
  const settings = {
    DATABASE_URL: urlOf(target),
    TRELLIS_ENCRYPTION_KEYS: `k1:${randomBytes(32).toString('base64')}`,
  };
  const service = await startRunningService({ env: settings });
  const { baseUrl, sandboxUrl, dataDir, secretKey } = service;
  const home = await mkdtemp(join(tmpdir(), 'trellis-docs-'));
  await prepareHome(home, dataDir);
  const world = await prepareWorld();
  const env = {
    ...surroundings,
    ...settings,
    PATH: `${join(home, 'bin')}:${process.env.PATH}`,
    DATA_DIR: dataDir,
    TRELLIS_URL: baseUrl,
    SANDBOX: sandboxUrl,
    TRELLIS_SECRET_KEY: secretKey,
    ...world,
  };

  async function prepareWorld(): Promise<Record<string, string>> {
    await service.call('POST', '/integrations/quickstart', {
      body: { provider: 'google-sheet', unique_key: 'google-sheet' },
    });
    await service.sandbox('POST', 'accounts', { email, name: 'Ada' });
    const csv = 'code,city\n7,Oslo\n8,Rome\n9,Bonn';
    const sheet = { account: email, title: 'Cities', sheet: 'cities', csv };
    const { spreadsheetId } = (await service.sandbox('POST', 'spreadsheets', sheet)) as {
      spreadsheetId: string;
    };
    await follow(await newSession());
    const { connections } = (await service.call('GET', '/connections')) as {
      connections: { connection_id: string }[];
    };
    return { SHEET: spreadsheetId, CONN: connections[0]!.connection_id };
  }

  async function newSession(): Promise<string> {
    const made = await service.call('POST', '/connect/sessions', {
      body: { end_user: { id: 'ada' }, allowed_integrations: ['google-sheet'] },
    });
    return (made as { data: { token: string } }).data.token;
  }

  /** Follows a session to the provider, and consents. */
  async function follow(token: string): Promise<void> {
    const begun = await fetch(`${baseUrl}/oauth/connect/google-sheet?connect_session_token=${token}`, {
      redirect: 'manual',
    });
    const cookie = begun.headers
      .getSetCookie()
      .map((line) => line.split(';', 1)[0])
      .join('; ');
    const { redirect } = (await service.sandbox('POST', 'authorize', {
      url: begun.headers.get('location'),
      account: email,
    })) as { redirect: string };
    const landed = await fetch(redirect, { headers: { cookie } });
    if (!landed.ok) throw new Error(`callback: ${landed.status} ${await landed.text()}`);
  }

  return {
    service: {
      call: async (method, path) => readAnswer(await fetch(baseUrl + path, { method, headers: json })),
    },
    async sitDown(page) {
      const cwd = join(home, page.replaceAll('/', '-'));
      await mkdir(cwd);
      await symlink(dataDir, join(cwd, '.trellis'));
      const shell = openShell({ cwd, env: { ...env, TOKEN: await newSession() } });
      let seen = '';
      return {
        async close() {
          await shell.close();
          await tidyUp();
        },
        async execute(code) {
          await writeFile(join(cwd, 'page.mjs'), code);
          const ticket = /"ticket" ?: ?"([^"]+)"/.exec(seen)?.[1] ?? '';
          const before = `'${join(import.meta.dirname, 'page-names.ts')}'`;
          return shell.run(`TICKET='${ticket}' '${process.execPath}' --import ${before} page.mjs`);
        },
        async save(module) {
          const folder = join(cwd, 'functions/google-sheet/syncs');
          await mkdir(folder, { recursive: true });
          await writeFile(join(folder, 'rows.ts'), module);
        },
        async type(commands) {
          const all = { output: '', code: 0 };
          // `<the field>` stands for a value of the previous output.
          for (const part of commands.split(/^(?=.*<the \w+>)/m)) {
            const { output, code } = await shell.run(asReaderTypes(part, seen));
            seen += `\n${output}`;
            all.output += `${output}\n`;
            all.code = all.code || code;
            for (const [, token] of output.matchAll(/session_token=([\w-]+)/g)) await follow(token!);
          }
          return all;
        },
      };
    },
    async explain(sql) {
      await db.query(`do $check$ begin return; ${sql} end $check$`);
    },
    async close() {
      await service.stop();
      await rm(home, { recursive: true, force: true });
      await drop();
    },
  };

  /** Restores the state for the next page: no functions, no rules, and a working connection. */
  async function tidyUp(): Promise<void> {
    const health = `/connections/${world.CONN}/health?provider_config_key=google-sheet`;
    if (((await service.call('GET', health)) as { status: string }).status !== 'active') await reconnect();
    const { data } = (await service.call('GET', '/functions?limit=100')) as {
      data: { name: string; type: string; provider_config_key: string }[];
    };
    for (const { name, type, provider_config_key: key } of data)
      await service.call('DELETE', `/integrations/${key}/functions/${name}?type=${type}`);
    await service.call('PATCH', '/integrations/google-sheet', { body: { proxy_rules: [] } });
  }

  async function reconnect(): Promise<void> {
    const { data } = (await service.call('POST', '/connect/sessions/reconnect', {
      body: { integration_id: 'google-sheet', connection_id: world.CONN },
    })) as { data: { token: string } };
    await follow(data.token);
  }

  /** Replaces the addresses of a page by those of this service, and `<the field>` and cursors by values of the output. */
  function asReaderTypes(commands: string, seen: string): string {
    const last = (field: string) => seen.match(new RegExp(`(?<="${field}" ?: ?")[^"]+`, 'g'))?.at(-1) ?? '';
    const first = (field: string) => seen.match(new RegExp(`(?<="${field}" ?: ?")[^"]+`))?.[0] ?? '';
    return commands
      .replaceAll(/https?:\/\/(localhost:3003|trellis\.example\.com)/g, baseUrl)
      .replaceAll('http://localhost:3004', sandboxUrl)
      .replaceAll('node_modules/.bin/node server/cli/main.ts', 'trellis')
      .replaceAll('npx trellis', 'trellis')
      .replaceAll(/<the (\w+)>/g, (_, field: string) => {
        if (field === 'connection_id') return first(field);
        // Tables of the command line begin with the id.
        return field === 'id' ? (seen.match(/^\d+(?=\t)/gm)?.at(-1) ?? '') : last(field);
      })
      .replaceAll(/\bAQ[A-Z]AAA[\w-]*(\.\.\.)?/g, () => last('cursor') || last('next_cursor'));
  }
}

async function prepareHome(home: string, dataDir: string): Promise<void> {
  const bin = join(home, 'bin');
  await mkdir(bin);
  const programs = {
    trellis: `exec '${process.execPath}' '${join(root, 'server/cli/main.ts')}' "$@"`,
    // An endless stream is read for three seconds.
    curl: `command -p curl --max-time 3 "$@"; code=$?; [ $code = 28 ] && exit 0; exit $code`,
  };
  for (const [name, text] of Object.entries(programs)) {
    await writeFile(join(bin, name), `#!/bin/sh\n${text}\n`);
    await chmod(join(bin, name), 0o755);
  }
  await symlink(dataDir, join(home, '.trellis'));
  await symlink(join(root, 'node_modules'), join(home, 'node_modules'));
}

async function readAnswer(response: Response): Promise<Answer> {
  const text = await response.text();
  const { status, headers } = response;
  return { status, headers, text, body: JSON.parse(text) as Record<string, unknown> };
}
