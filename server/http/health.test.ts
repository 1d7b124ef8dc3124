import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { brandNames } from '../brand.ts';
import { AppError } from '../errors.ts';
import { createLog } from '../log.ts';
import { healthRoutes, type ReadyCheck } from './health.ts';
import { type App, createBareHttp } from './server.ts';

test('ready lists each check as ok', async () => {
  const { ready } = await serve([{ name: 'database', find: async () => undefined }]);
  assert.deepEqual(await ready(), [200, { result: 'ok', checks: { database: 'ok' } }]);
});

test('ready is 503 with the problem, and without the message of an error', async () => {
  const { ready } = await serve([
    { name: 'keys', find: async () => 'The master key "k1" is missing.' },
    { name: 'migrations', find: () => Promise.reject(new Error('host db.internal, user boss')) },
    { name: 'database', find: () => Promise.reject(new AppError('unavailable', 'boss@db.internal')) },
  ]);
  const [status, body] = await ready();
  assert.equal(status, 503);
  const { code, payload } = (body as { error: { code: string; payload: unknown } }).error;
  assert.equal(code, 'unavailable');
  assert.deepEqual(payload, {
    checks: {
      keys: 'The master key "k1" is missing.',
      migrations: 'The check failed.',
      database: 'The database does not answer.',
    },
  });
  assert.doesNotMatch(JSON.stringify(body), /boss|internal/);
});

test('twenty concurrent requests share one round of checks', async () => {
  let rounds = 0;
  const opened = Promise.withResolvers<undefined>();
  const find = () => {
    rounds += 1;
    return opened.promise;
  };
  const { ready } = await serve([{ name: 'database', find }]);
  const asked = Array.from({ length: 20 }, ready);
  setImmediate(() => opened.resolve(undefined));
  for (const [status] of await Promise.all(asked)) assert.equal(status, 200);
  assert.equal(rounds, 1);
});

test('a check that hangs is reported as without answer, and runs once at a time', async () => {
  let asked = 0;
  const find = () => {
    asked += 1;
    return new Promise<undefined>(() => {});
  };
  const { ready } = await serve([{ name: 'database', find }]);
  const [[status, body]] = await Promise.all([ready(), ready()]);
  assert.equal(status, 503);
  assert.match(JSON.stringify(body), /No answer within 2 s/);
  assert.equal(asked, 1);
});

test('a service that stops is healthy, but not ready', async () => {
  const served = await serve([]);
  served.stop();
  assert.equal((await served.ready())[0], 503);
  assert.equal((await served.app.inject('/health')).statusCode, 200);
});

const apps: App[] = [];
afterEach(() => Promise.all(apps.splice(0).map((app) => app.close())));

async function serve(checks: readonly ReadyCheck[]) {
  const app = await createBareHttp({
    config: { brand: brandNames('trellis'), trustedProxies: [], baseUrl: 'http://localhost' },
    log: createLog({ level: 'silent', format: 'json' }),
  });
  apps.push(app);
  let isStopping = false;
  healthRoutes(app, { checks, isStopping: () => isStopping });
  const ready = async (): Promise<[number, unknown]> => {
    const answer = await app.inject('/ready');
    return [answer.statusCode, answer.json()];
  };
  return { app, ready, stop: () => (isStopping = true) };
}
