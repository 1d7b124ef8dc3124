import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { brandNames } from '../brand.ts';
import { createLog } from '../log.ts';
import { currentCause, outside } from '../tracing/tracing.ts';
import { createBareHttp } from './server.ts';

test('each line of the log that a request causes names it, once, wherever it is written', async () => {
  const lines: string[] = [];
  const log = createLog({ level: 'info', format: 'json' }, { write: (line) => void lines.push(line) });
  const config = { brand: brandNames('trellis'), trustedProxies: [], baseUrl: 'http://localhost:1' };
  const app = await createBareHttp({ config, log });
  const access = { by: 'anyone' } as const;
  app.post('/work', { config: { access } }, async (request) => {
    log.info('by the log of the service');
    request.log.info('by the log of the request');
    await pause(1);
    await Promise.all([1, 2].map(async () => log.info('behind a wait')));
    outside(() => log.info('of nobody'));
    return { id: currentCause()?.reqId ?? 'none' };
  });
  await app.listen({ host: '127.0.0.1', port: 0 });
  const { port } = app.server.address() as { port: number };
  const asked = await Promise.all(
    Array.from({ length: 20 }, async () => {
      const answer = await fetch(`http://127.0.0.1:${port}/work`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ filler: 'x'.repeat(100_000) }),
      });
      return [answer.headers.get('x-request-id'), ((await answer.json()) as { id: string }).id] as const;
    }),
  );
  await app.close();
  for (const [told, known] of asked) {
    assert.equal(known, told);
    const own = lines.filter((line) => line.includes(`"reqId":"${told}"`));
    assert.deepEqual(own.map((line) => (JSON.parse(line) as { msg: string }).msg).sort(), [
      'behind a wait',
      'behind a wait',
      'by the log of the request',
      'by the log of the service',
    ]);
    for (const line of own) assert.equal(line.split('"reqId"').length, 2, line);
  }
  assert.equal(lines.filter((line) => line.includes('of nobody') && !line.includes('reqId')).length, 20);
});
