import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { after, before, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { openTicketed, place, type Ticketed } from '../journeys/ticket-subject.ts';
import { actionCode, deployBody, flowConfig } from '../support/functions.ts';

/** What others answer with: a megabyte that unfolds to a gigabyte. */
const mb = 1024 * 1024;
const unfoldedMb = 1024;
/** Concatenated members are one stream (RFC 1952 §2.2). */
const bomb = Buffer.concat(Array(unfoldedMb / 16).fill(gzipSync(Buffer.alloc(16 * mb, ' '))));
const explode = (_request: unknown, response: ServerResponse) =>
  void response.writeHead(200, { 'content-encoding': 'gzip', 'content-type': 'application/json' }).end(bomb);

let ticketed: Ticketed;
before(async () => {
  ticketed = await openTicketed();
  ticketed.provider.answering = explode;
});
after(() => ticketed.close());

/** The most that this process held while `work` ran, beyond what it holds before, in MB. */
async function grownBy(work: () => Promise<void>): Promise<number> {
  const before = process.memoryUsage.rss();
  let max = before;
  const timer = setInterval(() => {
    max = Math.max(max, process.memoryUsage.rss());
  }, 10);
  await work().finally(() => clearInterval(timer));
  return (max - before) / mb;
}

test('through the proxy it passes as it is, and unfolded where the caller asks, at flat memory', async (t) => {
  const key = ticketed.trellis.keys.dev;
  const folded = await ticketed.ask(key, '/proxy/open/a');
  assert.equal(folded.text.length, bomb.length);
  let bytes = 0;
  const grown = await grownBy(async () => {
    const answer = await fetch(`${ticketed.trellis.baseUrl}/proxy/open/a`, {
      headers: { authorization: `Bearer ${key}`, ...place, decompress: 'true' },
    });
    for await (const part of answer.body!) bytes += part.length;
  });
  assert.equal(bytes, unfoldedMb * mb);
  t.diagnostic(`grew by ${grown.toFixed(0)} MB`);
  assert.ok(grown < 200, String(grown));
});

test('a function that reads it whole runs out of its own memory, and the service goes on', async (t) => {
  const exec = (body: string) =>
    actionCode({ more: `input: z.any(), output: z.any(), exec: async (nango) => { ${body} },` });
  const codes = {
    bomb: exec('return { length: (await nango.get({ endpoint: "/open/a" })).data.length }'),
    paginated: exec(
      `for await (const page of nango.paginate({ endpoint: "/open/a", paginate: { type: "link", link_path_in_response_body: "next" } })) return page.length`,
    ),
    fetched: exec(
      `const answer = await nango.uncontrolledFetch({ url: new URL("${ticketed.provider.origin}/open/a") });
       return { bytes: (await answer.arrayBuffer()).byteLength }`,
    ),
    calm: exec('return "calm"'),
  };
  const flows = Object.entries(codes).map(([name, code]) => flowConfig({ name, code, integration: 'own' }));
  const deployed = await ticketed.trellis.call('POST', '/sync/deploy', { body: deployBody(flows) });
  assert.equal(deployed.status, 200, deployed.text);
  const call = async (name: string) => {
    const answer = await ticketed.trellis.call('POST', '/action/trigger', {
      headers: place,
      body: { action_name: name },
    });
    return answer;
  };
  const grown = await grownBy(async () => {
    for (const name of ['bomb', 'paginated']) {
      const { status, text } = await call(name);
      assert.match(text, /function_out_of_memory/, `${name}: ${status} ${text.slice(0, 300)}`);
    }
    // Nobody unfolds what a function fetches by itself.
    const fetched = await call('fetched');
    assert.deepEqual(fetched.body, { bytes: bomb.length }, fetched.text.slice(0, 300));
  });
  t.diagnostic(`grew by ${grown.toFixed(0)} MB`);
  assert.ok(grown < 300, String(grown));
  assert.equal((await call('calm')).text, '"calm"');
});
