import { parseArgs } from 'node:util';
import { writeAudit } from '../activity/audit.ts';
import { type Config, ConfigError, loadConfig } from '../config.ts';
import { devKeyPath, readDevKey, readMasterKeyFile, writeDevKey } from '../data-dir.ts';
import { findEmbedded, startEmbedded } from '../db/embedded.ts';
import { type DbTarget, openDb } from '../db/pool.ts';
import { createKey } from '../environments/keys.ts';
import { getEnvironment } from '../environments/store.ts';
import { scopes } from '../http/caller.ts';
import { type ProxyRule, proxyRuleText, readProxyRule } from '../http/proxy-rule.ts';

/** `trellis key create`: makes a secret key, also while the service runs, and prints it once. */
export async function createKeyCommand(args: string[]): Promise<number> {
  const { values } = parseArgs({
    args,
    options: {
      environment: { type: 'string', default: 'dev' },
      name: { type: 'string', default: 'command line' },
      scopes: { type: 'string', default: '*' },
      'proxy-allow': { type: 'string', multiple: true, default: [] },
      'proxy-deny': { type: 'string', multiple: true, default: [] },
    },
  });
  const wanted = values.scopes.split(',').map((scope) => scope.trim());
  const unknown = wanted.filter((scope) => scope !== '*' && !scopes.some((known) => known === scope));
  if (unknown.length > 0) {
    throw new ConfigError([`--scopes: ${unknown.join(', ')} is none of *, ${scopes.join(', ')}`]);
  }
  const proxyRules = [
    ...readRules('allow', values['proxy-allow']),
    ...readRules('deny', values['proxy-deny']),
  ];
  const config = loadConfig();
  const { target, stop } = await reachDatabase(config);
  const db = openDb(target, { maxConnections: 1 });
  try {
    const secret = await db.transaction(async (tx) => {
      const environment = await getEnvironment(tx, values.environment);
      const key = await createKey(tx, { environment, name: values.name, scopes: wanted, proxyRules });
      await writeAudit(tx, {
        environmentId: environment.id,
        actor: 'command line',
        action: 'key.created',
        target: values.name,
        details: {
          scopes: wanted.join(','),
          ...(proxyRules.length > 0 && { proxy_rules: proxyRules.map(proxyRuleText).join('; ') }),
        },
      });
      return key.secret;
    });
    console.log(secret);
    const isForFile = values.environment === 'dev' && wanted.includes('*');
    if (isForFile && (await readDevKey(config.dataDir)) === undefined) {
      await writeDevKey(config.dataDir, secret);
      console.error(`also written to ${devKeyPath(config.dataDir)}`);
    }
    return 0;
  } finally {
    await db.end();
    await stop();
  }
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

/** The database of the running service, or the embedded one started for this command alone. */
async function reachDatabase(config: Config): Promise<{ target: DbTarget; stop: () => Promise<void> }> {
  if (config.databaseUrl !== undefined) return { target: { url: config.databaseUrl }, stop: async () => {} };
  if ((await readMasterKeyFile(config.dataDir)) === undefined) {
    throw new ConfigError([`DATA_DIR: ${config.dataDir} holds no database yet; start the service once`]);
  }
  const running = await findEmbedded(config.dataDir);
  if (running !== undefined) return { target: running, stop: async () => {} };
  const embedded = await startEmbedded({ dataDir: config.dataDir });
  return { target: embedded.connection, stop: () => embedded.stop() };
}
