/**
 * What the suite is run against: this service, started for it, or any other that the environment names.
 *
 * CONFORMANCE_URL is the proxy's address (`http://127.0.0.1:3003/proxy`), CONFORMANCE_HEADERS a JSON object of the
 * headers that every call needs, CONFORMANCE_PORT the port where the suite's own provider listens: the integration's
 * base address must be `http://127.0.0.1:<port>`, its `allowed_base_urls` `http://localhost:<port>`.
 * CONFORMANCE_OAUTH_HEADERS is a JSON array of such objects, one for each promise about refused tokens: connections whose
 * tokens can be refreshed, and a Base-Url-Override where their API is not at the suite's provider.
 */
import assert from 'node:assert/strict';
import { connect, openTrellis, type TestTrellis } from '../support/trellis.ts';
import { type Address, type Ask, all, Conversation, call, type Reply } from './caller.ts';
import { ok, type Provider, type Script, startProvider } from './provider.ts';

/** Calls of one connection. */
export type Calls = {
  /** Calls while the provider does this; the answer, to its end. */
  ask(ask?: Ask, script?: Script): Promise<Reply>;
  /** Begins a call while the provider does this. */
  open(ask?: Ask, script?: Script): Conversation;
};

export type Subject = Calls & {
  readonly provider: Provider;
  /** `X-Trellis-Error`, in the words of the subject's brand. */
  readonly marker: string;
  /** Prefix of headers for the provider. */
  readonly headerPrefix: string;
  /** A connection whose token can be refreshed and has not been yet; undefined: there is none left. */
  refreshable(): Promise<Calls | undefined>;
  /** Another request on an open connection. */
  continue(conversation: Conversation, ask: Ask): void;
  /** The error code of an answer that is the proxy's own. */
  errorOf(reply: Reply): string | undefined;
  close(): Promise<void>;
};

/** A promise of the proxy, and the proof; it resolves with `unproven` where the subject lacks what the proof needs. */
export type Promised = { readonly name: string; readonly prove: (subject: Subject) => Promise<unknown> };

export async function openSubject(): Promise<Subject> {
  const {
    CONFORMANCE_URL: url,
    CONFORMANCE_HEADERS: headers = '{}',
    CONFORMANCE_PORT: port = '0',
  } = process.env;
  if (url === undefined) return openOwn();
  const provider = await startProvider(Number(port));
  const given = JSON.parse(headers) as Record<string, string>;
  const left = JSON.parse(process.env.CONFORMANCE_OAUTH_HEADERS ?? '[]') as Record<string, string>[];
  return subjectAt(addressOf(url, given), {
    provider,
    async refreshable() {
      const next = left.shift();
      return next && addressOf(url, next);
    },
    close: () => provider.close(),
  });
}

async function openOwn(): Promise<Subject> {
  const provider = await startProvider();
  const trellis = await openTrellis({ TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8,::1/128' });
  const integration = await trellis.call('POST', '/integrations', {
    body: {
      unique_key: 'conformance',
      provider: 'private-api-key',
      integration_config: {
        base_url: `http://127.0.0.1:${provider.port}`,
        allowed_base_urls: `http://localhost:${provider.port}, http://127.0.0.1:1`,
      },
    },
  });
  assert.equal(integration.status, 200, integration.text);
  const connection = await trellis.call('POST', '/connections', {
    body: {
      provider_config_key: 'conformance',
      connection_id: 'conformance',
      credentials: { type: 'API_KEY', apiKey: 'secret-of-the-provider' },
    },
  });
  assert.equal(Math.floor(connection.status / 100), 2, connection.text);
  const headers = {
    authorization: `Bearer ${trellis.keys.dev}`,
    'provider-config-key': 'conformance',
    'connection-id': 'conformance',
  };
  const url = `${trellis.baseUrl}/proxy`;
  return subjectAt(addressOf(url, headers), {
    provider,
    async refreshable() {
      const override = `http://127.0.0.1:${provider.port}`;
      const connection = await connectAllowing(trellis, override);
      return addressOf(url, { ...headers, ...connection, 'base-url-override': override });
    },
    async close() {
      await trellis.close();
      await provider.close();
    },
  });
}

/** A connection made at the sandbox, which refreshes its tokens, whose calls may go to that origin. */
async function connectAllowing(trellis: TestTrellis, origin: string): Promise<Record<string, string>> {
  const { headers, integration } = await connect(trellis);
  const changed = await trellis.call('PATCH', `/integrations/${integration}`, {
    body: { integration_config: { allowed_base_urls: origin } },
  });
  assert.equal(changed.status, 200, changed.text);
  return headers;
}

function addressOf(url: string, headers: Record<string, string>): Address {
  const { hostname, port, pathname } = new URL(url);
  return {
    host: hostname,
    port: Number(port || 80),
    prefix: pathname.replace(/\/$/, ''),
    headers: Object.entries(headers),
  };
}

type Given = Pick<Subject, 'provider' | 'close'> & { refreshable(): Promise<Address | undefined> };

function subjectAt(address: Address, { provider, refreshable, close }: Given): Subject {
  const brand = process.env.CONFORMANCE_BRAND ?? 'trellis';
  const marker = `x-${brand}-error`;
  return {
    ...callsAt(address, provider),
    provider,
    marker,
    headerPrefix: `${brand}-proxy-`,
    async refreshable() {
      const other = await refreshable();
      return other && callsAt(other, provider);
    },
    continue: (conversation, ask) => conversation.send(address, ask),
    errorOf: (reply) => all(reply, marker)[0],
    close,
  };
}

function callsAt(address: Address, provider: Provider): Calls {
  const playOk: Script = (seen) => seen.write(ok);
  return {
    ask(ask = {}, script = playOk) {
      provider.play(script);
      return call(address, ask);
    },
    open(ask = {}, script = playOk) {
      provider.play(script);
      return new Conversation(address, ask);
    },
  };
}
