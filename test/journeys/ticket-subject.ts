import assert from 'node:assert/strict';
import { once } from 'node:events';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, request as httpRequest, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { providersDirectory } from '../../server/app/app.ts';
import { authModes } from '../../server/auth-modes/modes.ts';
import { loadCatalog } from '../../server/providers/catalog.ts';
import { openTrellis } from '../support/trellis.ts';

type Answering = (request: IncomingMessage, response: ServerResponse) => void;
type Sent = {
  method?: string;
  headers?: Record<string, string>;
  parts?: Buffer[];
  /** Told of each part of the answer's body as it comes. */
  onPart?: (part: Buffer) => void;
};

export const ok: Answering = (_request, response) => void response.end('ok');
/** What a ticket is asked for. */
export const connection = { provider_config_key: 'own', connection_id: 'alice' };
/** The headers of a call with it. */
export const place = { 'provider-config-key': 'own', 'connection-id': 'alice' };

/** A service with a provider of its own, whose redirects it follows, and the connections `alice` and `bob` there. */
export async function openTicketed({ basePath = '' } = {}) {
  /** What has reached the provider, and what it does. */
  const provider = { seen: [] as IncomingMessage[], answering: ok, origin: '' };
  const server = createServer((request, response) => {
    provider.seen.push(request);
    provider.answering(request, response);
  });
  const definitions = await mkdtemp(join(tmpdir(), 'trellis-test-providers-'));
  await cp(providersDirectory, definitions, { recursive: true });
  const file = join(definitions, 'unauthenticated.yaml');
  await writeFile(file, `${(await readFile(file, 'utf8')).trimEnd()}\n  redirects: same_origin\n`);
  const trellis = await openTrellis(
    { TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8' },
    { catalog: loadCatalog(definitions, authModes) },
  );
  await once(server.listen(0, '127.0.0.1'), 'listening');
  provider.origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  await trellis.call('POST', '/integrations', {
    body: {
      provider: 'unauthenticated',
      unique_key: 'own',
      integration_config: { base_url: provider.origin + basePath, allowed_base_urls: provider.origin },
    },
  });

  async function addConnection(id: string): Promise<void> {
    const made = await trellis.call('POST', '/connections', {
      body: { ...connection, connection_id: id, credentials: { type: 'NONE' } },
    });
    assert.equal(made.status, 201, made.text);
  }

  async function ticketOf(wanted: Record<string, unknown>, key = trellis.keys.dev): Promise<string> {
    const { status, body, text } = await trellis.call('POST', '/tickets', {
      key,
      body: { ...connection, methods: ['GET'], paths: ['/open/*'], ...wanted },
    });
    assert.equal(status, 201, text);
    return (body.data as { ticket: string }).ticket;
  }

  /** A call whose path goes out as it is; resolves with what came back, also where it broke off. */
  async function ask(token: string, path: string, sent: Sent = {}) {
    const { method = 'GET', headers = {}, parts = [], onPart = () => {} } = sent;
    const { hostname, port } = new URL(trellis.baseUrl);
    const request = httpRequest({
      hostname,
      port,
      method,
      path,
      headers: { authorization: `Bearer ${token}`, ...place, ...headers },
    });
    const answered = once(request, 'response') as Promise<[IncomingMessage]>;
    for (const part of parts) request.write(part);
    request.on('error', () => {}).end();
    const [answer] = await answered;
    let [text, isWhole] = ['', true];
    try {
      for await (const part of answer as AsyncIterable<Buffer>) {
        text += part.toString('latin1');
        onPart(part);
      }
    } catch {
      isWhole = false;
    }
    const code = answer.headers['x-trellis-error'];
    return { status: answer.statusCode, code, text, isWhole, headers: answer.headers };
  }

  async function codeOf(...asked: Parameters<typeof ask>): Promise<number | string | undefined> {
    const { status, code } = await ask(...asked);
    return code === undefined ? status : `${status} ${code}`;
  }

  async function close(): Promise<void> {
    server.closeAllConnections();
    server.close();
    await trellis.close();
    await rm(definitions, { recursive: true });
  }

  for (const id of ['alice', 'bob']) await addConnection(id);
  return { trellis, provider, addConnection, ticketOf, ask, codeOf, close };
}

export type Ticketed = Awaited<ReturnType<typeof openTicketed>>;
