// The published node client against a service of its brand, with the sandbox as the provider.

import { Nango } from '@nangohq/node';
import { openReceiver, type Receiver } from '../../../server/deliveries/deliveries.fixture.ts';
import { actionCode, deployBody, flowConfig, syncCode } from '../../support/functions.ts';
import { connect, openTrellis, type TestTrellis } from '../../support/trellis.ts';

/** The integration with the connection that the tests share. */
export const key = 'google-sheet';

export type NodeSubject = {
  trellis: TestTrellis;
  /** The client as it is published; what it answers is noted in `answered`. */
  client: Nango;
  /** The methods that came back with an answer. */
  answered: Set<string>;
  /** ada's account at the sandbox. */
  connectionId: string;
  /** Where a call goes that names its place so. */
  place: { providerConfigKey: string; connectionId: string };
  /** The API of the integration `private`, which keeps what it is sent. */
  upstream: Receiver;
  /** A connection of `private`. */
  privatePlace: { providerConfigKey: string; connectionId: string };
  close(): Promise<void>;
};

/** The test of one method: it sees an answer of it, of the shape that the client declares, and what it did. */
type MethodTest = (subject: NodeSubject) => Promise<void>;
/** Each by the name of its method. */
export type MethodTests = Record<string, MethodTest>;

export async function openNodeSubject(): Promise<NodeSubject> {
  const upstream = await openReceiver();
  const allow = { TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8,::1/128' };
  const trellis = await openTrellis({ TRELLIS_BRAND: 'nango', ...allow });
  const answered = new Set<string>();
  const { connectionId } = await connect(trellis);
  const client = noting(new Nango({ host: trellis.baseUrl, secretKey: trellis.keys.dev }), answered);
  const privatePlace = { providerConfigKey: 'private', connectionId: 'a-key' };
  const made = await Promise.all([
    trellis.call('POST', '/sync/deploy', { body: deployBody(flows) }),
    openPrivate(trellis, { ...privatePlace, baseUrl: new URL(upstream.url).origin }),
  ]);
  for (const { status, text } of made) if (status >= 300) throw new Error(text);
  return {
    trellis,
    client,
    answered,
    connectionId,
    upstream,
    privatePlace,
    place: { providerConfigKey: key, connectionId },
    async close() {
      await trellis.close();
      await upstream.close();
    },
  };
}

/** A sync that starts when it is told to, an action, and one that fails. */
const flows = [
  flowConfig({ name: 'things', type: 'sync', code: syncCode({ more: 'autoStart: false,' }) }),
  flowConfig({ name: 'double', code: actionCode(), source: '// as it was written' }),
  flowConfig({
    name: 'fails',
    code: actionCode({ more: 'exec: async (nango) => { throw new nango.ActionError({ sku: 7 }); },' }),
  }),
];

async function openPrivate(
  trellis: TestTrellis,
  { providerConfigKey, connectionId, baseUrl }: { [name: string]: string },
) {
  await trellis.call('POST', '/integrations', {
    body: {
      provider: 'private-api-key',
      unique_key: providerConfigKey,
      integration_config: { base_url: baseUrl },
    },
  });
  return trellis.call('POST', '/connections', {
    body: {
      provider_config_key: providerConfigKey,
      connection_id: connectionId,
      credentials: { type: 'API_KEY', apiKey: 'the key of the provider' },
    },
  });
}

/** The client itself; what a caller calls, and not what it calls of its own, is noted once it has answered. */
function noting(client: Nango, answered: Set<string>): Nango {
  return new Proxy(client, {
    get(target, name) {
      const found: unknown = Reflect.get(target, name);
      if (typeof found !== 'function') return found;
      return (...given: unknown[]) => {
        const answer: unknown = found.apply(target, given);
        if (!(answer instanceof Promise)) {
          answered.add(String(name));
          return answer;
        }
        return answer.then((value: unknown) => {
          answered.add(String(name));
          return value;
        });
      };
    },
  });
}

/** How a call of the client failed, as its users read it. */
export async function failure(
  call: Promise<unknown>,
): Promise<{ status: number; code: unknown; message: unknown; errors?: { path: string[] }[] }> {
  try {
    await call;
  } catch (error) {
    const { response } = error as { response?: { status: number; data: { error?: object } } };
    if (response?.data.error === undefined) throw error;
    const { code, message, errors } = response.data.error as {
      [name: string]: unknown;
      errors?: { path: string[] }[];
    };
    return { status: response.status, code, message, ...(errors && { errors }) };
  }
  throw new Error('the call did not fail');
}

/** Status and code alone. */
export async function refusal(call: Promise<unknown>): Promise<[number, unknown]> {
  const { status, code } = await failure(call);
  return [status, code];
}
