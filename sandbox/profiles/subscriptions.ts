/**
 * Providers on loopback that create, renew and delete subscriptions to changes. `https://host/path` of the real provider is
 * `/host/path` here. They test addresses, sign messages and answer errors as the real ones do, and accept every bearer token.
 *
 * Sources: https://learn.microsoft.com/en-us/graph/api/subscription-post-subscriptions,
 * https://learn.microsoft.com/en-us/graph/change-notifications-delivery-webhooks,
 * https://developers.asana.com/docs/webhooks-guide, https://airtable.com/developers/web/api/create-a-webhook,
 * https://www.typeform.com/developers/webhooks/reference/create-or-update-webhook/,
 * https://developer.calendly.com/docs/webhooks/overview, https://pipedrive.readme.io/docs/guide-for-webhooks-v2,
 * https://docs.attio.com/api-reference/webhooks/create-a-webhook, https://developer.clickup.com/reference/createwebhook,
 * https://docs.gitlab.com/api/project_webhooks/, https://developers.google.com/workspace/gmail/api/guides/push.
 */
import { createHmac, randomBytes, randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export type Provider = keyof typeof apis;
export type Subscription = {
  provider: Provider;
  id: string;
  /** Empty for a whole account. */
  target: string;
  address: string;
  /** What messages are signed with, or what they contain. */
  secret: string;
  /** Milliseconds since 1970. */
  expiresAt: number;
  renewals: number;
  /** What was asked for. */
  body: Body;
};
type Body = Record<string, unknown>;
/**
 * `lose`: a subscription is created and its response never comes; `break`: the same, and the connection ends; `refuse`: 403;
 * `hang`: no answer at all; `redirect`: to another address; `huge`: a response without an end; `odd`: a response whose fields
 * have other types.
 */
type Mode = 'work' | 'lose' | 'break' | 'refuse' | 'hang' | 'redirect' | 'huge' | 'odd';
type Reply = { status: number; body: unknown; isCreation?: boolean };
type Call = { method: string; path: string; body: Body };
type Message = { body: string; headers?: Record<string, string> };

/** `reach` says where on this machine a public address is. */
type Setting = { now: () => Date; reach: (address: string) => string };

type Api = {
  /** The groups `target` and `id`. Without an ID, the call creates a subscription. */
  path: RegExp;
  /** What is asked for. `secret` is undefined if the provider makes it. */
  request: (body: Body, target: string) => { target: string; address: string; secret?: string | undefined };
  makeSecret?: () => string;
  makeId: (count: number, idInPath: string | undefined) => string;
  /** The method of a request with an ID that creates. */
  createsBy?: 'PUT';
  /** Undefined: without an end. */
  lifeMs?: number;
  /** The end that is asked for, which may not be later than in `longestMs`. */
  until?: { of: (body: Body) => number; longestMs: number };
  /** Tests the address. Returns why it is refused; undefined if it is not. */
  test?: (of: { address: string; secret: string; body: Body; post: Post }) => Promise<string | undefined>;
  created: (made: Subscription) => { status: number; body: unknown };
  renewed?: (found: Subscription) => unknown;
  fault: (status: number, reason: string) => unknown;
  removed: { status: number; body: unknown };
  message: (one: Subscription, key: string, of: { lifecycle: string | undefined; nowMs: number }) => Message;
};
type Post = (
  address: string,
  message: { body: string; type?: string; headers?: Record<string, string> },
) => Promise<{ status: number; text: string; headers: Headers }>;

const dayMs = 86_400_000;
const iso = (ms: number) => new Date(ms).toISOString();
const hmac = (key: string | Buffer, text: string) => createHmac('sha256', key).update(text);
const hexSecret = () => randomBytes(32).toString('hex');
const text = (value: unknown) => String(value ?? '');
/** A message with the HMAC of its body in hexadecimal. */
const signedHex =
  (header: string, of: (one: Subscription) => object) =>
  (one: Subscription, key: string): Message => {
    const body = JSON.stringify(of(one));
    return { body, headers: { [header]: hmac(key, body).digest('hex') } };
  };

const apis = {
  graph: {
    path: /^\/graph\.microsoft\.com\/v1\.0\/subscriptions(?:\/(?<id>[^/]+))?$/,
    request: (body) => ({
      target: text(body.resource),
      address: text(body.notificationUrl),
      secret: text(body.clientState),
    }),
    makeId: () => randomUUID(),
    until: { of: (body) => Date.parse(text(body.expirationDateTime)), longestMs: 4230 * 60_000 },
    async test({ body, post }) {
      if (/\/root$/.test(text(body.resource)) && body.changeType !== 'updated') return 'changeType';
      for (const address of new Set([text(body.notificationUrl), text(body.lifecycleNotificationUrl)])) {
        const token = `Validation: Testing client application ${randomBytes(4).toString('hex')}`;
        const query = `&validationToken=${encodeURIComponent(token)}`;
        const tested = await post(address + query, { body: '', type: 'text/plain' });
        if (tested.status !== 200 || tested.text !== token) return 'validation';
      }
      return undefined;
    },
    created: ({ id, target, expiresAt }) => ({
      status: 201,
      body: { id, resource: target, expirationDateTime: iso(expiresAt) },
    }),
    renewed: ({ id, expiresAt }) => ({ id, expirationDateTime: iso(expiresAt) }),
    fault: (_, code) => ({ error: { code } }),
    removed: { status: 204, body: '' },
    message({ id, target }, clientState, { lifecycle: lifecycleEvent }) {
      const about =
        lifecycleEvent === undefined ? { changeType: 'created', resource: target } : { lifecycleEvent };
      const value = [{ subscriptionId: id, clientState, tenantId: '84bd8158', ...about }];
      return { body: JSON.stringify({ value }) };
    },
  },
  asana: {
    path: /^\/app\.asana\.com\/api\/1\.0\/webhooks(?:\/(?<id>[^/]+))?$/,
    request(body) {
      const { resource, target } = (body.data ?? {}) as Body;
      return { target: text(resource), address: text(target) };
    },
    makeSecret: hexSecret,
    makeId: (count) => String(count + 43214),
    async test({ address, secret, post }) {
      const tested = await post(address, { body: '{}', headers: { 'x-hook-secret': secret } });
      return tested.status === 200 && tested.headers.get('x-hook-secret') === secret
        ? undefined
        : 'handshake';
    },
    created: ({ id, target, address, secret }) => ({
      status: 201,
      body: {
        data: { gid: id, resource: { gid: target }, target: address, active: true },
        'X-Hook-Secret': secret,
      },
    }),
    renewed: ({ id }) => ({ data: { gid: id, active: true } }),
    fault: (_, message) => ({ errors: [{ message }] }),
    removed: { status: 200, body: { data: {} } },
    message: signedHex('x-hook-signature', ({ target }) => ({
      events: [{ action: 'changed', resource: { gid: target, resource_type: 'task' } }],
    })),
  },
  airtable: {
    path: /^\/api\.airtable\.com\/v0\/bases\/(?<target>[^/]+)\/webhooks(?:\/(?<id>[^/]+)(?:\/refresh)?)?$/,
    request: (body, target) => ({ target, address: text(body.notificationUrl) }),
    makeSecret: () => randomBytes(32).toString('base64'),
    makeId: () => `ach${randomBytes(7).toString('hex')}`,
    lifeMs: 7 * dayMs,
    created: ({ id, secret, expiresAt }) => ({
      status: 200,
      body: { id, macSecretBase64: secret, expirationTime: iso(expiresAt) },
    }),
    renewed: ({ expiresAt }) => ({ expirationTime: iso(expiresAt) }),
    fault: (_, error) => ({ error }),
    removed: { status: 200, body: true },
    message({ id, target }, key, { nowMs }) {
      const body = JSON.stringify({ base: { id: target }, webhook: { id }, timestamp: iso(nowMs) });
      const mac = hmac(Buffer.from(key, 'base64'), body).digest('hex');
      return { body, headers: { 'x-airtable-content-mac': `hmac-sha256=${mac}` } };
    },
  },
  typeform: {
    path: /^\/api\.typeform\.com\/forms\/(?<target>[^/]+)\/webhooks\/(?<id>[^/]+)$/,
    createsBy: 'PUT',
    request: ({ url, secret }, target) => ({ target, address: text(url), secret: text(secret) }),
    makeId: (_, tag) => text(tag),
    created: ({ id, target, address }) => ({
      status: 200,
      body: { id: 'yRtagDm8AT', tag: id, form_id: target, url: address, enabled: true, verify_ssl: true },
    }),
    renewed: ({ id, target }) => ({ id: 'yRtagDm8AT', tag: id, form_id: target, enabled: true }),
    fault: (_, code) => ({ code }),
    removed: { status: 204, body: '' },
    message({ target }, key) {
      const body = JSON.stringify({ event_type: 'form_response', form_response: { form_id: target } });
      return { body, headers: { 'typeform-signature': `sha256=${hmac(key, body).digest('base64')}` } };
    },
  },
  calendly: {
    path: /^\/api\.calendly\.com\/webhook_subscriptions(?:\/(?<id>[^/]+))?$/,
    request: ({ url, user, signing_key }) => ({
      target: user === calendlyUser ? '' : `of another user: ${user}`,
      address: text(url),
      secret: text(signing_key),
    }),
    makeId: () => randomUUID(),
    created: ({ id, address }) => ({
      status: 201,
      body: {
        resource: { uri: `https://api.calendly.com/webhook_subscriptions/${id}`, callback_url: address },
      },
    }),
    renewed: ({ id }) => ({
      resource: { uri: `https://api.calendly.com/webhook_subscriptions/${id}`, state: 'active' },
    }),
    fault: (_, title) => ({ title }),
    removed: { status: 204, body: '' },
    message(_, key, { nowMs }) {
      const body = JSON.stringify({ event: 'invitee.created', created_by: calendlyUser, payload: {} });
      const t = Math.floor(nowMs / 1000);
      return {
        body,
        headers: { 'calendly-webhook-signature': `t=${t},v1=${hmac(key, `${t}.${body}`).digest('hex')}` },
      };
    },
  },
  pipedrive: {
    path: /^\/api\.pipedrive\.com\/v1\/webhooks(?:\/(?<id>[^/]+))?$/,
    request: ({ subscription_url, http_auth_user, http_auth_password }) => ({
      target: '',
      address: text(subscription_url),
      secret: `${http_auth_user}:${http_auth_password}`,
    }),
    makeId: (count) => String(count + 500),
    created: ({ id }) => ({ status: 201, body: { status: 'ok', success: true, data: { id: Number(id) } } }),
    fault: (_, error) => ({ success: false, error }),
    removed: { status: 200, body: { status: 'ok', success: true } },
    message({ id }, key) {
      const meta = { action: 'change', entity: 'deal', company_id: '9', webhook_id: id, version: '2.0' };
      const authorization = `Basic ${Buffer.from(key).toString('base64')}`;
      return { body: JSON.stringify({ data: { id: 1 }, meta }), headers: { authorization } };
    },
  },
  attio: {
    path: /^\/api\.attio\.com\/v2\/webhooks(?:\/(?<id>[^/]+))?$/,
    request: (body) => ({ target: '', address: text((body.data as Body | undefined)?.target_url) }),
    makeSecret: hexSecret,
    makeId: () => randomUUID(),
    created: ({ id, secret }) => ({
      status: 200,
      body: { data: { id: { workspace_id: 'ws1', webhook_id: id }, status: 'active', secret } },
    }),
    renewed: ({ id }) => ({ data: { id: { workspace_id: 'ws1', webhook_id: id }, status: 'active' } }),
    fault: (status_code, code) => ({ status_code, code }),
    removed: { status: 200, body: {} },
    message: signedHex('attio-signature', ({ id }) => ({
      webhook_id: id,
      events: [{ event_type: 'record.updated', id: { workspace_id: 'ws1' } }],
    })),
  },
  clickup: {
    path: /^\/api\.clickup\.com\/api\/v2\/(?:team\/(?<target>[^/]+)\/webhook|webhook\/(?<id>[^/]+))$/,
    request: ({ endpoint }, target) => ({ target, address: text(endpoint) }),
    makeSecret: hexSecret,
    makeId: () => randomUUID(),
    created: ({ id, address, secret }) => ({
      status: 200,
      body: { id, webhook: { id, endpoint: address, events: ['*'], secret } },
    }),
    fault: (_, err) => ({ err }),
    removed: { status: 200, body: {} },
    message: signedHex('x-signature', ({ id }) => ({ webhook_id: id, event: 'taskUpdated' })),
  },
  gitlab: {
    path: /^\/gitlab\.com\/api\/v4\/projects\/(?<target>[^/]+)\/hooks(?:\/(?<id>[^/]+))?$/,
    request: ({ url, token }, target) => ({
      target: decodeURIComponent(target),
      address: text(url),
      secret: text(token),
    }),
    makeId: (count) => String(count),
    created: ({ id, address }) => ({ status: 201, body: { id: Number(id), url: address } }),
    renewed: ({ id, address }) => ({ id: Number(id), url: address }),
    fault: (status, message) => ({ message: `${status} ${message}` }),
    removed: { status: 204, body: '' },
    message: ({ target }, token) => ({
      body: JSON.stringify({ object_kind: 'push', project: { path_with_namespace: target } }),
      headers: { 'x-gitlab-event': 'Push Hook', 'x-gitlab-token': token },
    }),
  },
  /** Its messages come through Cloud Pub/Sub, which is not part of this. */
  gmail: {
    path: /^\/gmail\.googleapis\.com\/gmail\/v1\/users\/me\/watch$/,
    request: ({ topicName }) => ({ target: '', address: text(topicName), secret: '' }),
    makeId: () => 'watch',
    lifeMs: 7 * dayMs,
    created: ({ expiresAt }) => ({
      status: 200,
      body: { historyId: '1234567890', expiration: String(expiresAt) },
    }),
    fault: (code, reason) => ({ error: { code, errors: [{ reason }] } }),
    removed: { status: 204, body: '' },
    message: () => ({ body: '' }),
  },
} satisfies Record<string, Api>;

const calendlyUser = 'https://api.calendly.com/users/AAAAAAAAAAAAAAAA';
const calendlyPath = '/api.calendly.com/users/me';

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

  async answer({ method, path, body }: Call): Promise<Reply> {
    this.calls.push(`${method} ${path}`);
    if (this.mode === 'refuse') return { status: 403, body: { error: { code: 'Forbidden' } } };
    if (method === 'GET' && path === calendlyPath) {
      const current_organization = 'https://api.calendly.com/organizations/BBBBBBBBBBBBBBBB';
      return { status: 200, body: { resource: { uri: calendlyUser, current_organization } } };
    }
    for (const [provider, api] of Object.entries(apis) as [Provider, Api][]) {
      const match = api.path.exec(path);
      if (match === null) continue;
      const { target = '', id } = match.groups ?? {};
      return this.#answerOf(api, { provider, method, body, target, id });
    }
    return { status: 404, body: {} };
  }

  async #answerOf(
    api: Api,
    of: { provider: Provider; method: string; body: Body; target: string; id: string | undefined },
  ): Promise<Reply> {
    const { provider, method, body, target, id } = of;
    const now = this.#now().getTime();
    const fault = (status: number, reason: string) => ({ status, body: api.fault(status, reason) });
    const until = api.until?.of(body) ?? (api.lifeMs === undefined ? Infinity : now + api.lifeMs);
    const isInTime = api.until === undefined || (until > now && until <= now + api.until.longestMs);
    if (method === api.createsBy || (id === undefined && method === 'POST')) {
      const asked = api.request(body, target);
      const secret = asked.secret ?? api.makeSecret?.() ?? '';
      if (!isInTime) return fault(400, 'ExtensionError');
      const refusal = await api.test?.({ ...asked, secret, body, post: (...of) => this.#post(...of) });
      if (refusal !== undefined) return fault(400, refusal);
      this.#made += 1;
      const made = { ...asked, provider, secret, id: api.makeId(this.#made, id), expiresAt: until };
      // Gmail has one watch of a mailbox.
      const before = this.list.find((one) => provider === 'gmail' && one.provider === provider);
      if (before !== undefined)
        return api.created(Object.assign(before, made, { renewals: before.renewals + 1 }));
      const added = { ...made, renewals: 0, body };
      this.list.push(added);
      return { ...api.created(added), isCreation: true };
    }
    const found = this.list.find((one) => one.provider === provider && one.id === id && one.expiresAt > now);
    if (found === undefined || (method !== 'DELETE' && api.renewed === undefined))
      return fault(404, 'NotFound');
    if (method === 'DELETE') {
      this.list.splice(this.list.indexOf(found), 1);
      return api.removed;
    }
    if (!isInTime) return fault(400, 'ExtensionError');
    found.expiresAt = until;
    found.renewals += 1;
    return { status: 200, body: api.renewed?.(found) };
  }

  /** Sends a message about a change, or about the subscription itself; returns the status of the response. */
  async notify(
    one: Subscription,
    { lifecycle, key = one.secret, ageMs = 0 }: { lifecycle?: string; key?: string; ageMs?: number } = {},
  ): Promise<number> {
    const api: Api = apis[one.provider];
    const message = api.message(one, key, { lifecycle, nowMs: this.#now().getTime() - ageMs });
    return (await this.#post(one.address, message)).status;
  }

  async #post(
    address: string,
    { body, type = 'application/json', headers = {} }: Message & { type?: string },
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
    const { mode } = subscriptions;
    const call = {
      method: request.method ?? '',
      path: new URL(request.url ?? '', 'http://localhost').pathname,
      body: await jsonOf(request),
    };
    if (mode === 'hang') return void subscriptions.calls.push(`${call.method} ${call.path}`);
    if (mode === 'redirect') return void response.writeHead(302, { location: '/elsewhere' }).end();
    if (mode === 'huge') return writeWithoutEnd(response);
    const reply = await subscriptions
      .answer(call)
      // As for an address that does not answer.
      .catch((error: unknown): Reply => ({ status: 400, body: { error: { code: String(error) } } }));
    if (mode === 'lose' && reply.isCreation) return;
    if (mode === 'break' && reply.isCreation) return void request.socket.destroy();
    const body = mode === 'odd' ? oddOf(reply.body) : reply.body;
    response.writeHead(reply.status, { 'content-type': 'application/json' });
    response.end(reply.status === 204 ? undefined : JSON.stringify(body));
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

/** Writes JSON until the reader leaves. */
function writeWithoutEnd(response: ServerResponse): void {
  const part = `"${'x'.repeat(64 * 1024)}",`;
  const more = () => {
    while (!response.destroyed && response.write(part));
  };
  response.writeHead(200, { 'content-type': 'application/json' }).on('drain', more);
  response.write('[');
  more();
}

/** The same fields with values of other types. */
function oddOf(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return [{ a: value }, null];
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, oddOf(inner)]));
}

async function jsonOf(request: IncomingMessage): Promise<Body> {
  const sent = Buffer.concat(await Array.fromAsync(request as AsyncIterable<Buffer>)).toString();
  return sent === '' ? {} : (JSON.parse(sent) as Body);
}
