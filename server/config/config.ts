import { createPublicKey, createSecretKey, type KeyObject } from 'node:crypto';
import { resolve } from 'node:path';
import { type Brand, brandNames } from '../brand.ts';
import { type LimitsConfig, readLimits } from './limits.ts';
import { type MonitoringConfig, readMonitoring } from './monitoring.ts';
import { type OutboundProxyConfig, readOutboundProxy } from './outbound-proxy.ts';
import { processesOf, processesRule } from './processes.ts';
import { type AllowedRange, type Env, isLoopback, readOutboundAllow, Settings } from './setting-values.ts';
import { type MailConfig, readSignIn, readSmtp, type SignInConfig } from './sign-in.ts';

/**
 * The only place that reads the environment. All faults are found before anything starts, and one message reports them.
 */
export type Config = MonitoringConfig & {
  role: Role;
  /** The number of processes of this machine that serve, each a node. With one, no process supervises it. */
  processes: number;
  /** How long requests in flight may take to end after a stop was requested. */
  drainMs: number;
  /** How long a node that must stop continues to accept requests, so that balancers notice in time. */
  drainDelayMs: number;
  host: string;
  port: number;
  /** Without a trailing slash, as the next two. */
  baseUrl: string;
  /** The address under which browsers reach `/oauth/callback`; undefined: `baseUrl`. */
  callbackBaseUrl: string | undefined;
  /** The address under which providers reach `/webhook`; undefined: `baseUrl`. */
  webhookBaseUrl: string | undefined;
  dataDir: string;
  /** Undefined: the embedded PostgreSQL. */
  databaseUrl: string | undefined;
  /** Set if this node connects to the workers of a Citus cluster for records: by these addresses, or by those of Citus. */
  records: { urls: string[] | undefined } | undefined;
  /** The key of the `dev` environment, when the operator chose it. */
  secretKey: string | undefined;
  /** Undefined: generated into DATA_DIR (embedded database only), or wrapped. The first one seals. */
  encryptionKeys: MasterKey[] | undefined;
  /** The same keys, if `kms` wraps them. */
  wrappedKeys: WrappedKey[] | undefined;
  /** Undefined: keys are not wrapped. */
  kms: KmsConfig | undefined;
  brand: Brand;
  sandbox: SandboxConfig | undefined;
  outboundAllow: AllowedRange[];
  /** Undefined: outgoing calls are direct. */
  outboundProxy: OutboundProxyConfig | undefined;
  /** The operator's own provider definitions; absolute. Undefined: there are none. */
  providersDir: string | undefined;
  /** Signs updates of the definitions (`trellis providers update`). */
  providersKey: KeyObject | undefined;
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
  /** Origins of pages that may show the connect page in a frame, in addition to our own. */
  connectFrameAncestors: string[];
  functions: FunctionsConfig;
  isProduction: boolean;
};

export type MasterKey = { id: string; key: KeyObject };
/** `wrapped`: a text without spaces and commas, by the operator's command. */
export type WrappedKey = { id: string; wrapped: string };
/** The program and its arguments, and its environment: without the secrets among the settings. */
export type KmsConfig = { command: string[]; env: Record<string, string> };
/** `sampleRate`: how many of the proxied calls that succeeded are logged, 0 to 1. */
type ActivityConfig = { isOn: boolean; sampleRate: number; keptDays: number };
/** `directory`: of functions that this service deploys automatically; absolute, and it may not exist. */
type FunctionsConfig = {
  isOn: boolean;
  directory: string;
  /** Of pages that may call /mcp, beside our own. */
  mcpOrigins: string[];
};
type SandboxConfig = { port: number; url: string; controlKey: string | undefined };

/** The work of a node: everything, only requests, or only background work. */
const roles = ['all', 'api', 'worker'] as const;
export type Role = (typeof roles)[number];
const logLevels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;
export type LogLevel = (typeof logLevels)[number];

/** Thrown once with every fault of the configuration, a line each. */
export class ConfigError extends Error {
  readonly faults: string[];
  constructor(faults: string[]) {
    super(
      `The configuration has ${faults.length === 1 ? '1 fault' : `${faults.length} faults`}:\n${faults.map((fault) => `  - ${fault}`).join('\n')}`,
    );
    this.name = 'ConfigError';
    this.faults = faults;
  }
}

/** The whole configuration out of environment variables; throws ConfigError. */
export function loadConfig(env: Env = process.env, isTerminal = process.stdout.isTTY === true): Config {
  const { config, faults } = readConfig(env, isTerminal);
  const isFaultOfKeys = (fault: string) => fault.startsWith('TRELLIS_ENCRYPTION_KEYS');
  if (
    config.databaseUrl !== undefined &&
    config.encryptionKeys === undefined &&
    config.wrappedKeys === undefined &&
    !faults.some(isFaultOfKeys)
  ) {
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

/** Secrets of single commands, beside the settings of the service. Throws ConfigError. */
export function readCommandSecrets(env: Env = process.env): {
  /** Of the installation that `trellis import nango` reads. */
  peerKey: string | undefined;
  /** Of the file that `trellis export` writes and `trellis import` reads. */
  passphrase: string | undefined;
} {
  const settings = new Settings(env);
  const peerKey = settings.secret('TRELLIS_PEER_KEY');
  const passphrase = settings.secret('TRELLIS_EXPORT_PASSPHRASE');
  if (settings.faults.length > 0) throw new ConfigError(settings.faults);
  // Spaces at the ends of a passphrase belong to it.
  return { peerKey, passphrase: env.TRELLIS_EXPORT_PASSPHRASE || passphrase };
}

function readConfig(env: Env, isTerminal: boolean): { config: Config; faults: string[] } {
  const settings = new Settings(env);
  const { faults } = settings;
  const read = (name: string) => settings.read(name);

  const host = read('HOST') ?? '127.0.0.1';
  const port = settings.port('PORT', 3003);
  const baseUrl = settings.url('BASE_URL', `http://localhost:${port}`);
  const databaseUrl = settings.secret('DATABASE_URL');
  if (databaseUrl !== undefined && !/^postgres(ql)?:\/\//.test(databaseUrl)) {
    faults.push('DATABASE_URL must begin with postgres:// or postgresql://');
  }
  const records = readRecordMachines(settings, databaseUrl);
  const kms = readKms(settings);
  const keys = settings.secret('TRELLIS_ENCRYPTION_KEYS');
  const encryptionKeys = kms === undefined ? readMasterKeys(keys, faults) : undefined;
  const wrappedKeys = kms === undefined ? undefined : readWrappedKeys(keys, faults);
  const secretKey = settings.secret('TRELLIS_SECRET_KEY');
  if (secretKey !== undefined && !isSecretKey(secretKey)) {
    faults.push('TRELLIS_SECRET_KEY must be 20 to 200 characters of A-Z a-z 0-9 - _');
  }
  const word = read('TRELLIS_BRAND') ?? 'trellis';
  if (!/^[a-z][a-z0-9]*$/.test(word)) faults.push('TRELLIS_BRAND must match [a-z][a-z0-9]*');
  const isProduction = read('NODE_ENV') === 'production';
  const processesText = read('TRELLIS_PROCESSES') ?? '1';
  const processes = processesOf(processesText);
  if (processes === undefined)
    faults.push(`TRELLIS_PROCESSES must be ${processesRule}, it is "${processesText}"`);
  /** Only programs of this machine reach the service. */
  const isLocal = !isProduction && isLoopback(host) && isLoopback(URL.parse(baseUrl)?.hostname ?? '');
  const config: Config = {
    host,
    port,
    baseUrl,
    callbackBaseUrl: settings.optionalUrl('TRELLIS_CALLBACK_BASE_URL'),
    webhookBaseUrl: settings.optionalUrl('TRELLIS_WEBHOOK_BASE_URL'),
    dataDir: resolve(read('DATA_DIR') ?? './.trellis'),
    databaseUrl,
    records,
    secretKey,
    encryptionKeys,
    wrappedKeys,
    kms: undefined,
    brand: brandNames(word),
    logLevel: settings.oneOf('LOG_LEVEL', logLevels, 'info'),
    logFormat: settings.oneOf('LOG_FORMAT', ['pretty', 'json'], isTerminal ? 'pretty' : 'json'),
    sandbox: readSandbox(settings, { port, isLocal }),
    signIn: readSignIn(settings, { host, baseUrl }),
    smtp: readSmtp(settings),
    trustedProxies: settings.ranges('TRELLIS_TRUSTED_PROXIES'),
    outboundAllow: readOutboundAllow(
      read('TRELLIS_OUTBOUND_ALLOW') ?? (isLocal ? 'endpoints=127.0.0.1,endpoints=::1' : undefined),
      faults,
    ),
    outboundProxy: readOutboundProxy(settings),
    providersDir: pathOf(read('TRELLIS_PROVIDERS_DIR')),
    providersKey: readProvidersKey(read('TRELLIS_PROVIDERS_SIGNED_BY'), faults),
    activity: {
      isOn: settings.isOn('TRELLIS_ACTIVITY'),
      sampleRate: settings.share('TRELLIS_ACTIVITY_SAMPLE'),
      keptDays: settings.days('TRELLIS_ACTIVITY_DAYS', { fallback: 15 }),
    },
    // Deliveries are tried for three days, and go with their event.
    eventDays: settings.days('TRELLIS_EVENT_DAYS', { fallback: 30, min: 7 }),
    deliveryDays: settings.days('TRELLIS_DELIVERY_DAYS', { fallback: 7 }),
    role: settings.oneOf('TRELLIS_ROLE', roles, 'all'),
    processes: processes ?? 1,
    drainMs: settings.secondsMs('TRELLIS_DRAIN_SECONDS', 10),
    drainDelayMs: settings.secondsMs('TRELLIS_DRAIN_DELAY_SECONDS', 0),
    limits: readLimits(settings, { openFiles: maxOpenFiles(), processes: processes ?? 1 }),
    ...readMonitoring(settings),
    connectFrameAncestors: settings.origins('TRELLIS_CONNECT_FRAME_ANCESTORS'),
    functions: {
      isOn: settings.isOn('TRELLIS_FUNCTIONS'),
      directory: resolve(read('TRELLIS_FUNCTIONS_DIR') ?? './functions'),
      mcpOrigins: settings.origins('TRELLIS_MCP_ORIGINS'),
    },
    isProduction,
  };
  // All secrets were read.
  if (kms !== undefined) config.kms = { command: kms, env: settings.envWithoutSecrets() };
  return { config, faults };
}

function readRecordMachines(settings: Settings, databaseUrl: string | undefined): Config['records'] {
  const isDirect = settings.isOn('TRELLIS_RECORDS_DIRECT', 'off');
  const urls = settings
    .secret('TRELLIS_RECORDS_DATABASE_URLS')
    ?.split(/[\s,]+/)
    .filter((url) => url !== '');
  if (urls?.some((url) => !/^postgres(ql)?:\/\//.test(url)))
    settings.faults.push('TRELLIS_RECORDS_DATABASE_URLS: each must begin with postgres:// or postgresql://');
  if (urls !== undefined && !isDirect)
    settings.faults.push('TRELLIS_RECORDS_DATABASE_URLS requires TRELLIS_RECORDS_DIRECT=on');
  if (!isDirect) return undefined;
  if (databaseUrl === undefined)
    settings.faults.push(
      'TRELLIS_RECORDS_DIRECT=on requires DATABASE_URL, the coordinator of a Citus cluster',
    );
  else if (urls === undefined && !URL.canParse(databaseUrl))
    settings.faults.push('TRELLIS_RECORDS_DIRECT=on requires a DATABASE_URL with one host');
  return { urls };
}

function readProvidersKey(text: string | undefined, faults: string[]): KeyObject | undefined {
  if (text === undefined) return undefined;
  const key = publicKeyOf(text);
  if (key === undefined)
    faults.push(
      'TRELLIS_PROVIDERS_SIGNED_BY: must be an Ed25519 public key in base64, the line of its PEM text between BEGIN and END',
    );
  return key;
}

function publicKeyOf(text: string): KeyObject | undefined {
  try {
    const key = createPublicKey({ key: Buffer.from(text, 'base64'), format: 'der', type: 'spki' });
    return key.asymmetricKeyType === 'ed25519' ? key : undefined;
  } catch {
    return undefined;
  }
}

function pathOf(text: string | undefined): string | undefined {
  return text === undefined ? undefined : resolve(text);
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
    // An ID is too short for a key, so no message shows the ID of an entry whose halves were swapped.
    const [, id, base64] = /^\s*([A-Za-z0-9_.-]{1,32}):([A-Za-z0-9+/_=-]+)\s*$/.exec(part) ?? [];
    if (id === undefined || base64 === undefined) {
      faults.push(
        `${at}: must have the form id:base64, with an id of up to 32 characters of A-Z a-z 0-9 . _ -`,
      );
      continue;
    }
    const bytes = Buffer.from(base64, 'base64');
    if (bytes.length !== 32) faults.push(`${at} (${id}): the key must be 32 bytes, it is ${bytes.length}`);
    else if (keys.some((key) => key.id === id)) faults.push(`${at}: the id ${id} is used twice`);
    else keys.push({ id, key: createSecretKey(bytes) });
  }
  return keys;
}

/** The program and its arguments, which contain no spaces: nothing is read by a shell. */
function readKms(settings: Settings): string[] | undefined {
  return settings.read('TRELLIS_KMS_COMMAND')?.split(/\s+/);
}

/** `id:wrapped,id:wrapped`. Faults never repeat an entry. */
export function readWrappedKeys(text: string | undefined, faults: string[]): WrappedKey[] | undefined {
  if (text === undefined) return undefined;
  const keys: WrappedKey[] = [];
  for (const [index, part] of text.split(',').entries()) {
    const at = `TRELLIS_ENCRYPTION_KEYS, entry ${index + 1}`;
    const [, id, wrapped] = /^\s*([A-Za-z0-9_.-]{1,32}):(\S{1,8192})\s*$/.exec(part) ?? [];
    if (id === undefined || wrapped === undefined)
      faults.push(
        `${at}: with TRELLIS_KMS_COMMAND it must have the form id:wrapped, as "trellis keys wrap" prints it`,
      );
    else if (keys.some((key) => key.id === id)) faults.push(`${at}: the id ${id} is used twice`);
    else keys.push({ id, wrapped });
  }
  return keys;
}

function readSandbox(
  settings: Settings,
  { port: servicePort, isLocal }: { port: number; isLocal: boolean },
): SandboxConfig | undefined {
  const isOn = settings.isOn('TRELLIS_SANDBOX', isLocal ? 'on' : 'off');
  const port = settings.port('SANDBOX_PORT', servicePort === 0 ? 0 : servicePort + 1);
  const url = settings.url('SANDBOX_URL', `http://localhost:${port}`);
  const controlKey = settings.secret('SANDBOX_KEY');
  if (!isOn) return undefined;
  if (controlKey === undefined && !isLocal) {
    settings.faults.push(
      'TRELLIS_SANDBOX=on outside a loopback development set-up demands SANDBOX_KEY, which guards /_sandbox',
    );
  }
  return { port, url, controlKey };
}
