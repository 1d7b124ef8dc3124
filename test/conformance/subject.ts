/**
 * What the suite is run against: this service, started for it, or any other that the environment names.
 *
 * CONFORMANCE_URL is the proxy's address (`http://127.0.0.1:3003/proxy`), CONFORMANCE_HEADERS a JSON object of the
 * headers that every call needs, CONFORMANCE_PORT the port where the suite's own provider listens: the integration's
 * base address must be `http://127.0.0.1:<port>`, its `allowed_base_urls` `http://localhost:<port>`.
 */
import assert from 'node:assert/strict';
import { openTrellis } from '../support/trellis.ts';
import { type Address, type Ask, all, Conversation, call, type Reply } from './caller.ts';
import { ok, type Provider, type Script, startProvider } from './provider.ts';

export type Subject = {
  readonly provider: Provider;
  /** `X-Trellis-Error`, in the words of the subject's brand. */
  readonly marker: string;
  /** Prefix of headers for the provider. */
  readonly headerPrefix: string;
  /** Calls while the provider does this; the answer, to its end. */
  ask(ask?: Ask, script?: Script): Promise<Reply>;
  /** Begins a call while the provider does this. */
  open(ask?: Ask, script?: Script): Conversation;
  /** Another request on an open connection. */
  continue(conversation: Conversation, ask: Ask): void;
  /** The error code of an answer that is the proxy's own. */
  errorOf(reply: Reply): string | undefined;
  close(): Promise<void>;
};

/** A promise of the proxy, and the proof. */
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
  return subjectAt(addressOf(url, given), { provider, close: () => provider.close() });
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
  return subjectAt(addressOf(`${trellis.baseUrl}/proxy`, headers), {
    provider,
    async close() {
      await trellis.close();
      await provider.close();
    },
  });
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

function subjectAt(address: Address, { provider, close }: Pick<Subject, 'provider' | 'close'>): Subject {
  const brand = process.env.CONFORMANCE_BRAND ?? 'trellis';
  const marker = `x-${brand}-error`;
  const playOk: Script = (seen) => seen.write(ok);
  return {
    provider,
    marker,
    headerPrefix: `${brand}-proxy-`,
    ask(ask = {}, script = playOk) {
      provider.play(script);
      return call(address, ask);
    },
    open(ask = {}, script = playOk) {
      provider.play(script);
      return new Conversation(address, ask);
    },
    continue: (conversation, ask) => conversation.send(address, ask),
    errorOf: (reply) => all(reply, marker)[0],
    close,
  };
}
