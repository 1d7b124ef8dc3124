// What a function does, done by a process that calls the service's interface straight: one call after the other over a
// connection that is kept. It is sent its work, and answers how many ms that took.

import { Agent, request } from 'node:http';

/** `pages`: reads so many pages and saves each. `gets`: reads something small so many times. */
export type Work = {
  kind: 'pages' | 'gets';
  count: number;
  /** Of the service. */
  url: string;
  headers: Record<string, string>;
};

const agent = new Agent({ keepAlive: true, maxSockets: 1 });

async function call(method: string, path: string, { url, headers }: Work, body?: string): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const typed =
    body === undefined
      ? {}
      : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
  request(new URL(path, url), { method, agent, headers: { ...headers, ...typed } }, (answer) => {
    const parts: Buffer[] = [];
    answer.on('data', (part: Buffer) => parts.push(part)).on('error', reject);
    answer.on('end', () => {
      const text = Buffer.concat(parts).toString();
      if (answer.statusCode === 200) resolve(text);
      else reject(new Error(`${method} ${path}: ${answer.statusCode} ${text.slice(0, 500)}`));
    });
  })
    .on('error', reject)
    .end(body);
  return promise;
}

const ways: Record<Work['kind'], (nth: number, work: Work) => Promise<unknown>> = {
  async pages(nth, work) {
    const { rows } = JSON.parse(await call('GET', `/proxy/pages/${nth}`, work)) as { rows: unknown[] };
    await call('POST', '/records', work, JSON.stringify({ model: 'Row', records: rows }));
  },
  gets: async (_nth, work) => JSON.parse(await call('GET', '/proxy/small', work)),
};

process.on('message', async (work: Work) => {
  const startedAt = performance.now();
  for (let nth = 0; nth < work.count; nth += 1) await ways[work.kind](nth, work);
  process.send!(performance.now() - startedAt);
});
process.on('disconnect', () => process.exit());
