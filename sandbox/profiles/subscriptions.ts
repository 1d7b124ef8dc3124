/**
 * Providers on loopback that create, renew and delete subscriptions to changes: Microsoft Graph, Asana and Airtable.
 * `https://host/path` of the real provider is `/host/path` here. They test addresses, sign messages and answer errors as
 * the real ones do, and accept every bearer token.
 *
 * Sources: https://learn.microsoft.com/en-us/graph/api/subscription-post-subscriptions and
 * https://learn.microsoft.com/en-us/graph/change-notifications-delivery-webhooks,
 * https://developers.asana.com/docs/webhooks-guide, https://airtable.com/developers/web/api/create-a-webhook.
 */
import { createHmac, randomBytes, randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';

export type Subscription = {
  provider: 'graph' | 'asana' | 'airtable';
  id: string;
  target: string;
  address: string;
  /** Of Graph the `clientState`, of the others the key of signatures. */
  secret: string;
  /** Milliseconds since 1970. */
  expiresAt: number;
  renewals: number;
  /** What was asked for. */
  body: Record<string, unknown>;
};
/** `lose`: a subscription is created and its response never comes; `refuse`: 403; `hang`: no answer at all. */
type Mode = 'work' | 'lose' | 'refuse' | 'hang';
type Reply = { status: number; body: unknown } | 'none';
type Call = { method: string; path: string; body: Record<string, unknown> };

/** `reach` says where on this machine a public address is. */
type Setting = { now: () => Date; reach: (address: string) => string };

const dayMs = 86_400_000;
const graphLongestMs = 4230 * 60_000;

export class Subscriptions {
  readonly list: Subscription[] = [];
  mode: Mode = 'work';
  /** The requests so far, as `METHOD path`. */
  readonly calls: string[] = [];
  #made = 0;
  readonly #now: () => Date;
  readonly #reach: (address: string) => string;

  constructor({ now, reach }: Setting) {
    this.#now = now;
    this.#reach = reach;
  }

  async answer(call: Call): Promise<Reply> {
    const { method, path, body } = call;
    this.calls.push(`${method} ${path}`);
    if (this.mode === 'hang') return 'none';
    if (this.mode === 'refuse') return { status: 403, body: { error: { code: 'Forbidden' } } };
    const graph = /^\/graph\.microsoft\.com\/v1\.0\/subscriptions(?:\/([^/]+))?$/.exec(path);
    if (graph) return this.#lost(await this.#graph(method, graph[1], body));
    const asana = /^\/app\.asana\.com\/api\/1\.0\/webhooks(?:\/([^/]+))?$/.exec(path);
    if (asana) return this.#lost(await this.#asana(method, asana[1], body));
    const airtable = /^\/api\.airtable\.com\/v0\/bases\/([^/]+)\/webhooks(?:\/([^/]+)(\/refresh)?)?$/.exec(
      path,
    );
    if (airtable) return this.#lost(this.#airtable(method, { base: airtable[1]!, id: airtable[2] }, body));
    return { status: 404, body: {} };
  }

  /** A response of a creation may get lost. */
  #lost(reply: Reply): Reply {
    return this.mode === 'lose' && reply !== 'none' && reply.status === 201 ? 'none' : reply;
  }

  async #graph(method: string, id: string | undefined, body: Record<string, unknown>): Promise<Reply> {
    const until = Date.parse(String(body.expirationDateTime));
    const now = this.#now().getTime();
    const fault = (status: number, code: string) => ({ status, body: { error: { code } } });
    if (method === 'DELETE')
      return this.#remove('graph', id) ? { status: 204, body: '' } : fault(404, 'ResourceNotFound');
    if (!(until > now && until <= now + graphLongestMs)) return fault(400, 'ExtensionError');
    if (method === 'PATCH') {
      const found = this.#find('graph', id);
      if (found === undefined) return fault(404, 'ResourceNotFound');
      found.expiresAt = until;
      found.renewals += 1;
      return { status: 200, body: { id, expirationDateTime: new Date(until).toISOString() } };
    }
    const target = String(body.resource);
    if (/\/root$/.test(target) && body.changeType !== 'updated') return fault(400, 'InvalidRequest');
    for (const address of new Set([String(body.notificationUrl), String(body.lifecycleNotificationUrl)])) {
      const token = `Validation: Testing client application ${randomBytes(4).toString('hex')}`;
      const tested = await this.#post(`${address}&validationToken=${encodeURIComponent(token)}`, {
        body: '',
        type: 'text/plain',
      });
      if (tested.status !== 200 || tested.text !== token) return fault(400, 'InvalidRequest');
    }
    const made = this.#add({
      provider: 'graph',
      target,
      address: String(body.notificationUrl),
      secret: String(body.clientState),
      expiresAt: until,
      body,
    });
    return {
      status: 201,
      body: { id: made.id, resource: target, expirationDateTime: new Date(until).toISOString() },
    };
  }

  async #asana(method: string, id: string | undefined, body: Record<string, unknown>): Promise<Reply> {
    const found = this.#find('asana', id);
    if (id !== undefined && found === undefined)
      return { status: 404, body: { errors: [{ message: 'Not found' }] } };
    if (method === 'DELETE') return { status: 200, body: { data: this.#remove('asana', id) && {} } };
    if (found !== undefined) {
      found.renewals += 1;
      return { status: 200, body: { data: { gid: id, active: true } } };
    }
    const { resource, target } = (body.data ?? {}) as Record<string, string>;
    const secret = randomBytes(32).toString('hex');
    const tested = await this.#post(String(target), { body: '{}', headers: { 'x-hook-secret': secret } });
    if (tested.status !== 200 || tested.headers.get('x-hook-secret') !== secret)
      return {
        status: 400,
        body: { errors: [{ message: 'The remote server did not respond with the handshake secret.' }] },
      };
    const made = this.#add({
      provider: 'asana',
      target: String(resource),
      address: String(target),
      secret,
      expiresAt: Number.POSITIVE_INFINITY,
      body,
    });
    return {
      status: 201,
      body: {
        data: { gid: made.id, resource: { gid: resource }, target, active: true },
        'X-Hook-Secret': secret,
      },
    };
  }

  #airtable(
    method: string,
    { base, id }: { base: string; id: string | undefined },
    body: Record<string, unknown>,
  ): Reply {
    const until = this.#now().getTime() + 7 * dayMs;
    const found = this.#find('airtable', id);
    if (id !== undefined && found === undefined) return { status: 404, body: { error: 'NOT_FOUND' } };
    if (method === 'DELETE') return { status: 200, body: this.#remove('airtable', id) };
    if (found !== undefined) {
      found.expiresAt = until;
      found.renewals += 1;
      return { status: 200, body: { expirationTime: new Date(until).toISOString() } };
    }
    const secret = randomBytes(32).toString('base64');
    const made = this.#add({
      provider: 'airtable',
      target: base,
      address: String(body.notificationUrl),
      secret,
      expiresAt: until,
      body,
    });
    // The real provider answers 200. The sandbox uses another status, by which tests recognize a creation.
    return {
      status: 201,
      body: { id: made.id, macSecretBase64: secret, expirationTime: new Date(until).toISOString() },
    };
  }

  #add(of: Omit<Subscription, 'id' | 'renewals'>): Subscription {
    this.#made += 1;
    const id =
      of.provider === 'asana'
        ? String(this.#made + 43214)
        : of.provider === 'graph'
          ? randomUUID()
          : `ach${randomBytes(7).toString('hex')}`;
    const made = { ...of, id, renewals: 0 };
    this.list.push(made);
    return made;
  }

  #find(provider: Subscription['provider'], id: string | undefined): Subscription | undefined {
    const now = this.#now().getTime();
    return this.list.find((one) => one.provider === provider && one.id === id && one.expiresAt > now);
  }

  #remove(provider: Subscription['provider'], id: string | undefined): boolean {
    const found = this.#find(provider, id);
    if (found !== undefined) this.list.splice(this.list.indexOf(found), 1);
    return found !== undefined;
  }

  /** Sends a message about a change, or about the subscription itself; returns the status of the response. */
  async notify(
    one: Subscription,
    { lifecycle, key = one.secret }: { lifecycle?: string; key?: string } = {},
  ): Promise<number> {
    const { provider, id, target } = one;
    if (provider === 'graph') {
      const about =
        lifecycle === undefined ? { changeType: 'created', resource: target } : { lifecycleEvent: lifecycle };
      const body = JSON.stringify({
        value: [{ subscriptionId: id, clientState: key, tenantId: '84bd8158', ...about }],
      });
      return (await this.#post(one.address, { body })).status;
    }
    if (provider === 'asana') {
      const body = JSON.stringify({
        events: [{ action: 'changed', resource: { gid: target, resource_type: 'task' } }],
      });
      const headers = { 'x-hook-signature': createHmac('sha256', key).update(body).digest('hex') };
      return (await this.#post(one.address, { body, headers })).status;
    }
    const body = JSON.stringify({
      base: { id: target },
      webhook: { id },
      timestamp: this.#now().toISOString(),
    });
    const mac = createHmac('sha256', Buffer.from(key, 'base64')).update(body).digest('hex');
    return (
      await this.#post(one.address, { body, headers: { 'x-airtable-content-mac': `hmac-sha256=${mac}` } })
    ).status;
  }

  async #post(
    address: string,
    {
      body,
      type = 'application/json',
      headers = {},
    }: { body: string; type?: string; headers?: Record<string, string> },
  ) {
    const signal = AbortSignal.timeout(60_000);
    const answer = await fetch(this.#reach(address), {
      method: 'POST',
      headers: { 'content-type': type, ...headers },
      body,
      signal,
    });
    return { status: answer.status, text: await answer.text(), headers: answer.headers };
  }
}

/** Serves the providers on loopback. */
export async function startSubscriptions(setting: Setting) {
  const subscriptions = new Subscriptions(setting);
  const server = createServer(async (request, response) => {
    const reply = await subscriptions
      .answer({
        method: request.method ?? '',
        path: new URL(request.url ?? '', 'http://localhost').pathname,
        body: await jsonOf(request),
      })
      // As for an address that does not answer.
      .catch((error: unknown): Reply => ({ status: 400, body: { error: { code: String(error) } } }));
    if (reply === 'none') return;
    response.writeHead(reply.status, { 'content-type': 'application/json' }).end(JSON.stringify(reply.body));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    subscriptions,
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

async function jsonOf(request: IncomingMessage): Promise<Record<string, unknown>> {
  const text = Buffer.concat(await Array.fromAsync(request as AsyncIterable<Buffer>)).toString();
  return text === '' ? {} : (JSON.parse(text) as Record<string, unknown>);
}
