/** What the tests of real clients share: one account, reached straight at the sandbox and through the proxy. */
import { connect, openTrellis, type TestTrellis } from '../support/trellis.ts';

/** One of the two ways to the same provider. */
export type Way = {
  readonly name: string;
  /** The address that a client takes in the place of https://sheets.googleapis.com or https://www.googleapis.com. */
  readonly root: string;
  /** What the client sends as its access token. */
  readonly token: string;
  /** Headers that each call needs besides. */
  readonly headers: Readonly<Record<string, string>>;
};

export type BothWays = { trellis: TestTrellis; straight: Way; proxied: Way; close(): Promise<void> };

/** A service, a sandbox, a connection of ada's with this provider, and both ways to it. */
export async function openBothWays(provider: 'google-sheet' | 'google-drive'): Promise<BothWays> {
  const trellis = await openTrellis();
  const { connectionId, headers } = await connect(trellis, { provider, integration: provider });
  const { body } = await trellis.call('GET', `/connections/${connectionId}?provider_config_key=${provider}`);
  const { access_token: token } = body.credentials as { access_token: string };
  return {
    trellis,
    straight: { name: 'straight', root: trellis.sandbox.url, token, headers: {} },
    proxied: { name: 'proxied', root: `${trellis.baseUrl}/proxy`, token: trellis.keys.dev, headers },
    close: () => trellis.close(),
  };
}

/** A value as JSON carries it, with ids numbered in the order they come up and times struck out. */
export function comparable(value: unknown, ids: readonly string[]): unknown {
  const text = ids.reduce(
    (all, id, index) => all.replaceAll(id, `id-${index}`),
    JSON.stringify(value, (_, one) => (one === undefined ? null : one)),
  );
  return JSON.parse(text.replace(/"\d{4}-\d\d-\d\dT[\d:.]+Z"/g, '"a time"'));
}
