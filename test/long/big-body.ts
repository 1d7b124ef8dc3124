/** A body of any size up and down through the service, made as it goes, hashed at both ends, held at neither. */
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { type RunningService, startRunningService } from '../support/service.ts';

const mebibyte = 1024 * 1024;

/** SHA-256 at either end, and the most that the service's memory grew meanwhile. */
type Passage = { sent: string; received: string; grownMb: number; mbPerSecond: number };

/** Sends `sizeMb` up, then down, through a service of its own. */
export async function passBody(sizeMb: number): Promise<{ up: Passage; down: Passage }> {
  const upstream = await startUpstream();
  const service = await startRunningService({ env: { TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8' } });
  try {
    const headers = await connectTo(service, upstream.url);
    const send = (method: string, mb: number) => callUpstream({ service, headers, method, mb });
    // What the first calls load and compile is not about the size of a body.
    for (const method of ['PUT', 'GET']) await send(method, 16);
    const up = await watched(service.pid, sizeMb, async () => {
      const { sent, text } = await send('PUT', sizeMb);
      return { sent, received: text };
    });
    const down = await watched(service.pid, sizeMb, async () => {
      const { received } = await send('GET', sizeMb);
      return { sent: await upstream.sent(), received };
    });
    return { up, down };
  } finally {
    await service.stop();
    await upstream.close();
  }
}

/** Blocks of a megabyte that differ from each other, so that a lost, doubled or moved one changes the hash. */
function* blocks(sizeMb: number, hash: ReturnType<typeof createHash>): Generator<Buffer> {
  const noise = randomBytes(mebibyte);
  for (let number = 0; number < sizeMb; number++) {
    const block = Buffer.from(noise);
    block.writeUInt32BE(number);
    hash.update(block);
    yield block;
  }
}

/** Hashes what it is sent and throws it away; makes what it is asked for. */
async function startUpstream() {
  let sent = Promise.withResolvers<string>();
  const server = createServer(async (message, response) => {
    if (message.method === 'PUT') {
      response.end(await hashOf(message));
      return;
    }
    const hash = createHash('sha256');
    const sizeMb = Number(message.url?.slice(1));
    sent = Promise.withResolvers<string>();
    response.writeHead(200, { 'content-length': sizeMb * mebibyte });
    await pipeline(Readable.from(blocks(sizeMb, hash)), response);
    sent.resolve(hash.digest('hex'));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    sent: () => sent.promise,
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

async function connectTo({ call }: RunningService, baseUrl: string): Promise<Record<string, string>> {
  await call('POST', '/integrations', {
    body: { unique_key: 'big', provider: 'private-api-key', integration_config: { base_url: baseUrl } },
  });
  await call('POST', '/connections', {
    body: {
      provider_config_key: 'big',
      connection_id: 'big',
      credentials: { type: 'API_KEY', apiKey: 'secret-of-the-provider' },
    },
  });
  return { 'provider-config-key': 'big', 'connection-id': 'big' };
}

/** A GET is answered with the hash of what came, a PUT with the hash of what went and the upstream's answer. */
async function callUpstream(by: {
  service: RunningService;
  headers: Record<string, string>;
  method: string;
  mb: number;
}): Promise<{ sent: string; received: string; text: string }> {
  const { service, method, mb } = by;
  const isUp = method === 'PUT';
  const asked = request(`${service.baseUrl}/proxy/${mb}`, {
    method,
    agent: false,
    headers: {
      authorization: `Bearer ${service.secretKey}`,
      ...by.headers,
      ...(isUp && { 'content-length': mb * mebibyte }),
    },
  });
  const answered = once(asked, 'response') as Promise<[IncomingMessage]>;
  const hash = createHash('sha256');
  if (isUp) await pipeline(Readable.from(blocks(mb, hash)), asked);
  else asked.end();
  const [response] = await answered;
  assert.equal(response.statusCode, 200);
  if (!isUp) return { sent: '', received: await hashOf(response), text: '' };
  const text = (await response.toArray()).join('');
  return { sent: hash.digest('hex'), received: '', text };
}

async function hashOf(stream: AsyncIterable<Buffer>): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of stream) hash.update(chunk);
  return hash.digest('hex');
}

async function watched(
  pid: number,
  sizeMb: number,
  pass: () => Promise<{ sent: string; received: string }>,
): Promise<Passage> {
  const before = await rssMbOf(pid);
  let peak = before;
  const timer = setInterval(async () => {
    peak = Math.max(peak, await rssMbOf(pid));
  }, 50);
  const startedAt = performance.now();
  try {
    const hashes = await pass();
    const seconds = (performance.now() - startedAt) / 1000;
    return { ...hashes, grownMb: peak - before, mbPerSecond: sizeMb / seconds };
  } finally {
    clearInterval(timer);
  }
}

async function rssMbOf(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1024;
}
