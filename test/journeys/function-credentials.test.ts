// Slow: its functions run in processes of their own.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { actionCode, deployBody, flowConfig } from '../support/functions.ts';
import { connect, openTrellis, type TestTrellis } from '../support/trellis.ts';

/** What functions get of credentials that are renewed. */
let trellis: TestTrellis;
let headers: Record<string, string>;
before(async () => {
  trellis = await openTrellis();
  ({ headers } = await connect(trellis));
});
after(() => trellis?.close());

async function run(body: string, more = ''): Promise<Record<string, unknown>> {
  const code = actionCode({
    more: `${more} input: z.any(), output: z.any(), exec: async (nango, input) => { ${body} },`,
  });
  const deployed = deployBody([flowConfig({ name: 'asks', code })]);
  assert.equal((await trellis.call('POST', '/sync/deploy', { body: deployed })).status, 200);
  const answer = await trellis.call('POST', '/action/trigger', { headers, body: { action_name: 'asks' } });
  assert.equal(answer.status, 200, answer.text);
  return answer.body;
}

test('forceRefresh renews the token once, and the next request gets the new token', async () => {
  const told = await run(`
    const of = ({ credentials }) => credentials.access_token;
    const before = await nango.getConnection();
    const renewed = await nango.getConnection(undefined, undefined, { forceRefresh: true });
    return {
      isNew: of(renewed) !== of(before),
      isKept: of(await nango.getConnection()) === of(renewed) && (await nango.getToken()) === of(renewed),
      works: (await nango.get({ endpoint: '/v4/spreadsheets/none' }).catch((error) => error.response)).status,
      fields: Object.keys(renewed.credentials),
      end_user: renewed.end_user,
    };
  `);
  const { fields, end_user, ...rest } = told;
  assert.deepEqual(rest, { isNew: true, isKept: true, works: 404 });
  assert.equal((fields as string[]).includes('refresh_token'), false);
  assert.ok(end_user === null || 'organization' in (end_user as object));
});

test('credentials that are judged are not renewed by the code that judges them', async () => {
  const judge = `exports.default = {
    type: 'onEvent', description: 'A test.', event: 'validate-connection',
    async exec(nango) {
      await nango.getConnection();
      const error = await nango.getConnection(undefined, undefined, { forceRefresh: true }).catch((error) => error);
      if (error.code !== 'invalid_body') throw new Error('renewed');
    },
  };`;
  const scripts = [{ name: 'judge', event: 'validate-connection', fileBody: { js: judge, ts: '' } }];
  const body = deployBody([], { onEventScriptsByProvider: [{ providerConfigKey: 'google-sheet', scripts }] });
  assert.equal((await trellis.call('POST', '/sync/deploy', { body })).status, 200);
  await connect(trellis);
});
