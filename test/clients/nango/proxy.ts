import assert from 'node:assert/strict';
import { answer, openReceiver } from '../../../server/deliveries/deliveries.fixture.ts';
import { type MethodTests, type NodeSubject, refusal } from './subject.ts';

/** Calls of a provider's API: what arrives there, and what comes back. */
export const proxyMethods: MethodTests = {
  async proxy(subject) {
    const { client, privatePlace } = subject;
    for (const method of ['GET', 'POST', 'PATCH', 'PUT', 'DELETE', 'PROPFIND', 'REPORT'] as const) {
      const { status, data } = await client.proxy<{ its: string }>({
        ...privatePlace,
        method,
        endpoint: '/dav/calendar?depth=1',
        headers: { Depth: '1', 'Content-Type': 'application/xml' },
        ...(method !== 'GET' && { data: '<query/>' }),
      });
      assert.deepEqual([status, data], [207, { its: 'answer' }], method);
      const { received, headers } = arrived(subject);
      assert.deepEqual(
        [received.method, received.path, received.body],
        [method, '/dav/calendar?depth=1', method === 'GET' ? '' : '<query/>'],
      );
      assert.deepEqual([headers.depth, headers['content-type']], ['1', 'application/xml']);
      // What brought it here does not go on.
      const names = Object.keys(headers).filter((name) => /nango|provider-config|connection-id/.test(name));
      assert.deepEqual(names, []);
      assert.equal(headers.authorization, 'Bearer the key of the provider');
    }
    const { trellis } = subject;
    const unplaced = client.proxy({ endpoint: '/', method: 'GET' });
    await assert.rejects(unplaced, /providerConfigKey is missing/);
    // Where the client was made with a place, it need not be named again.
    const { Nango } = await import('@nangohq/node');
    const placed = new Nango({ host: trellis.baseUrl, secretKey: trellis.keys.dev, ...privatePlace });
    assert.equal((await placed.proxy({ endpoint: 'here', method: 'GET' })).status, 207);
    assert.equal(arrived(subject).received.path, '/here');
  },

  async get(subject) {
    const { client, place, privatePlace } = subject;
    const { spreadsheetId, values } = await sheet(subject);
    assert.deepEqual(values, [
      ['a', 'b'],
      ['c', 'd'],
    ]);
    const params = { ranges: 'A1:A2', majorDimension: 'COLUMNS' };
    const { data } = await client.get<{ valueRanges: { values: string[][] }[] }>({
      ...place,
      endpoint: `/v4/spreadsheets/${spreadsheetId}/values:batchGet`,
      params,
      retries: 2,
    });
    assert.deepEqual(data.valueRanges[0]?.values, [['a', 'c']]);
    const bytes = await client.get<ArrayBuffer>({
      ...privatePlace,
      endpoint: '/file',
      responseType: 'arraybuffer',
      decompress: true,
    });
    assert.equal(Buffer.from(bytes.data).toString(), '{"its":"answer"}');
    await client.get({ ...privatePlace, endpoint: '/there', params: 'a=1&a=2' });
    assert.equal(arrived(subject).received.path, '/there?a=1&a=2');
    const baseUrlOverride = new URL(subject.upstream.url).origin.replace('127.0.0.1', 'localhost');
    const elsewhere = { ...privatePlace, endpoint: '/there', baseUrlOverride };
    assert.deepEqual(await refusal(client.get(elsewhere)), [400, 'base_url_override_not_allowed']);
    await allowBase(subject, baseUrlOverride);
    await client.get(elsewhere);
    assert.equal(`http://${arrived(subject).headers.host}`, baseUrlOverride);
  },

  async post(subject) {
    const { client, privatePlace } = subject;
    subject.upstream.answers = answer(201, { 'x-its': 'header', location: '/made/1' }, '{"id":1}');
    const made = await client.post({ ...privatePlace, endpoint: '/things', data: { name: 'N' } });
    assert.deepEqual(
      [made.status, made.data, made.headers['x-its'], made.headers.location],
      [201, { id: 1 }, 'header', new URL('/made/1', subject.upstream.url).href],
      'status, body and headers are those of the provider',
    );
    const { received, headers } = arrived(subject);
    assert.deepEqual([received.body, headers['content-type']], ['{"name":"N"}', 'application/json']);
    reset(subject);
  },

  async put(subject) {
    const { client, privatePlace } = subject;
    await client.put({ ...privatePlace, endpoint: '/things/1', data: [1, 2] });
    const { received } = arrived(subject);
    assert.deepEqual([received.method, received.body], ['PUT', '[1,2]']);
  },

  async patch(subject) {
    const { client, privatePlace } = subject;
    const headers = { 'Content-Type': 'application/merge-patch+json' };
    await client.patch({ ...privatePlace, endpoint: '/things/1', data: { a: null }, headers });
    const { received, headers: sent } = arrived(subject);
    assert.deepEqual(
      [received.method, received.body, sent['content-type']],
      ['PATCH', '{"a":null}', 'application/merge-patch+json'],
    );
  },

  async delete(subject) {
    const { client, privatePlace, place } = subject;
    await client.delete({ ...privatePlace, endpoint: '/things/1' });
    assert.deepEqual([arrived(subject).received.method, arrived(subject).received.body], ['DELETE', '']);
    await client.delete({ ...privatePlace, endpoint: '/things', data: { ids: [1] } });
    assert.equal(arrived(subject).received.body, '{"ids":[1]}');
    subject.upstream.answers = answer(409, { 'retry-after': '7' }, '{"error":{"code":"their own"}}');
    assert.deepEqual(await refusal(client.delete({ ...privatePlace, endpoint: '/' })), [409, 'their own']);
    reset(subject);
    // Of ours, in the words of the provider where its definition names a form for them.
    const nobody = { ...privatePlace, connectionId: 'nobody', endpoint: '/' };
    assert.deepEqual(await refusal(client.delete(nobody)), [400, 'unknown_connection']);
    const [status, code] = await refusal(client.delete({ ...place, connectionId: 'nobody', endpoint: '/' }));
    assert.deepEqual([status, code], [400, 400]);
    assert.deepEqual(await refusal(client.delete({ ...nobody, providerConfigKey: 'nobody' })), [
      404,
      'unknown_provider_config',
    ]);
  },
};

/** The client follows redirects by itself: what a provider keeps elsewhere arrives, and no credentials go there. */
export async function redirects(subject: NodeSubject): Promise<void> {
  const { client, privatePlace, upstream } = subject;
  const elsewhere = await openReceiver(answer(200, { 'content-type': 'text/plain' }, 'the file'));
  try {
    upstream.answers = answer(302, { location: elsewhere.url });
    for (const asked of [{}, { forwardHeadersOnRedirect: false }, { forwardHeadersOnRedirect: true }]) {
      const { status, data } = await client.get<string>({ ...privatePlace, endpoint: '/file', ...asked });
      assert.deepEqual([status, data], [200, 'the file']);
      assert.equal(arrived(subject).received.path, '/file');
      assert.equal(elsewhere.got.at(-1)?.headers.authorization, undefined);
    }
    assert.equal(elsewhere.got.length, 3);
  } finally {
    await elsewhere.close();
    reset(subject);
  }
}

/** What the provider of `private` was sent last. */
function arrived({ upstream }: NodeSubject) {
  const received = upstream.got.at(-1);
  assert.ok(received);
  return { received, headers: received.headers };
}

/** The provider of `private` answers as it does in all tests. */
export function reset({ upstream }: Pick<NodeSubject, 'upstream'>): void {
  upstream.answers = answer(207, { 'content-type': 'application/json' }, '{"its":"answer"}');
}

/** Names the origin among those that the integration's calls may go to. */
async function allowBase({ client, privatePlace, upstream }: NodeSubject, origin: string): Promise<void> {
  const { origin: base_url } = new URL(upstream.url);
  const uniqueKey = privatePlace.providerConfigKey;
  const integration_config = { base_url, allowed_base_urls: origin };
  await client.updateIntegration({ uniqueKey }, { integration_config });
}

/** A spreadsheet that was made and written through the client. */
async function sheet({ client, place }: NodeSubject) {
  const made = await client.post<{ spreadsheetId: string }>({
    ...place,
    endpoint: '/v4/spreadsheets',
    data: { properties: { title: 'T' } },
  });
  const { spreadsheetId } = made.data;
  const endpoint = `/v4/spreadsheets/${spreadsheetId}/values/A1:B2`;
  const values = [
    ['a', 'b'],
    ['c', 'd'],
  ];
  const params = { valueInputOption: 'RAW' };
  const put = await client.put<{ updatedCells: number }>({ ...place, endpoint, params, data: { values } });
  assert.equal(put.data.updatedCells, 4);
  const got = await client.get<{ values: string[][] }>({ ...place, endpoint });
  return { spreadsheetId, values: got.data.values };
}
