import assert from 'node:assert/strict';
import { test } from 'node:test';
import { connect, openTrellis } from '../support/trellis.ts';

test('without the sandbox, test credentials are refused and test connections answer 424', async (t) => {
  const trellis = await openTrellis();
  t.after(() => trellis.close());
  const { headers, connectionId } = await connect(trellis);
  const off = await trellis.serveWithoutSandbox();
  t.after(() => off.close());
  const made = await off.call('POST', '/integrations', {
    body: { provider: 'google-sheet', unique_key: 'more', credentials: { type: 'TEST' } },
  });
  assert.deepEqual([made.status, codeOf(made.body)], [400, 'test_credentials_unavailable']);
  const answers = [
    await off.call('GET', '/proxy/v4/spreadsheets/x', { headers }),
    await off.call('GET', '/records?model=M', { headers }),
    await off.call('GET', `/connections/${connectionId}?provider_config_key=google-sheet`),
  ];
  for (const answer of answers) assert.equal(answer.status, 424, answer.text);
  assert.equal(answers[0]?.headers.get('x-trellis-error'), 'test_credentials_unavailable');
  const session = await off.call('POST', '/connect/sessions', { body: { end_user: { id: 'x' } } });
  const { token } = session.body.data as { token: string };
  const begun = await off.call('GET', `/oauth/connect/google-sheet?connect_session_token=${token}`, {
    key: undefined,
  });
  assert.equal(begun.headers.get('location'), null, 'nobody is sent to the real provider');
  assert.ok(begun.status >= 400, begun.text);
  const [integration] = (await off.call('GET', '/integrations')).body.data as { test: boolean }[];
  assert.equal(integration?.test, true);
});

function codeOf(body: Record<string, unknown>): string {
  return (body.error as { code: string }).code;
}
