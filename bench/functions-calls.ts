// What a function's calls of the service take, and a whole sync, beside the same done straight over HTTP by a plain process.

import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { deployBody, flowConfig } from '../test/support/functions.ts';
import { functionProcessesOf, takenBy } from '../test/support/processes.ts';
import type { Work } from './functions-plain.ts';
import {
  type BenchOptions,
  type BenchService,
  median,
  openBenchService,
  rate,
  report,
  timed,
} from './support.ts';

const rowsPerPage = 1000;
const fullPages = 100;

const define = (type: string, fields: string, exec: string) => `"use strict";
const { z } = require("zod");
exports.default = { type: "${type}", description: "A benchmark.", ${fields} exec: async (trellis, input) => { ${exec} } };`;

/** Reads page after page and saves each. */
const syncCode = (pages: number) =>
  define(
    'sync',
    'frequency: "every day", autoStart: false, models: { Row: z.object({ id: z.string(), name: z.string() }).loose() },',
    `for (let page = 0; page < ${pages}; page++) {
      const { data } = await trellis.get({ endpoint: "/pages/" + page });
      await trellis.batchSave(data.rows, "Row");
    }`,
  );
/** Answers what one of so many calls took, in ms. */
const callsCode = define(
  'action',
  'input: z.any(), output: z.any(),',
  `const calls = {
    checkpoint: () => trellis.getCheckpoint(),
    metadata: () => trellis.getMetadata(),
    log: () => trellis.log("a line"),
    get: () => trellis.get({ endpoint: "/small" }),
  };
  await calls[input.name]();
  const startedAt = Date.now();
  for (let nth = 0; nth < input.count; nth++) await calls[input.name]();
  return (Date.now() - startedAt) / input.count;`,
);

type Stage = { bench: BenchService; plain: ChildProcess };

export async function measureCalls({ rounds, scale }: BenchOptions): Promise<void> {
  const pages = scale === 'full' ? fullPages : fullPages / 10;
  const provider = await startProvider(pages);
  const bench = await openBenchService({ baseUrl: provider.url });
  const plain = fork(join(import.meta.dirname, 'functions-plain.ts'));
  const stage = { bench, plain };
  try {
    const { pid } = bench.service;
    await reportProcesses('processes of functions before any is needed', pid);
    const flows = [
      flowConfig({ integration: 'bench', name: 'pages', type: 'sync', code: syncCode(pages) }),
      flowConfig({ integration: 'bench', name: 'calls', type: 'action', code: callsCode }),
    ];
    await bench.service.call('POST', '/functions/deploys', { body: deployBody(flows) });
    await reportCalls(stage, { rounds, count: scale === 'full' ? 2_000 : 300 });
    await reportSync(stage, { rounds, pages });
    await reportProcesses('processes of functions after it', pid);
    if (scale === 'quick') return;
    // They are kept for a minute.
    await pause(65_000);
    await reportProcesses('processes of functions a minute later', pid);
  } finally {
    plain.disconnect();
    await bench.close();
    provider.close();
  }
}

/** Pages of rows of about 250 bytes, made before they are asked for, and a small answer. */
async function startProvider(pages: number): Promise<{ url: string; close(): void }> {
  const bodies = Array.from({ length: pages }, (_, page) =>
    Buffer.from(
      JSON.stringify({ rows: Array.from({ length: rowsPerPage }, (_, n) => row(page * rowsPerPage + n)) }),
    ),
  );
  const small = Buffer.from(JSON.stringify(row(0)));
  const server = createServer((request, response) => {
    const [, page] = /^\/pages\/(\d+)$/.exec(request.url ?? '') ?? [];
    response.setHeader('content-type', 'application/json');
    response.end(page === undefined ? small : bodies[Number(page)]);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const close = () => {
    server.close();
    server.closeAllConnections();
  };
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close };
}

function row(n: number): object {
  const text = `text of row ${n} `.repeat(8);
  return {
    id: `row-${n}`,
    name: `Name ${n}`,
    amount: n * 1.25,
    active: n % 2 === 0,
    text,
    tags: ['one', 'two'],
  };
}

async function reportCalls({ bench, plain }: Stage, { rounds, count }: { rounds: number; count: number }) {
  const headers = await bench.makeConnection();
  const call = async (name: string) =>
    Number(
      await bench.service.call('POST', '/functions/actions/trigger', {
        headers,
        body: { action_name: 'calls', input: { name, count } },
      }),
    );
  const names = ['checkpoint', 'metadata', 'log', 'get'] as const;
  const figures = Object.fromEntries(names.map((name) => [name, [] as number[]]));
  const bare = { select: [] as number[], get: [] as number[] };
  const client = await bench.connectBare();
  await call('get');
  for (let round = 0; round < rounds; round += 1) {
    for (const name of names) figures[name]!.push(await call(name));
    const selects = async () => {
      for (let nth = 0; nth < count; nth += 1)
        await client.query('select value, version from function_checkpoint where connection_id = $1', [nth]);
    };
    bare.select.push((await timed(selects)) / count);
    bare.get.push((await plainly({ bench, plain }, { kind: 'gets', count, headers })) / count);
  }
  const show = (name: string, ms: number[], floor?: { ms: number[]; max: number }) =>
    report(
      name,
      `${median(ms).toFixed(3)} ms`,
      floor && { ratio: median(ms) / median(floor.ms), must: `<= ${floor.max}` },
    );
  show('bare: a select by the same driver', bare.select);
  show('getCheckpoint', figures.checkpoint!, { ms: bare.select, max: 3 });
  show('getMetadata, known for a minute', figures.metadata!);
  show('log', figures.log!);
  show('bare: GET through the proxy over HTTP', bare.get);
  show('get', figures.get!, { ms: bare.get, max: 3 });
}

async function reportSync({ bench, plain }: Stage, { rounds, pages }: { rounds: number; pages: number }) {
  const times = { sync: [] as number[], plain: [] as number[], again: [] as number[] };
  const cpu = { sync: [] as number[], plain: [] as number[] };
  for (let round = -1; round < rounds; round += 1) {
    const [ofSync, ofPlain] = [await bench.makeConnection(), await bench.makeConnection()];
    const { pid } = bench.service;
    const before = await cpuOf(pid);
    const sync = await timed(() => runSync(bench, ofSync));
    const between = await cpuOf(pid);
    const ms = await plainly({ bench, plain }, { kind: 'pages', count: pages, headers: ofPlain });
    const after = await cpuOf(pid);
    const again = await timed(() => runSync(bench, ofSync));
    if (round < 0) continue; // warm
    times.sync.push(sync);
    times.plain.push(ms);
    times.again.push(again);
    cpu.sync.push(between - before);
    cpu.plain.push(after - between);
  }
  const count = pages * rowsPerPage;
  console.log(`  ${count.toLocaleString('en')} records in ${pages} pages, read and saved`);
  report('bare: a plain process over HTTP', rate(count, median(times.plain)));
  report('sync', rate(count, median(times.sync)), {
    ratio: median(times.plain) / median(times.sync),
    must: '>= 0.6',
  });
  report('sync of unchanged records', rate(count, median(times.again)));
  report("the service's processor time, sync / plain", '', {
    ratio: median(cpu.sync) / median(cpu.plain),
    must: '<= 1.3',
  });
}

async function cpuOf(pid: number): Promise<number> {
  return (await takenBy(pid))?.cpuMs ?? Number.NaN;
}

async function runSync(bench: BenchService, headers: Record<string, string>): Promise<void> {
  const { 'connection-id': connection } = headers;
  await bench.service.call('POST', '/functions/syncs/trigger', { headers, body: { syncs: ['pages'] } });
  for (;;) {
    const { runs } = (await bench.service.call(
      'GET',
      `/functions/runs?connection_id=${connection}&limit=1`,
    )) as {
      runs: { state: string; error: unknown }[];
    };
    const { state, error } = runs[0]!;
    if (state === 'succeeded') return;
    if (state !== 'waiting' && state !== 'running') throw new Error(JSON.stringify(error));
    await pause(20);
  }
}

/** In ms. */
async function plainly(
  { bench, plain }: Stage,
  work: Omit<Work, 'url' | 'headers'> & { headers: Record<string, string> },
): Promise<number> {
  const { baseUrl: url, secretKey } = bench.service;
  plain.send({ ...work, url, headers: { ...work.headers, authorization: `Bearer ${secretKey}` } });
  const [ms] = (await once(plain, 'message')) as [number];
  return ms;
}

async function reportProcesses(name: string, pid: number): Promise<void> {
  const taken = await Promise.all((await functionProcessesOf(pid)).map(takenBy));
  const memory = taken.map((one) => `${one?.pssMb.toFixed(0)} MB`).join(', ');
  report(name, `${taken.length}${memory && ` (PSS ${memory})`}`);
}
