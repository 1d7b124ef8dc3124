// A stand-in for the installation that is moved from: the public interface that `trellis import nango` reads, over a real
// socket, with the oddities that such an installation has. It records the requests.

import { randomBytes } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import {
  commonBody,
  cursorOf,
  cursorText,
  fullBody,
  integrationBody,
  type PeerConnection,
  type PeerIntegration,
  placeOfCursor,
  recordBody,
  timeOf,
} from './peer-bodies.ts';

/** What goes wrong with a request, by its number from 1 on. */
type Trouble = (number: number, path: string) => 'limit' | 'drop' | 'cut' | 'fail' | undefined;

export type PeerStandIn = {
  url: string;
  key: string;
  integrations: PeerIntegration[];
  connections: PeerConnection[];
  trouble: Trouble;
  /** The scope that the key lacks, if any. */
  lacks: 'integrations' | undefined;
  /** Called before a list is answered, so that it changes between two pages. */
  beforeList: (page: number) => void;
  readonly requests: { path: string; query: URLSearchParams }[];
  /** How often it renewed a token because somebody read it. */
  readonly renewals: number;
  close(): Promise<void>;
};

export async function startPeer(): Promise<PeerStandIn> {
  const key = randomBytes(16).toString('hex');
  let number = 0;
  const state = {
    renewals: 0,
    requests: [] as PeerStandIn['requests'],
  };
  const server = createServer((request, response) => {
    number += 1;
    void answer(request, response, number).catch((error: unknown) => {
      response.destroy(error as Error);
    });
  });

  async function answer(request: IncomingMessage, response: ServerResponse, nth: number): Promise<void> {
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://peer');
    state.requests.push({ path: pathname, query: searchParams });
    if (request.headers.authorization !== `Bearer ${key}`)
      return refuse(response, { status: 401, code: 'unknown_account', payload: {} });
    const trouble = peer.trouble(nth, pathname);
    if (trouble === 'drop') return void request.socket.destroy();
    if (trouble === 'limit') return refuseForLimit(response, nth);
    if (trouble === 'fail') return refuse(response, { status: 503, code: 'server_error' });
    const body = route(pathname, searchParams, request);
    if (trouble === 'cut' && 'json' in body) {
      const text = JSON.stringify(body.json);
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': text.length + 10 });
      response.write(text.slice(0, text.length / 2));
      return void setImmediate(() => request.socket.destroy());
    }
    if ('html' in body) {
      response.writeHead(200, { 'content-type': 'text/html' }).end('<!doctype html><title>Dashboard</title>');
      return undefined;
    }
    if ('status' in body) return refuse(response, body);
    response
      .writeHead(200, { 'content-type': 'application/json; charset=utf-8' })
      .end(JSON.stringify(body.json));
    return undefined;
  }

  function route(path: string, query: URLSearchParams, request: IncomingMessage): Answered {
    if (request.method !== 'GET') return { status: 404, code: 'not_found' };
    const parts = path.replace(/\/$/, '').split('/').slice(1).map(decodeURIComponent);
    const [noun, id] = parts;
    if (noun === 'integrations' && id === undefined) return listIntegrations(query);
    if (noun === 'integrations') return getIntegration(id!, query);
    if (noun === 'providers' && id !== undefined) return getProvider(id);
    if (noun === 'connections' && id === undefined) return listConnections(query);
    if (noun === 'connections') return getConnection(id!, query);
    if (path === '/sync/status') return syncStatus(query);
    if (noun === 'records') return listRecords(query, request);
    // The dashboard answers whatever else is asked for.
    return { html: true };
  }

  function listIntegrations(query: URLSearchParams): Answered {
    if (peer.lacks === 'integrations') return { status: 403, code: 'forbidden' };
    return unknownQueryError(query, []) ?? { json: { data: peer.integrations.map(integrationBody) } };
  }

  function getIntegration(key: string, query: URLSearchParams): Answered {
    const found = peer.integrations.find((one) => one.key === key);
    if (found === undefined) return { status: 404, code: 'not_found' };
    const isAsked = query.getAll('include').includes('credentials');
    if (isAsked && found.credentials === undefined) return { status: 403, code: 'forbidden' };
    const credentials = isAsked ? { credentials: found.credentials } : {};
    return (
      unknownQueryError(query, ['include']) ?? {
        json: { data: { ...integrationBody(found), ...credentials } },
      }
    );
  }

  function getProvider(name: string): Answered {
    const found = peer.integrations.find(({ provider }) => provider === name);
    if (found === undefined) return { status: 404, code: 'not_found' };
    return {
      json: { data: { name, auth_mode: found.authMode, display_name: name, docs: 'https://example.com' } },
    };
  }

  function listConnections(query: URLSearchParams): Answered {
    const limit = Number(query.get('limit') ?? 10_000);
    const page = Number(query.get('page') ?? 0);
    if (limit < 1 || limit > 2_000) return { status: 400, code: 'invalid_query_params' };
    peer.beforeList(page);
    const ordered = peer.connections.toSorted(
      (one, other) => other.createdAt.getTime() - one.createdAt.getTime() || (one.id < other.id ? 1 : -1),
    );
    const connections = ordered.slice(page * limit, (page + 1) * limit).map((one) => ({
      ...commonBody(one),
      // To the microsecond here, to the millisecond where one is read.
      created: one.createdAt.toISOString().replace('Z', '123+00:00'),
    }));
    return unknownQueryError(query, ['limit', 'page']) ?? { json: { connections } };
  }

  function getConnection(id: string, query: URLSearchParams): Answered {
    const integration = query.get('provider_config_key');
    const refused = unknownQueryError(query, [
      'provider_config_key',
      'refresh_token',
      'force_refresh',
      'refresh_github_app_jwt_token',
    ]);
    if (refused !== undefined) return refused;
    if (!peer.integrations.some((one) => one.key === integration))
      return { status: 400, code: 'unknown_provider_config' };
    const found = peer.connections.find((one) => one.id === id && one.integration === integration);
    if (found === undefined) return { status: 404, code: 'not_found' };
    found.reads += 1;
    const isForced = query.get('force_refresh') === 'true';
    if (found.deadReads > 0 && !isForced) {
      found.deadReads -= 1;
      const { credentials: _none, ...connection } = fullBody(found);
      return { status: 424, code: 'invalid_credentials', payload: { connection } };
    }
    renewIfDue(found);
    const body = fullBody(found);
    if (query.get('refresh_token') !== 'true')
      delete (body.credentials as Record<string, unknown>).refresh_token;
    return { json: body };
  }

  function renewIfDue(one: PeerConnection): void {
    const { type, expires_at: expiresAt } = one.credentials as { type?: string; expires_at?: string };
    const isDue = expiresAt !== undefined && Date.parse(expiresAt) <= Date.now() + 900_000;
    if (type !== 'OAUTH2' || !isDue) return;
    state.renewals += 1;
    one.credentials = {
      ...one.credentials,
      access_token: `access-renewed-of-${one.id}-${randomBytes(8).toString('hex')}`,
      refresh_token: `refresh-renewed-of-${one.id}-${randomBytes(8).toString('hex')}`,
      expires_at: new Date(Date.now() + 3_600_000).toISOString(),
    };
  }

  function syncStatus(query: URLSearchParams): Answered {
    const refused = unknownQueryError(query, ['syncs', 'provider_config_key', 'connection_id']);
    if (refused !== undefined) return refused;
    const found = peer.connections.find(
      (one) => one.id === query.get('connection_id') && one.integration === query.get('provider_config_key'),
    );
    if (found === undefined) return { status: 404, code: 'unknown_connection' };
    const syncs = [...found.records.entries()].map(([model, records]) => {
      const [name = '', variant = 'base'] = model.split('::');
      const live = records.filter(({ isDeleted }) => !isDeleted).length;
      return {
        id: '1',
        connection_id: found.id,
        type: 'INCREMENTAL',
        name: `sync-${name}`,
        variant,
        status: 'SUCCESS',
        frequency: '1h',
        recordCount: { [name]: live },
        checkpoint: null,
      };
    });
    return { json: { syncs } };
  }

  function listRecords(query: URLSearchParams, request: IncomingMessage): Answered {
    const refused = unknownQueryError(query, [
      'model',
      'variant',
      'modified_after',
      'limit',
      'cursor',
      'filter',
      'ids',
    ]);
    if (refused !== undefined) return refused;
    const found = peer.connections.find(
      (one) =>
        one.id === request.headers['connection-id'] &&
        one.integration === request.headers['provider-config-key'],
    );
    if (found === undefined) return { status: 400, code: 'unknown_connection' };
    const variant = query.get('variant') ?? 'base';
    const name = query.get('model') + (variant === 'base' ? '' : `::${variant}`);
    const after = query.get('modified_after');
    if (after !== null && !after.endsWith('Z')) return { status: 400, code: 'invalid_query_params' };
    const cursor = query.get('cursor');
    const start = cursor === null ? undefined : placeOfCursor(cursor);
    if (cursor !== null && start === undefined) return { status: 500, code: 'server_error' };
    const max = Math.min(Number(query.get('limit') ?? 100), peerPage);
    const all = (found.records.get(name) ?? [])
      .toSorted((one, other) => (cursorText(one) < cursorText(other) ? -1 : 1))
      .filter((one) => start === undefined || cursorText(one) > start)
      .filter(
        (one) =>
          after === null ||
          timeOf(one) >= after.replace(/(\.\d+)?Z$/, (_, f = '') => `${(f || '.').padEnd(7, '0')}`),
      );
    const records = all.slice(0, max);
    const last = records.at(-1);
    return {
      json: {
        records: records.map(recordBody),
        next_cursor: all.length > records.length && last !== undefined ? cursorOf(last) : null,
      },
    };
  }

  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const peer: PeerStandIn = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    key,
    integrations: [],
    connections: [],
    trouble: () => undefined,
    lacks: undefined,
    beforeList: () => {},
    requests: state.requests,
    get renewals() {
      return state.renewals;
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  return peer;
}

/** The maximum length of a page of records, whatever limit a request has. */
const peerPage = 200;

type Answered =
  | { json: Record<string, unknown> }
  | { html: true }
  | { status: number; code: string; payload?: unknown };

/** The error of a query with other parameters than `names`. */
function unknownQueryError(query: URLSearchParams, names: readonly string[]): Answered | undefined {
  const unknown = [...query.keys()].filter((name) => !names.includes(name));
  return unknown.length > 0 ? { status: 400, code: 'invalid_query_params' } : undefined;
}

function refuse(
  response: ServerResponse,
  { status, code, payload }: { status: number; code: string; payload?: unknown },
): void {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(
    JSON.stringify({
      error: { code, message: `refused: ${code}`, ...(payload !== undefined && { payload }) },
    }),
  );
}

/** Uses the three headers with a wait in turn. */
function refuseForLimit(response: ServerResponse, nth: number): void {
  const now = Date.now();
  const headers =
    nth % 3 === 0
      ? { 'retry-after': '0' }
      : nth % 3 === 1
        ? { 'retry-after': new Date(now).toUTCString() }
        : { 'x-ratelimit-reset': String(Math.floor(now / 1000)) };
  response.writeHead(429, { ...headers, 'content-type': 'application/json', 'x-ratelimit-limit': '200' });
  response.end(JSON.stringify({ error: { code: 'too_many_request', method: 'GET', path: '/' } }));
}
