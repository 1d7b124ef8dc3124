/** A provider on loopback for tests of this module: a real HTTP server that gives one answer to everything. */
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { TestContext } from 'node:test';
import { shippedCatalog } from '../../test/support/catalog.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import { withSandbox } from '../providers/sandbox.ts';

export const google = shippedCatalog.get('google-sheet');
export const client = {
  clientId: 'id:1',
  clientSecret: 's3cr3t&',
  scopes: ['openid', 'https://www.googleapis.com/auth/spreadsheets'],
};
export const now = new Date('2026-11-21T09:00:00Z');
export const redirectUri = 'https://trellis.example/oauth/callback';

type Call = { path: string; headers: IncomingHttpHeaders; form: Record<string, string> };
export type Answer = (response: ServerResponse, call: Call) => void;
export type Token = NonNullable<ProviderDefinition['token']>;

/** A provider on loopback that gives this answer to everything, and the definition that points at it. */
export async function provider(
  t: TestContext,
  answer: Answer,
  departures: Partial<Token['answer']> & { timeout_ms?: number } = {},
) {
  const calls: Call[] = [];
  const server = createServer(async (request, response) => {
    const chunks = await Array.fromAsync(request as AsyncIterable<Buffer>);
    const form = Object.fromEntries(new URLSearchParams(Buffer.concat(chunks).toString()));
    const call = { path: request.url ?? '', headers: request.headers, form };
    calls.push(call);
    answer(response, call);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  });
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const moved = withSandbox(google, origin);
  const { timeout_ms, ...shape } = departures;
  const token: Token = {
    ...(moved.token as Token),
    answer: { ...(moved.token as Token).answer, ...shape },
    ...(timeout_ms !== undefined && { timeout_ms }),
  };
  const definition: ProviderDefinition = { ...moved, token };
  return { origin, calls, definition, context: { definition, client, fetch, now } };
}
export const json =
  (body: unknown, status = 200, headers: Record<string, string> = {}): Answer =>
  (response) =>
    response
      .writeHead(status, { 'content-type': 'application/json; charset=utf-8', ...headers })
      .end(JSON.stringify(body));
export const text =
  (body: string, type: string, status = 200): Answer =>
  (response) =>
    response.writeHead(status, { 'content-type': type }).end(body);
export const grant = {
  access_token: 'ya29.a',
  expires_in: 3599,
  scope: 'openid email',
  token_type: 'Bearer',
};
