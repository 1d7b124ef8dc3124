import { createSecretKey, type KeyObject } from 'node:crypto';
import { resolve } from 'node:path';
import { type Brand, brandNames } from '../brand.ts';
import { type LimitsConfig, readLimits } from './limits.ts';
import { type MonitoringConfig, readMonitoring } from './monitoring.ts';
import { type NodeConfig, readNode } from './node.ts';
import { type AllowedRange, readOutboundAllow } from './outbound-allow.ts';
import { isLoopback, oneOf, readOrigins, readPort, readRanges, readUrl } from './setting-values.ts';
import { type MailConfig, readSignIn, readSmtp, type SignInConfig } from './sign-in.ts';

/**
 * The one place that reads the environment. Every fault is found before anything starts, and all of them are
 * told in one message.
 */
export type Config = NodeConfig &
  MonitoringConfig & {
    host: string;
    port: number;
    /** Without a trailing slash. */
    baseUrl: string;
    dataDir: string;
    /** Undefined: the embedded PostgreSQL. */
    databaseUrl: string | undefined;
    /** The key of the `dev` environment, when the operator chose it. */
    secretKey: string | undefined;
    /** Undefined: generated into DATA_DIR (embedded database only). The first one seals. */
    encryptionKeys: MasterKey[] | undefined;
    brand: Brand;
    sandbox: SandboxConfig | undefined;
    outboundAllow: AllowedRange[];
    activity: ActivityConfig;
    /** How many days deliveries of events that arrived are kept. */
    deliveryDays: number;
    /** How long an event stays in the feed. */
    eventDays: number;
    logLevel: LogLevel;
    logFormat: 'pretty' | 'json';
    /** The peers whose X-Forwarded-* headers are trusted. CIDR ranges. */
    trustedProxies: string[];
    signIn: SignInConfig;
    limits: LimitsConfig;
    /** Undefined: links are copied. */
    smtp: MailConfig | undefined;
    /** Origins of pages that may show the connect page in a frame, beside our own. */
    connectFrameAncestors: string[];
    functions: FunctionsConfig;
    isProduction: boolean;
  };

export type { Role } from './node.ts';
export type MasterKey = { id: string; key: KeyObject };
/** `sampleRate`: how many of the proxied calls that succeeded are logged, 0 to 1. */
type ActivityConfig = { isOn: boolean; sampleRate: number; keptDays: number };
/** `directory`: of functions that this service deploys by itself; absolute, and it may not exist. */
type FunctionsConfig = {
  isOn: boolean;
  directory: string;
  /** Of pages that may call /mcp, beside our own. */
  mcpOrigins: string[];
};
type SandboxConfig = { port: number; url: string; controlKey: string | undefined };

const logLevels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;
export type LogLevel = (typeof logLevels)[number];

/** Thrown once with every fault of the configuration, a line each. */
export class ConfigError extends Error {
  readonly faults: string[];
  constructor(faults: string[]) {
    super(
      `The configuration has ${faults.length} fault(s):\n${faults.map((fault) => `  - ${fault}`).join('\n')}`,
    );
    this.name = 'ConfigError';
    this.faults = faults;
  }
}

type Env = Readonly<Record<string, string | undefined>>;

/** The whole configuration out of environment variables; throws ConfigError. */
export function loadConfig(env: Env = process.env, isTerminal = process.stdout.isTTY === true): Config {
  const { config, faults } = readConfig(env, isTerminal);
  if (config.databaseUrl !== undefined && config.encryptionKeys === undefined) {
    faults.push(
      'TRELLIS_ENCRYPTION_KEYS is required with DATABASE_URL, as id:base64 of 32 bytes: every node needs the same ' +
        'keys, and a database without them cannot be read. Make one with: echo "k1:$(openssl rand -base64 32)"',
    );
  }
  if (config.databaseUrl === undefined && config.role !== 'all') {
    faults.push(
      `TRELLIS_ROLE=${config.role} requires DATABASE_URL: no other node reaches the embedded database, and this one would ` +
        'leave half of the work undone',
    );
  }
  if (faults.length > 0) throw new ConfigError(faults);
  return config;
}

/** As `loadConfig`, with settings that were given beside the environment's and go before them. */
export function loadConfigWith(given: Env): Config {
  return loadConfig({ ...process.env, ...given });
}

/** As `loadConfig`, for a command that opens nothing: the master keys may be missing. */
export function loadConfigWithoutKeys(): Config {
  const { config, faults } = readConfig(process.env, false);
  if (faults.length > 0) throw new ConfigError(faults);
  return config;
}

/** What a command is given for itself, beside the settings of the service. */
export function readCommandSecrets(env: Env = process.env): {
  /** Of the installation that `trellis import nango` reads. */
  peerKey: string | undefined;
  /** Of the file that `trellis export` writes and `trellis import` reads. */
  passphrase: string | undefined;
} {
  const read = (name: string): string | undefined => env[name] || undefined;
  return { peerKey: read('TRELLIS_PEER_KEY')?.trim(), passphrase: read('TRELLIS_EXPORT_PASSPHRASE') };
}

function readConfig(env: Env, isTerminal: boolean): { config: Config; faults: string[] } {
  const faults: string[] = [];
  const read = (name: string): string | undefined => env[name]?.trim() || undefined;

  const host = read('HOST') ?? '127.0.0.1';
  const port = readPort(read('PORT'), { name: 'PORT', fallback: 3003, faults });
  const baseUrl = readUrl(read('BASE_URL'), {
    name: 'BASE_URL',
    fallback: `http://localhost:${port}`,
    faults,
  });
  const databaseUrl = read('DATABASE_URL');
  if (databaseUrl !== undefined && !/^postgres(ql)?:\/\//.test(databaseUrl)) {
    faults.push('DATABASE_URL must begin with postgres:// or postgresql://');
  }
  const encryptionKeys = readMasterKeys(read('TRELLIS_ENCRYPTION_KEYS'), faults);
  const secretKey = read('TRELLIS_SECRET_KEY');
  if (secretKey !== undefined && !isSecretKey(secretKey)) {
    faults.push('TRELLIS_SECRET_KEY must be 20 to 200 characters of A-Z a-z 0-9 - _');
  }
  const word = read('TRELLIS_BRAND') ?? 'trellis';
  if (!/^[a-z][a-z0-9]*$/.test(word)) faults.push('TRELLIS_BRAND must match [a-z][a-z0-9]*');
  const logLevel = oneOf(read('LOG_LEVEL'), {
    name: 'LOG_LEVEL',
    allowed: logLevels,
    fallback: 'info',
    faults,
  });
  const logFormat = oneOf(read('LOG_FORMAT'), {
    name: 'LOG_FORMAT',
    allowed: ['pretty', 'json'] as const,
    fallback: isTerminal ? 'pretty' : 'json',
    faults,
  });
  const isProduction = read('NODE_ENV') === 'production';
  const sandbox = readSandbox({ read, host, port, baseUrl, isProduction, faults });
  const signIn = readSignIn({ read, host, baseUrl, faults });
  const smtp = readSmtp(read, faults);
  const trustedProxies = readRanges(read('TRELLIS_TRUSTED_PROXIES'), 'TRELLIS_TRUSTED_PROXIES', faults);
  const outboundAllow = readOutboundAllow(read('TRELLIS_OUTBOUND_ALLOW'), faults);
  const activity = readActivity(read, faults);
  const eventDays = read('TRELLIS_EVENT_DAYS') ?? '30';
  // Deliveries are tried for three days, and go with their event.
  if (!/^\d{1,3}$/.test(eventDays) || Number(eventDays) < 7) {
    faults.push(`TRELLIS_EVENT_DAYS must be a number of days from 7 to 999, it is "${eventDays}"`);
  }
  const deliveryDays = read('TRELLIS_DELIVERY_DAYS') ?? '7';
  if (!/^[1-9]\d{0,2}$/.test(deliveryDays)) {
    faults.push(`TRELLIS_DELIVERY_DAYS must be a number of days from 1 to 999, it is "${deliveryDays}"`);
  }
  const functions = oneOf(read('TRELLIS_FUNCTIONS'), {
    name: 'TRELLIS_FUNCTIONS',
    allowed: ['on', 'off'] as const,
    fallback: 'on',
    faults,
  });
  const node = readNode(read, faults);
  const limits = readLimits(read, { faults, openFiles: maxOpenFiles() });
  const monitoring = readMonitoring(read, faults);
  const config: Config = {
    host,
    port,
    baseUrl,
    dataDir: resolve(read('DATA_DIR') ?? './.trellis'),
    databaseUrl,
    secretKey,
    encryptionKeys,
    brand: brandNames(word),
    sandbox,
    outboundAllow,
    activity,
    eventDays: Number(eventDays),
    deliveryDays: Number(deliveryDays),
    logLevel,
    logFormat,
    ...node,
    limits,
    ...monitoring,
    trustedProxies,
    signIn,
    smtp,
    connectFrameAncestors: readOrigins(read('TRELLIS_CONNECT_FRAME_ANCESTORS'), {
      name: 'TRELLIS_CONNECT_FRAME_ANCESTORS',
      faults,
    }),
    functions: {
      isOn: functions === 'on',
      directory: resolve(read('TRELLIS_FUNCTIONS_DIR') ?? './functions'),
      mcpOrigins: readOrigins(read('TRELLIS_MCP_ORIGINS'), { name: 'TRELLIS_MCP_ORIGINS', faults }),
    },
    isProduction,
  };
  return { config, faults };
}

/** `ulimit -n`, which Node raises as far as it may. */
function maxOpenFiles(): number {
  const report: NodeJS.ProcessReport & { excludeNetwork?: boolean } = process.report;
  // Names of addresses are looked up otherwise.
  report.excludeNetwork = true;
  const { userLimits } = report.getReport() as { userLimits?: { open_files?: { soft?: number | string } } };
  return Number(userLimits?.open_files?.soft) || Number.MAX_SAFE_INTEGER;
}

/** Whether a text has the form of a secret key of an environment. */
export function isSecretKey(text: string): boolean {
  return /^[A-Za-z0-9_-]{20,200}$/.test(text);
}

/** `id:base64,id:base64` of 32 bytes each, the first one seals. Faults never repeat key material. */
export function readMasterKeys(text: string | undefined, faults: string[]): MasterKey[] | undefined {
  if (text === undefined) return undefined;
  const keys: MasterKey[] = [];
  for (const [index, part] of text.split(',').entries()) {
    const at = `TRELLIS_ENCRYPTION_KEYS, entry ${index + 1}`;
    // An id is too short for a key, so that none is told as the id of an entry whose halves were swapped.
    const [, id, base64] = /^\s*([A-Za-z0-9_.-]{1,32}):([A-Za-z0-9+/_=-]+)\s*$/.exec(part) ?? [];
    if (id === undefined || base64 === undefined) {
      faults.push(`${at}: must read id:base64, the id of up to 32 of A-Z a-z 0-9 . _ -`);
      continue;
    }
    const bytes = Buffer.from(base64, 'base64');
    if (bytes.length !== 32) faults.push(`${at} (${id}): the key must be 32 bytes, it is ${bytes.length}`);
    else if (keys.some((key) => key.id === id)) faults.push(`${at}: the id ${id} stands twice`);
    else keys.push({ id, key: createSecretKey(bytes) });
  }
  return keys;
}

function readSandbox(from: {
  read: (name: string) => string | undefined;
  host: string;
  port: number;
  baseUrl: string;
  isProduction: boolean;
  faults: string[];
}): SandboxConfig | undefined {
  const { read, faults } = from;
  const isPrivate = isLoopback(from.host) && isLoopback(URL.parse(from.baseUrl)?.hostname ?? '');
  const setting = oneOf(read('TRELLIS_SANDBOX'), {
    name: 'TRELLIS_SANDBOX',
    allowed: ['on', 'off'] as const,
    fallback: isPrivate && !from.isProduction ? 'on' : 'off',
    faults,
  });
  const port = readPort(read('SANDBOX_PORT'), {
    name: 'SANDBOX_PORT',
    fallback: from.port === 0 ? 0 : from.port + 1,
    faults,
  });
  const url = readUrl(read('SANDBOX_URL'), {
    name: 'SANDBOX_URL',
    fallback: `http://localhost:${port}`,
    faults,
  });
  const controlKey = read('SANDBOX_KEY');
  if (setting === 'off') return undefined;
  if (controlKey === undefined && (!isPrivate || from.isProduction)) {
    faults.push(
      'TRELLIS_SANDBOX=on outside a loopback development set-up demands SANDBOX_KEY, which guards /_sandbox',
    );
  }
  return { port, url, controlKey };
}

function readActivity(read: (name: string) => string | undefined, faults: string[]): ActivityConfig {
  const isOn = oneOf(read('TRELLIS_ACTIVITY'), {
    name: 'TRELLIS_ACTIVITY',
    allowed: ['on', 'off'] as const,
    fallback: 'on',
    faults,
  });
  const sample = read('TRELLIS_ACTIVITY_SAMPLE') ?? '1';
  if (!/^(0(\.\d+)?|1(\.0+)?)$/.test(sample)) {
    faults.push(`TRELLIS_ACTIVITY_SAMPLE must be a share from 0 to 1, it is "${sample}"`);
  }
  const days = read('TRELLIS_ACTIVITY_DAYS') ?? '15';
  if (!/^[1-9]\d{0,2}$/.test(days)) {
    faults.push(`TRELLIS_ACTIVITY_DAYS must be a number of days from 1 to 999, it is "${days}"`);
  }
  return { isOn: isOn === 'on', sampleRate: Number(sample), keptDays: Number(days) };
}
