import { once } from 'node:events';
import { connect as connectSocket } from 'node:net';
import { verifyAudit } from '../../server/activity/audit-chain.ts';
import { prepareScenarios } from '../journeys/scenarios.ts';
import {
  type Call,
  codesOf,
  operationsOf,
  type Placed,
  readDocument,
  shownCall,
} from '../support/openapi.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';
import { nastyTexts, nastyValues } from './fuzz-values.ts';
import { pick, type Random, randomOf } from './random.ts';

/** A request as it goes over the wire, and what came of it. */
type Fault = { request: string; answer: string };
type Fuzzed = {
  /** How many answers there were of each status. */
  statuses: Record<number, number>;
  /** Answers of 5xx, requests that were not answered in time, and answers that the document does not tell of. */
  faults: Fault[];
  /** How much the heap grew over the last three quarters of the requests, MB. */
  grownMb: number;
  /** What is wrong with the service afterwards. */
  broken: string[];
};

const answerWithinMs = 20_000;
/** Nobody is shed here: that a request is not taken says nothing of what it would have done. */
const unlimited = {
  TRELLIS_RATE_LIMIT: 'off',
  TRELLIS_PERSON_RATE_LIMIT: 'off',
  TRELLIS_ADDRESS_RATE_LIMIT: 'off',
  TRELLIS_OVERLOAD_DELAY_MS: 'off',
};

/**
 * Requests made from the OpenAPI document and then spoiled, the same ones for one seed. Fails where a secret is in any
 * answer or in the log: see `test/support/secret-watch.ts`.
 */
export async function fuzz({
  requests,
  seed,
  atOnce = 8,
}: {
  requests: number;
  seed: number;
  atOnce?: number;
}): Promise<Fuzzed> {
  const trellis = await openTrellis(unlimited);
  try {
    const make = await openMaker(trellis, randomOf(seed));
    const fuzzed: Fuzzed = { statuses: {}, faults: [], grownMb: 0, broken: [] };
    let left = requests;
    const send = async (until: number) => {
      while (left > until) {
        left -= 1;
        const { bytes, placed } = make();
        const answer = await answerTo(trellis.baseUrl, bytes);
        const status = Number(/^HTTP\/1\.1 (\d{3})/.exec(answer)?.[1] ?? 0);
        fuzzed.statuses[status] = (fuzzed.statuses[status] ?? 0) + 1;
        const isUntold = placed !== undefined && status !== 0 && !isTold(placed, { status, answer });
        if (status >= 500 || (status === 0 && answer !== 'closed') || isUntold)
          fuzzed.faults.push({ request: shortened(bytes), answer: answer.slice(0, 1_500) });
      }
    };
    const inParallel = (until: number) => Promise.all(Array.from({ length: atOnce }, () => send(until)));
    await inParallel(Math.floor(requests * 0.75));
    const before = heapMb();
    await inParallel(0);
    fuzzed.grownMb = heapMb() - before;
    fuzzed.broken = await findBroken(trellis);
    return fuzzed;
  } finally {
    await trellis.close();
  }
}

function heapMb(): number {
  globalThis.gc?.();
  return process.memoryUsage().heapUsed / 2 ** 20;
}

/** What a service owes whatever was sent: it works, its audit log holds, and what nobody deleted is there. */
async function findBroken(trellis: TestTrellis): Promise<string[]> {
  const broken: string[] = [];
  const { fault } = await verifyAudit(trellis.db);
  if (fault !== undefined) broken.push(`audit: ${fault.message}`);
  for (const path of ['/ready', '/connections', '/integrations', '/events/latest', '/audit']) {
    const { status, text } = await trellis.call('GET', path);
    if (status !== 200) broken.push(`${path}: ${status} ${text.slice(0, 300)}`);
  }
  const datasets = await trellis.db.query<{ id: number; records: number; counted: number }>(
    `select dataset.id, dataset.records, count(record.dataset_id)::int as counted
     from dataset
     left join record on record.dataset_id = dataset.id and record.deleted_at is null
     group by dataset.id, dataset.records`,
  );
  for (const { id, records, counted } of datasets)
    if (Number(records) !== counted) broken.push(`dataset ${id}: ${records} records, ${counted} rows`);
  return broken;
}

/** Whether the document names the status, and the code where it is an error of the service. */
function isTold({ operation }: Placed, { status, answer }: { status: number; answer: string }): boolean {
  const { responses } = operation;
  if (responses.default !== undefined) return true;
  if (responses[status] === undefined) return false;
  const code = /"error":\{"code":"(\w+)"/.exec(answer)?.[1];
  return status < 400 || code === undefined || codesOf(operation, status).includes(code);
}

/** A request as bytes; `placed` where it still is one of that operation. */
type Made = { bytes: Buffer; placed: Placed | undefined };

/** Answers a function that makes the next request. */
async function openMaker(trellis: TestTrellis, random: Random): Promise<() => Made> {
  const given = await prepareScenarios(trellis);
  const made = await trellis.call('POST', '/connect/sessions', {
    body: { end_user: { id: 'ada' }, allowed_integrations: ['google-sheet'] },
  });
  const session = (made.body.data as { token: string }).token;
  const placed = operationsOf((await readDocument(trellis)).paths);
  const keys = [...Array.from({ length: 12 }, () => trellis.keys.dev), session, 'nobody', undefined];
  let count = 0;
  const oneOf = <T>(from: readonly T[]): T => from[pick(random, from.length)]!;
  const host = new URL(trellis.baseUrl).host;

  function shown(one: Placed): Call {
    const connectionId = one.method === 'DELETE' ? 'ada-sheets' : given.connectionId;
    const text = JSON.stringify(shownCall(one))
      .replaceAll(/[a-z]+-of-the-[a-z]+|a long sentence that nobody guesses/g, `fuzz-secret-${count}-x`)
      .replaceAll('ada-sheets', connectionId)
      .replaceAll('AQIAAAAAAAAAKwAAAAAAAAGQd0fmXw', given.cursor)
      .replaceAll('trellis_connect_session_...', session);
    return JSON.parse(text) as Call;
  }

  return () => {
    count += 1;
    const one = oneOf(placed);
    const call = shown(one);
    const wire = {
      method:
        random() < 0.04
          ? oneOf(['TRACE', 'OPTIONS', 'PROPFIND', 'get', 'PUT', 'DELETE', 'HEAD', 'QUERY'])
          : call.method,
      path: call.path,
      headers: Object.entries(call.headers),
      body: call.body === undefined ? undefined : JSON.stringify(call.body),
    };
    const spoil = oneOf(
      wire.body === undefined
        ? ['query', 'path', 'header', 'query']
        : ['body', 'body', 'body', 'query', 'path', 'header'],
    );
    if (spoil === 'body') wire.body = spoiledBody(call.body, { random, oneOf, count });
    if (spoil === 'query') wire.path = withQuery(wire.path, one, oneOf);
    if (spoil === 'path') wire.path = spoiledPath(wire.path, { random, oneOf });
    if (spoil === 'header') wire.headers.push(spoiledHeader(oneOf));
    // Streams that end by themselves.
    if (wire.path.startsWith('/operations/tail')) wire.path = '/operations/tail?seconds=0';
    const key = oneOf(keys);
    if (key !== undefined) wire.headers.push(['authorization', `Bearer ${key}`]);
    const body = Buffer.from(wire.body ?? '', 'utf8');
    const head = [
      `${wire.method} ${wire.path} HTTP/1.1`,
      ...[['host', host], ['connection', 'close'], ...wire.headers].map(
        ([name, value]) => `${name}: ${value}`,
      ),
      ...(wire.body === undefined ? [] : [`content-length: ${body.length}`]),
      '\r\n',
    ].join('\r\n');
    const isOfOperation = spoil !== 'path' && wire.method === call.method;
    return {
      bytes: Buffer.concat([Buffer.from(head, 'latin1'), body]),
      placed: isOfOperation ? one : undefined,
    };
  };
}

type Spoiling = { random: Random; oneOf: <T>(from: readonly T[]) => T };

/** Names of fields whose values the watch for secrets takes for secrets: each gets one of its own. */
const secretFields = /secret|token|password|apiKey|code/;

function spoiledBody(body: unknown, { random, oneOf, count }: Spoiling & { count: number }): string {
  const way = random();
  if (way < 0.05)
    return oneOf([
      '',
      '{',
      'null',
      '[]',
      '"x"',
      '\u0000',
      '{"a":1,}',
      '{"__proto__":{"admin":true}}',
      '[[[[',
    ]);
  if (way < 0.08) return `${'['.repeat(20_000)}${']'.repeat(20_000)}`;
  if (way < 0.1) return `${'{"a":'.repeat(8_000)}1${'}'.repeat(8_000)}`;
  if (way < 0.11) return JSON.stringify({ ...(body as object), filler: 'x'.repeat(1_100_000) });
  const copy = structuredClone(body) as Record<string, unknown>;
  if (typeof copy !== 'object' || copy === null) return JSON.stringify(oneOf(nastyValues));
  let at: Record<string, unknown> = copy;
  for (;;) {
    const names = Object.keys(at);
    if (names.length === 0 || random() < 0.1) {
      at[oneOf(['constructor', 'toString', 'nonsense', '', '\u0000', 'a\ud800', 'hasOwnProperty'])] =
        oneOf(nastyValues);
      break;
    }
    const name = oneOf(names);
    const value = at[name];
    if (typeof value === 'object' && value !== null && random() < 0.6) {
      at = value as Record<string, unknown>;
      continue;
    }
    at[name] = secretFields.test(name) ? `fuzz-secret-${count}-${oneOf(nastyTexts)}` : oneOf(nastyValues);
    break;
  }
  const text = JSON.stringify(copy);
  // What JSON.stringify cannot write: a number beyond all, and a key that counts.
  if (random() < 0.1) return text.replace(/:(-?\d+|"[^"]*")/, ':1e999');
  return random() < 0.1 ? text.replace(/^\{/, '{"__proto__":{"isAdmin":true},') : text;
}

function withQuery(
  path: string,
  { operation: { parameters = [] } }: Placed,
  oneOf: Spoiling['oneOf'],
): string {
  const names = [
    ...parameters.filter((one) => one.in === 'query').map(({ name }) => name),
    '__proto__',
    'nonsense',
    'tags[a]',
  ];
  const name = oneOf(names);
  const value = oneOf(nastyTexts);
  // A wait is no hang.
  const given = name === 'wait' ? '-1' : value;
  const pair = `${name}=${oneOf([encodeURIComponent(asScalar(given)), encodeURIComponent(asScalar(given)), '%', '%ff%fe', '+'])}`;
  const again = oneOf(['', '', `&${pair}`, '&&&=', `&${name}[]=1&${name}[x]=2`]);
  return `${path}${path.includes('?') ? '&' : '?'}${pair}${again}`;
}

/** `encodeURIComponent` takes no lone surrogate. */
function asScalar(text: string): string {
  return text.toWellFormed();
}

function spoiledPath(path: string, { random, oneOf }: Spoiling): string {
  const [plain = '', query] = path.split('?');
  const parts = plain.split('/');
  const at = 1 + pick(random, parts.length - 1);
  parts[at] = oneOf([
    encodeURIComponent(asScalar(oneOf(nastyTexts))),
    '%00',
    '%2e%2e',
    '..',
    '%',
    '%zz',
    '%ff',
    '.',
    '',
    '%2F%2F',
    '999999999999999999999',
    ';a=b',
    '%0d%0aX: y',
  ]).slice(0, 3_000);
  return `${parts.join('/')}${query === undefined ? '' : `?${query}`}`;
}

const headerNames = [
  'connection-id',
  'provider-config-key',
  'retries',
  'timeouts',
  'retry-on',
  'base-url-override',
  'decompress',
  'quota-wait',
  'x-async',
  'x-max-retries',
  'content-type',
  'accept',
  'accept-encoding',
  'last-event-id',
  'cookie',
  'x-trellis-environment',
  'origin',
  'range',
  'if-none-match',
  'x-forwarded-for',
  'x-request-id',
  'expect',
  'trellis-proxy-host',
];

function spoiledHeader(oneOf: Spoiling['oneOf']): [string, string] {
  const name = oneOf(headerNames);
  const value = oneOf([oneOf(nastyTexts), '-1', '99999999999', '', '\u00ff\u00fe', 'a'.repeat(9_000)]);
  // Characters that end the line concern the HTTP parser: see `server/http/wire.test.ts`.
  return [name, value.replace(/[\r\n\0]/g, ' ').replace(/[^\x20-\xff]/g, '?')];
}

/** All that comes until the connection ends; `closed` where nothing came, `late` where it did not end in time. */
async function answerTo(baseUrl: string, bytes: Buffer): Promise<string> {
  const { hostname, port } = new URL(baseUrl);
  const socket = connectSocket(Number(port), hostname);
  const chunks: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => chunks.push(chunk)).on('error', () => {});
  let isLate = false;
  const timer = setTimeout(() => {
    isLate = true;
    socket.destroy();
  }, answerWithinMs);
  socket.write(bytes);
  await once(socket, 'close').catch(() => {});
  clearTimeout(timer);
  const text = Buffer.concat(chunks).toString('latin1');
  return isLate ? 'late' : text === '' ? 'closed' : text;
}

function shortened(bytes: Buffer): string {
  const text = bytes.toString('latin1').replace(/authorization: .*/, 'authorization: ...');
  return text.length > 1_500 ? `${text.slice(0, 1_500)}... (${text.length})` : text;
}
