import { parseArgs } from 'node:util';
import { writeAudit } from '../activity/audit.ts';
import { type Config, ConfigError, loadConfig } from '../config.ts';
import { devKeyPath, readDevKey, writeDevKey } from '../data-dir.ts';
import { type Db, openDb } from '../db/pool.ts';
import { createKey, type Key, keyDetails, listKeys, revokeKey } from '../environments/keys.ts';
import { getEnvironment } from '../environments/store.ts';
import { scopes } from '../http/caller.ts';
import { type ProxyRule, proxyRuleText, readProxyRule } from '../http/proxy-rule.ts';
import { reachDatabase } from './reach-database.ts';

const ofEnvironment = { environment: { type: 'string', default: 'dev' } } as const;

/** `trellis key create`: makes a secret key, also while the service runs, and prints it once. */
export async function createKeyCommand(args: string[]): Promise<number> {
  const { values } = parseArgs({
    args,
    options: {
      ...ofEnvironment,
      name: { type: 'string', default: 'command line' },
      scopes: { type: 'string', default: '*' },
      'expires-at': { type: 'string' },
      'proxy-allow': { type: 'string', multiple: true, default: [] },
      'proxy-deny': { type: 'string', multiple: true, default: [] },
    },
  });
  const wanted = values.scopes.split(',').map((scope) => scope.trim());
  const unknown = wanted.filter((scope) => scope !== '*' && !scopes.some((known) => known === scope));
  if (unknown.length > 0) {
    throw new ConfigError([`--scopes: ${unknown.join(', ')} is none of *, ${scopes.join(', ')}`]);
  }
  const expiresAt = values['expires-at'] === undefined ? undefined : readExpiry(values['expires-at']);
  const proxyRules = [
    ...readRules('allow', values['proxy-allow']),
    ...readRules('deny', values['proxy-deny']),
  ];
  return withDatabase(async (db, config) => {
    const secret = await db.transaction(async (tx) => {
      const environment = await getEnvironment(tx, values.environment);
      const given = { environment, name: values.name, scopes: wanted, proxyRules, expiresAt };
      const created = await createKey(tx, given);
      await writeAudit(tx, {
        environmentId: environment.id,
        actor: 'command line',
        action: 'key.created',
        target: values.name,
        details: keyDetails(created.key),
      });
      return created.secret;
    });
    console.log(secret);
    const isForFile = values.environment === 'dev' && wanted.includes('*') && expiresAt === undefined;
    if (isForFile && (await readDevKey(config.dataDir)) === undefined) {
      await writeDevKey(config.dataDir, secret);
      console.error(`also written to ${devKeyPath(config.dataDir)}`);
    }
    return 0;
  });
}

/** `trellis key list`: a line for each key that was not revoked, tabs between the columns. */
export async function listKeysCommand(args: string[]): Promise<number> {
  const { values } = parseArgs({ args, options: ofEnvironment });
  return withDatabase(async (db) => {
    const { id } = await getEnvironment(db, values.environment);
    console.log(['id', 'name', 'ends with', 'scopes', 'rules', 'created', 'expires', 'last used'].join('\t'));
    for (const key of await listKeys(db, id)) console.log(lineOf(key));
    return 0;
  });
}

/** `trellis key revoke <id>`: nodes that run refuse the key and its tickets within a second. */
export async function revokeKeyCommand(args: string[]): Promise<number> {
  const { values, positionals } = parseArgs({ args, options: ofEnvironment, allowPositionals: true });
  const [given = ''] = positionals;
  if (!/^[1-9]\d{0,14}$/.test(given) || positionals.length !== 1)
    throw new ConfigError(['key revoke: name one key by its id, as key list tells it']);
  const id = Number(given);
  return withDatabase(async (db) => {
    await db.transaction(async (tx) => {
      const environment = await getEnvironment(tx, values.environment);
      const revoked = await revokeKey(tx, { id, environmentId: environment.id, at: new Date() });
      if (revoked === undefined) throw new ConfigError([`${values.environment} has no key ${id}`]);
      await writeAudit(tx, {
        environmentId: environment.id,
        actor: 'command line',
        action: 'key.revoked',
        target: revoked.name,
        details: keyDetails(revoked),
      });
      console.log(`revoked ${id} (${revoked.name})`);
    });
    return 0;
  });
}

function lineOf(key: Key): string {
  const rules = key.proxyRules.map(proxyRuleText).join('; ');
  const times = [key.createdAt, key.expiresAt, key.lastUsedAt].map((at) => at?.toISOString() ?? '-');
  // A name may hold anything: nothing of it may look like another line, or move the cursor.
  const name = key.name.replace(/[\p{Cc}\p{Cf}]/gu, ' ');
  return [key.id, name, key.hint, key.scopes.join(','), rules || '-', ...times].join('\t');
}

function readExpiry(text: string): Date {
  const at = new Date(text);
  if (at.getTime() > Date.now()) return at;
  throw new ConfigError([`--expires-at: "${text}" is no time to come, such as 2030-01-31T12:00:00Z`]);
}

function readRules(effect: ProxyRule['effect'], texts: readonly string[]): ProxyRule[] {
  return texts.map((text) => {
    const rule = readProxyRule(effect, text);
    if (rule !== undefined) return rule;
    throw new ConfigError([
      `--proxy-${effect}: "${text}" is not a rule such as "GET,POST /v4/spreadsheets/**"`,
    ]);
  });
}

async function withDatabase(work: (db: Db, config: Config) => Promise<number>): Promise<number> {
  const config = loadConfig();
  const { target, stop } = await reachDatabase(config);
  const db = openDb(target, { maxConnections: 1 });
  try {
    return await work(db, config);
  } finally {
    await db.end();
    await stop();
  }
}
