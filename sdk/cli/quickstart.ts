/** `trellis quickstart`: does the steps of docs/quickstart.md, and prints each call with its response. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  type CommandContext,
  environmentFor,
  processContext,
  type ServiceOptions,
  UsageError,
} from './arguments.ts';
import { abbreviate } from './local-run.ts';

type Call = { method?: string; headers?: Record<string, string>; body?: object };
type Caller = (path: string, call?: Call) => Promise<Record<string, unknown>>;

const email = 'ada@example.com';
const csv = 'code,city\n7,Oslo\n8,Rome\n9,Bonn';
const cities = [
  { id: 7, city: 'Oslo' },
  { id: 8, city: 'Rome' },
  { id: 9, city: 'Bonn' },
];

/** Returns 0. Throws at the first call that fails. The calls can be repeated: each run makes a new connection. */
export async function quickstartCommand(
  options: ServiceOptions & { sandbox?: string },
  { env: processEnv, print }: CommandContext = processContext,
): Promise<number> {
  const env = environmentFor(options, processEnv);
  const url = (env.TRELLIS_URL ?? 'http://localhost:3003').replace(/\/+$/, '');
  const key = env.TRELLIS_SECRET_KEY ?? readDevKey(env.DATA_DIR ?? '.trellis');
  const step = (title: string) => print(`\n# ${title}\n`);
  const api = caller(url, { print, secret: { name: 'TRELLIS_SECRET_KEY', value: key } });
  // The sandbox listens on loopback only.
  const sandboxUrl = options.sandbox ?? `http://localhost:${Number(URL.parse(url)?.port || 3003) + 1}`;
  const sandbox = caller(sandboxUrl.replace(/\/+$/, ''), {
    print,
    secret: env.SANDBOX_KEY === undefined ? undefined : { name: 'SANDBOX_KEY', value: env.SANDBOX_KEY },
  });

  step('Make an integration with the test credentials of the sandbox');
  await api('/integrations/quickstart', {
    body: { provider: 'google-sheet', integration_id: 'google-sheet' },
  });

  step('Give the sandbox a spreadsheet');
  await sandbox('/_sandbox/accounts', { body: { email, name: 'Ada' } });
  const { spreadsheetId } = await sandbox('/_sandbox/spreadsheets', {
    body: { account: email, title: 'Cities', sheet: 'cities', csv },
  });

  step('Connect an account: a connect session, then the consent that a user gives in a browser');
  const { data } = await api('/connect/sessions', {
    body: { end_user: { id: 'ada', email }, allowed_integrations: ['google-sheet'] },
  });
  const { token } = data as { token: string };
  await consent({ url, token, sandbox });
  const { connections } = await api('/connections?endUserId=ada&limit=1');
  const [connection] = connections as { connection_id: string }[];
  const headers = {
    'Integration-Id': 'google-sheet',
    'Connection-Id': String(connection?.connection_id),
  };

  step("Call the provider: the path behind /proxy is the provider's own");
  await api(`/proxy/v4/spreadsheets/${spreadsheetId}/values/cities`, { headers });

  step('Save, list and prune records');
  await api('/records', { headers, body: { model: 'City', records: cities } });
  const { next_cursor: cursor } = await api('/records?model=City&limit=2', { headers });
  const prune = { model: 'City', until_cursor: cursor };
  await api('/records/prune', { method: 'PATCH', headers, body: prune });
  await api('/records?model=City', { headers });

  step('Save the pruned records again, which restores their payloads');
  await api('/records', { headers, body: { model: 'City', records: cities.slice(0, 2) } });
  print(`\nDone. The dashboard shows the connection and its records: ${url}/`);
  return 0;
}

function readDevKey(dataDir: string): string {
  try {
    return readFileSync(join(dataDir, 'dev.key'), 'utf8').trim();
  } catch {
    throw new UsageError(
      `TRELLIS_SECRET_KEY is not set, and ${join(dataDir, 'dev.key')} cannot be read. Start the service here, or set the key.`,
    );
  }
}

/** Opens the connect link, allows access at the sandbox, and returns to the service, as the browser of a user does. */
async function consent({
  url,
  token,
  sandbox,
}: {
  url: string;
  token: string;
  sandbox: Caller;
}): Promise<void> {
  const opened = await fetch(`${url}/oauth/connect/google-sheet?connect_session_token=${token}`, {
    redirect: 'manual',
  });
  const cookie = opened.headers
    .getSetCookie()
    .map((line) => line.split(';', 1)[0])
    .join('; ');
  const { redirect } = await sandbox('/_sandbox/authorize', {
    body: { url: opened.headers.get('location'), account: email },
  });
  const landed = await fetch(String(redirect), { headers: { cookie }, redirect: 'manual' });
  if (!landed.ok)
    throw new Error(`The account was not connected: the last page has the status ${landed.status}.`);
}

type Secret = { name: string; value: string };

/** Calls an API, and prints each call as a curl command, with the secret as a variable, and the start of its response. */
function caller(
  base: string,
  { print, secret }: { print: (line: string) => void; secret: Secret | undefined },
): Caller {
  return async (path, { method, headers = {}, body } = {}) => {
    const sent = { ...headers, ...(body && { 'Content-Type': 'application/json' }) };
    const shown = [
      `curl ${method ? `-X ${method} ` : ''}${quote(`${base}${path}`)}`,
      ...(secret ? [`-H "Authorization: Bearer $${secret.name}"`] : []),
      ...Object.entries(sent).map(([name, value]) => `-H ${quote(`${name}: ${value}`)}`),
      ...(body ? [`-d ${quote(JSON.stringify(body))}`] : []),
    ];
    print(shown.join(' '));
    const response = await fetch(`${base}${path}`, {
      method: method ?? (body ? 'POST' : 'GET'),
      headers: { ...sent, ...(secret && { authorization: `Bearer ${secret.value}` }) },
      ...(body && { body: JSON.stringify(body) }),
    }).catch((error: Error) => {
      const reason = error.cause instanceof Error ? error.cause.message : error.message;
      throw new Error(
        `${base} cannot be reached: ${reason}. Start the service and its sandbox: trellis start`,
      );
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${response.status}: ${text}`);
    const result = JSON.parse(text) as Record<string, unknown>;
    print(`${response.status} ${abbreviate(result)}`);
    return result;
  };
}

function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
