import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { after, before, test } from 'node:test';
import { constants, createGzip, gzipSync } from 'node:zlib';
import { openTicketed, type Ticketed } from './ticket-subject.ts';

const max = Buffer.alloc(1000, 'x');
let ticketed: Ticketed;
let ticket: string;

before(async () => {
  ticketed = await openTicketed();
  ticket = await ticketed.ticketOf({ methods: ['GET', 'POST'], max_bytes: max.length });
});
after(() => ticketed.close());

/** What the provider has read of each body. */
function readBodies(): string[] {
  const received: string[] = [];
  ticketed.provider.answering = async (request, response) => {
    try {
      let size = 0;
      for await (const part of request) size += (part as Buffer).length;
      received.push(`whole ${size}`);
      response.end('ok');
    } catch {
      received.push('broken');
    }
  };
  return received;
}

const post = (parts: Buffer[], headers: Record<string, string> = {}) =>
  ticketed.ask(ticket, '/proxy/open/a', { method: 'POST', parts, headers });

test('no body has more bytes than its ticket allows, announced or not', async () => {
  const received = readBodies();
  assert.equal((await post([max], { 'content-length': '1000' })).status, 200);
  assert.equal((await post([max.subarray(1), Buffer.from('x')])).status, 200);
  assert.deepEqual(received.splice(0), ['whole 1000', 'whole 1000']);
  ticketed.provider.seen = [];
  const announced = await post([max, Buffer.from('x')], { 'content-length': '1001' });
  assert.deepEqual([announced.status, announced.code], [413, 'ticket_bytes_exceeded']);
  assert.deepEqual(ticketed.provider.seen, []);
  const chunked = await post([max, Buffer.from('x')]);
  assert.deepEqual([chunked.status, chunked.code], [413, 'ticket_bytes_exceeded']);
  assert.ok(!received.some((what) => what.startsWith('whole')), String(received));
});

test('an answer that announces more bytes than its ticket allows is none, and one of as many is whole', async () => {
  ticketed.provider.answering = (_request, response) => void response.end(max);
  assert.equal((await ticketed.ask(ticket, '/proxy/open/a')).text.length, 1000);
  ticketed.provider.answering = (_request, response) => void response.end(Buffer.alloc(1001, 'x'));
  const long = await ticketed.ask(ticket, '/proxy/open/a');
  assert.deepEqual([long.status, long.code], [502, 'ticket_bytes_exceeded']);
  assert.equal(await ticketed.codeOf(ticket, '/proxy/open/a', { method: 'HEAD' }), 200);
});

/** Asks for an answer of which the rest comes when the caller has got a first part. */
async function askInTwo(
  begin: (response: ServerResponse) => () => void,
  headers: Record<string, string> = {},
): Promise<{ status: number | undefined; size: number; isWhole: boolean }> {
  const first = Promise.withResolvers<void>();
  ticketed.provider.answering = (_request, response) => {
    const goOn = begin(response);
    first.promise.then(goOn);
  };
  let size = 0;
  const onPart = (part: Buffer) => {
    size += part.length;
    first.resolve();
  };
  const { status, isWhole } = await ticketed.ask(ticket, '/proxy/open/a', { headers, onPart });
  return { status, size, isWhole };
}

test('an answer that announces no length is broken off at the limit, and not before', async () => {
  const { status, size, isWhole } = await askInTwo((response) => {
    response.write(Buffer.alloc(600, 'x'));
    return () => response.end(Buffer.alloc(600, 'x'));
  });
  assert.deepEqual([status, isWhole], [200, false]);
  assert.ok(size > 0 && size <= 1000, String(size));
  const fitting = await askInTwo((response) => {
    response.write(Buffer.alloc(600, 'x'));
    return () => response.end(Buffer.alloc(400, 'x'));
  });
  assert.deepEqual(fitting, { status: 200, size: 1000, isWhole: true });
});

test('of an answer that is decoded on its way the decoded bytes count', async () => {
  const small = gzipSync(Buffer.alloc(500_000, 'x'));
  assert.ok(small.length <= max.length);
  ticketed.provider.answering = (_request, response) => {
    response.setHeader('content-encoding', 'gzip').end(small);
  };
  assert.equal((await ticketed.ask(ticket, '/proxy/open/a')).text.length, small.length, 'as it came');
  const zipped = (rest: number) => (response: ServerResponse) => {
    response.setHeader('content-encoding', 'gzip');
    const gzip = createGzip({ flush: constants.Z_SYNC_FLUSH });
    gzip.pipe(response);
    gzip.write(Buffer.alloc(600, 'x'));
    return () => void gzip.end(Buffer.alloc(rest, 'x'));
  };
  const decoded = await askInTwo(zipped(500_000), { decompress: 'true' });
  assert.deepEqual([decoded.status, decoded.isWhole], [200, false]);
  assert.ok(decoded.size > 0 && decoded.size <= 1000, String(decoded.size));
  const fitting = await askInTwo(zipped(400), { decompress: 'true' });
  assert.deepEqual(fitting, { status: 200, size: 1000, isWhole: true });
});
