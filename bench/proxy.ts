/**
 * The proxy against its floors, interleaved in one run.
 *
 * The same GET of 1 KB goes straight to the upstream, through a bare undici pass-through in the same runtime, and
 * through the service (key check, connection, header rules, credentials, address guard; its own process and database).
 * All of them share the machine's cores with the load generator: ratios compare between machines, rates do not.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createInterface } from 'node:readline';
import autocannon from 'autocannon';
import { Agent } from 'undici';
import { startRunningService } from '../test/support/service.ts';
import { type Benchmark, median } from './support.ts';

const connectionCounts = [1, 10, 50];

type Target = { name: string; url: string; headers?: Record<string, string> };
type Figure = { perSecond: number; p50Ms: number };

// In a process of its own: one of the servers that `startPart` starts.
if (import.meta.main) {
  if (process.argv[2] === 'upstream') serveUpstream();
  else servePassThrough(process.argv[3] ?? '');
}

export const proxyBenchmark: Benchmark = {
  about: 'GET of 1 KB through the service, against the upstream and a bare pass-through',
  run: ({ rounds, scale }) => runProxy({ rounds, seconds: scale === 'full' ? 3 : 1 }),
};

function serveUpstream(): void {
  const body = JSON.stringify({ text: 'x'.repeat(1024 - 11) });
  const headers = { 'content-type': 'application/json', 'content-length': String(body.length) };
  tellPort(createServer((_request, response) => response.writeHead(200, headers).end(body)));
}

/** No key, no rules, no guard: what a proxy costs in this runtime before it does anything. */
function servePassThrough(origin: string): void {
  const agent = new Agent({ allowH2: false });
  tellPort(
    createServer((request, response) => {
      const { url: path = '/', method = 'GET', headers } = request;
      const { host: _host, connection: _connection, ...passed } = headers;
      const body = method === 'GET' ? null : request;
      agent
        .stream({ origin, path, method, headers: passed, body }, ({ statusCode, headers }) => {
          const { connection: _hop, 'keep-alive': _time, ...kept } = headers;
          return response.writeHead(statusCode, kept);
        })
        .catch(() => response.destroy());
    }),
  );
}

function tellPort(server: ReturnType<typeof createServer>): void {
  server.listen(0, '127.0.0.1', () => console.log((server.address() as AddressInfo).port));
  process.on('disconnect', () => process.exit());
}

/** This file in another process, as one of the servers above. It ends with the channel to it. */
async function startPart(...words: string[]): Promise<{ url: string; stop: () => Promise<unknown> }> {
  const child = spawn(process.execPath, [import.meta.filename, ...words], {
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
  });
  const [port] = (await once(createInterface({ input: child.stdout! }), 'line')) as [string];
  const exited = once(child, 'exit');
  return {
    url: `http://127.0.0.1:${port}`,
    stop: () => {
      child.disconnect();
      return exited;
    },
  };
}

async function runProxy({ rounds, seconds }: { rounds: number; seconds: number }): Promise<void> {
  const upstream = await startPart('upstream');
  const passThrough = await startPart('pass-through', upstream.url);
  const service = await startRunningService({ env: { TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8' } });
  try {
    await service.call('POST', '/integrations', {
      body: {
        unique_key: 'bench',
        provider: 'private-api-key',
        integration_config: { base_url: upstream.url },
      },
    });
    await service.call('POST', '/connections', {
      body: {
        provider_config_key: 'bench',
        connection_id: 'bench',
        credentials: { type: 'API_KEY', apiKey: 'secret' },
      },
    });
    const headers = {
      authorization: `Bearer ${service.secretKey}`,
      'provider-config-key': 'bench',
      'connection-id': 'bench',
    };
    const targets: Target[] = [
      { name: 'straight', url: `${upstream.url}/v1/things` },
      { name: 'pass-through', url: `${passThrough.url}/v1/things` },
      { name: 'service', url: `${service.baseUrl}/proxy/v1/things`, headers },
    ];
    for (const target of targets) await load(target, { connections: 50, seconds: 2 }); // warm
    for (const connections of connectionCounts) {
      report(connections, await measure(targets, { connections, rounds, seconds }));
    }
  } finally {
    await service.stop();
    await passThrough.stop();
    await upstream.stop();
  }
}

/** The targets in turn, round by round, so that a slower moment of the machine meets all of them. */
async function measure(
  targets: Target[],
  { connections, rounds, seconds }: { connections: number; rounds: number; seconds: number },
): Promise<Map<string, Figure>> {
  const runs = new Map<string, Figure[]>(targets.map(({ name }) => [name, []]));
  for (let round = 0; round < rounds; round++) {
    for (const target of targets) runs.get(target.name)?.push(await load(target, { connections, seconds }));
  }
  return new Map(
    [...runs].map(([name, figures]) => [
      name,
      {
        perSecond: median(figures.map((figure) => figure.perSecond)),
        p50Ms: median(figures.map((figure) => figure.p50Ms)),
      },
    ]),
  );
}

async function load(
  { url, headers = {} }: Target,
  { connections, seconds }: { connections: number; seconds: number },
): Promise<Figure> {
  const timesMs: number[] = [];
  const startedAt = performance.now();
  const run = autocannon({ url, headers, connections, duration: seconds });
  run.on('response', (_client, _status, _bytes, ms) => timesMs.push(ms));
  const result = await run;
  if (result.non2xx > 0 || result.errors > 0) {
    throw new Error(`${url}: ${result.non2xx} answers other than 2xx, ${result.errors} errors`);
  }
  const perSecond = result['2xx'] / ((performance.now() - startedAt) / 1000);
  return { perSecond, p50Ms: median(timesMs) };
}

function report(connections: number, figures: Map<string, Figure>): void {
  const straight = figures.get('straight')!;
  const passThrough = figures.get('pass-through')!;
  console.log(`GET of 1 KB at ${connections} connection${connections === 1 ? '' : 's'}`);
  for (const [name, { perSecond, p50Ms }] of figures) {
    const ratios = `${ratio(perSecond, straight.perSecond)} of straight, ${ratio(perSecond, passThrough.perSecond)} of pass-through`;
    console.log(
      `  ${name.padEnd(13)} ${perSecond.toFixed(0).padStart(6)}/s  p50 ${p50Ms.toFixed(2)} ms  ${ratios}`,
    );
  }
}

function ratio(one: number, other: number): string {
  return (one / other).toFixed(2);
}
