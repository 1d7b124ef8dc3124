import { existsSync } from 'node:fs';
import { UsageError } from '../../sdk/cli/arguments.ts';
import { commandLine } from '../activity/audit.ts';
import { type Config, loadConfigWithoutKeys } from '../config/config.ts';
import { devKeyPath, readDevKey, writeDevKey } from '../data-dir.ts';
import { keyToWire } from '../environments/key-routes.ts';
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
import { type JsonOption, oneLine, printJson } from './terminal.ts';

type InEnvironment = { environment: string };
type CreateOptions = InEnvironment & {
  name: string;
  scopes: string;
  proxyAllow?: string[] | undefined;
  proxyDeny?: string[] | undefined;
  expiresAt?: string | undefined;
  rateLimit?: string | undefined;
  replaces?: string | undefined;
};

/** `trellis key create`: makes a secret key, also while the service runs, and prints it once. */
export async function createKeyCommand(options: CreateOptions): Promise<number> {
  const given = newKey.safeParse({
    name: options.name,
    scopes: options.scopes.split(',').map((scope) => scope.trim()),
    proxy_rules: [...readRules('allow', options.proxyAllow), ...readRules('deny', options.proxyDeny)],
    expires_at: options.expiresAt,
    ...(options.rateLimit !== undefined && { rate_limit: Number(options.rateLimit) }),
    ...(options.replaces !== undefined && { replaces: Number(options.replaces) }),
  });
  if (!given.success)
    throw new UsageError(given.error.issues.map((issue) => messageOf(issue, options)).join('\n'));
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
    throw new UsageError(`--expires-at "${expires_at}" is not a time in the future.`);
  const config = loadConfigWithoutKeys();
  const secret = await withDatabase(config, (db) =>
    db.transaction(async (tx) => {
      const environment = await getEnvironment(tx, options.environment);
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
  if (options.environment === 'dev' && isWhole) await fillDevKey(config, secret);
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
  const field = String(path[0]);
  const name = field.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());
  const given = new Map(Object.entries(options)).get(name);
  return given === undefined ? message : `--${field.replaceAll('_', '-')} "${given}": ${message}`;
}

/** `trellis key list`: a line for each key that was not revoked, tabs between the columns. */
export async function listKeysCommand({ environment, json }: InEnvironment & JsonOption): Promise<number> {
  return withDatabase(loadConfigWithoutKeys(), async (db) => {
    const keys = await listKeys(db, (await getEnvironment(db, environment)).id);
    if (json) {
      printJson(keys.map(keyToWire));
      return 0;
    }
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
    for (const key of keys) console.log(lineOf(key));
    return 0;
  });
}

/**
 * `trellis key revoke <id>`: running nodes reject the key and its tickets within a second. A restored database rejects it
 * if its file of keys was written afterwards.
 */
export async function revokeKeyCommand(given: string, options: InEnvironment): Promise<number> {
  if (!/^[1-9]\d{0,14}$/.test(given))
    throw new UsageError(`"${given}" is not the ID of a key; "trellis key list" lists the IDs.`);
  const id = Number(given);
  return withDatabase(loadConfigWithoutKeys(), async (db) => {
    const { name } = await db.transaction(async (tx) => {
      const environment = await getEnvironment(tx, options.environment);
      const revoked = await revokeKey(tx, { id, environmentId: environment.id, at: new Date() });
      if (revoked === undefined) throw new Error(`${options.environment} has no key ${id}.`);
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

function readRules(effect: ProxyRule['effect'], texts: readonly string[] = []): ProxyRule[] {
  return texts.map((text) => {
    const rule = readProxyRule(effect, text);
    if (rule !== undefined) return rule;
    throw new UsageError(`--proxy-${effect} "${text}" is not a rule such as "GET,POST /v4/spreadsheets/**".`);
  });
}
