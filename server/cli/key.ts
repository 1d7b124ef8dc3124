import { existsSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { commandLine } from '../activity/audit.ts';
import { type Config, loadConfigWithoutKeys } from '../config/config.ts';
import { devKeyPath, readDevKey, writeDevKey } from '../data-dir.ts';
import {
  auditKey,
  createKey,
  type Key,
  listKeys,
  newKey,
  readExpiry,
  requireReplaceable,
  revokeKey,
} from '../environments/keys.ts';
import { getEnvironment } from '../environments/store.ts';
import { AppError } from '../errors.ts';
import { type ProxyRule, proxyRuleText, readProxyRule } from '../http/auth/proxy-rule.ts';
import { withDatabase } from './database.ts';
import { oneLine, text } from './terminal.ts';

const ofEnvironment = { environment: { ...text, default: 'dev' } } as const;
const rules = { ...text, multiple: true, default: [] as string[] } as const;

/** `trellis key ...`, by the second word. */
export const keyCommands = new Map([
  ['create', createKeyCommand],
  ['list', listKeysCommand],
  ['revoke', revokeKeyCommand],
]);

/** `trellis key create`: makes a secret key, also while the service runs, and prints it once. */
async function createKeyCommand(args: string[]): Promise<number> {
  const { values } = parseArgs({
    args,
    options: {
      ...ofEnvironment,
      name: { ...text, default: commandLine },
      scopes: { ...text, default: '*' },
      ...{ 'expires-at': text, 'rate-limit': text, replaces: text },
      ...{ 'proxy-allow': rules, 'proxy-deny': rules },
    },
  });
  const given = newKey.safeParse({
    name: values.name,
    scopes: values.scopes.split(',').map((scope) => scope.trim()),
    proxy_rules: [...readRules('allow', values['proxy-allow']), ...readRules('deny', values['proxy-deny'])],
    expires_at: values['expires-at'],
    ...(values['rate-limit'] !== undefined && { rate_limit: Number(values['rate-limit']) }),
    ...(values.replaces !== undefined && { replaces: Number(values.replaces) }),
  });
  if (!given.success) throw new Error(given.error.issues.map((issue) => messageOf(issue, values)).join('\n'));
  const {
    name,
    scopes,
    proxy_rules: proxyRules = [],
    expires_at,
    rate_limit: rateLimit,
    replaces,
  } = given.data;
  const expiresAt = expires_at === undefined ? undefined : readExpiry(expires_at, new Date());
  if (expires_at !== undefined && expiresAt === undefined)
    throw new Error(`--expires-at "${expires_at}" is not a time in the future.`);
  const config = loadConfigWithoutKeys();
  const secret = await withDatabase(config, (db) =>
    db.transaction(async (tx) => {
      const environment = await getEnvironment(tx, values.environment);
      const environmentId = environment.id;
      const firstKeyId =
        replaces && (await firstKeyOf(tx, { environmentId, replaces, scopes, now: new Date() }));
      const wanted = { name, scopes, proxyRules, expiresAt, rateLimit, firstKeyId };
      const created = await createKey(tx, { environment, ...wanted });
      await auditKey(tx, {
        environmentId,
        actor: commandLine,
        action: 'key.created',
        key: created.key,
        replaces,
      });
      return created.secret;
    }),
  );
  console.log(secret);
  const isWhole =
    scopes.includes('*') && proxyRules.length === 0 && expiresAt === undefined && rateLimit === undefined;
  if (values.environment === 'dev' && isWhole) await fillDevKey(config, secret);
  return 0;
}

/** Writes `dev.key` if DATA_DIR is on this machine and has none. A failure does not affect the key. */
async function fillDevKey({ dataDir }: Config, secret: string): Promise<void> {
  if (!existsSync(dataDir)) return;
  const path = devKeyPath(dataDir);
  try {
    if ((await readDevKey(dataDir)) !== undefined) return;
    await writeDevKey(dataDir, secret);
    console.error(`also written to ${path}`);
  } catch (error) {
    console.error(`not written to ${path}: ${(error as Error).message}`);
  }
}

/** As `requireReplaceable`, with a message for the command line. */
async function firstKeyOf(...given: Parameters<typeof requireReplaceable>): Promise<number> {
  return requireReplaceable(...given).catch((error: unknown) => {
    const issue = error instanceof AppError ? error.errors?.[0] : undefined;
    throw issue === undefined ? error : new Error(`--replaces ${given[1].replaces}: ${issue.message}`);
  });
}

/** Names the option of a field that is not valid. */
function messageOf({ path, message }: { path: PropertyKey[]; message: string }, options: object): string {
  const name = String(path[0]).replaceAll('_', '-');
  const given = new Map(Object.entries(options)).get(name);
  return given === undefined ? message : `--${name} "${given}": ${message}`;
}

/** `trellis key list`: a line for each key that was not revoked, tabs between the columns. */
async function listKeysCommand(args: string[]): Promise<number> {
  const { values } = parseArgs({ args, options: ofEnvironment });
  return withDatabase(loadConfigWithoutKeys(), async (db) => {
    const { id } = await getEnvironment(db, values.environment);
    const columns = [
      'id',
      'name',
      'ends with',
      'scopes',
      'rules',
      'created',
      'expires',
      'last used',
      'per minute',
    ];
    console.log(columns.join('\t'));
    for (const key of await listKeys(db, id)) console.log(lineOf(key));
    return 0;
  });
}

/**
 * `trellis key revoke <id>`: running nodes reject the key and its tickets within a second. A restored database rejects it
 * if its file of keys was written afterwards.
 */
async function revokeKeyCommand(args: string[]): Promise<number> {
  const { values, positionals } = parseArgs({ args, options: ofEnvironment, allowPositionals: true });
  const [given = ''] = positionals;
  if (!/^[1-9]\d{0,14}$/.test(given) || positionals.length !== 1)
    throw new Error('The command is: key revoke <id> [--environment dev]. "trellis key list" lists the IDs.');
  const id = Number(given);
  return withDatabase(loadConfigWithoutKeys(), async (db) => {
    const { name } = await db.transaction(async (tx) => {
      const environment = await getEnvironment(tx, values.environment);
      const revoked = await revokeKey(tx, { id, environmentId: environment.id, at: new Date() });
      if (revoked === undefined) throw new Error(`${values.environment} has no key ${id}.`);
      await auditKey(tx, {
        environmentId: environment.id,
        actor: commandLine,
        action: 'key.revoked',
        key: revoked,
      });
      return revoked;
    });
    console.log(`revoked ${id} (${oneLine(name)})`);
    console.log(
      'older files of keys still contain it: write a new one with "trellis keys export FILE"; otherwise a restored backup accepts the key again',
    );
    return 0;
  });
}

function lineOf(key: Key): string {
  const rules = key.proxyRules.map(proxyRuleText).join('; ');
  const times = [key.createdAt, key.expiresAt, key.lastUsedAt].map((at) => at?.toISOString() ?? '-');
  return [
    key.id,
    oneLine(key.name),
    key.hint,
    key.scopes.join(','),
    rules || '-',
    ...times,
    key.rateLimit ?? '-',
  ].join('\t');
}

function readRules(effect: ProxyRule['effect'], texts: readonly string[]): ProxyRule[] {
  return texts.map((text) => {
    const rule = readProxyRule(effect, text);
    if (rule !== undefined) return rule;
    throw new Error(`--proxy-${effect} "${text}" is not a rule such as "GET,POST /v4/spreadsheets/**".`);
  });
}
