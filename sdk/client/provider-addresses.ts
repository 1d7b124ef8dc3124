import type { Answer } from './route-call.ts';
import type { Transport } from './transport.ts';
import { unlessAborted } from './when-aborted.ts';

/** An integration may be given another address meanwhile. */
const knownMs = 5 * 60_000;

type Known = { address: Promise<string>; until: number; waiting: number; stop: AbortController };

/** The addresses of the providers of integrations, asked for once for all connections of a client. */
export class ProviderAddresses {
  readonly #transport: Transport;
  readonly #known = new Map<string, Known>();

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Without a slash at the end; `${...}` in it is what each connection has its own of. Throws `TrellisError`, or the signal's
   * reason. The service is asked for as long as anybody waits.
   */
  async of(integration: string, signal: AbortSignal | undefined): Promise<string> {
    signal?.throwIfAborted();
    const known = this.#find(integration) ?? this.#ask(integration);
    known.waiting += 1;
    try {
      return await unlessAborted(known.address, signal);
    } finally {
      known.waiting -= 1;
      if (known.waiting === 0 && signal?.aborted && known.until === Number.POSITIVE_INFINITY) {
        this.#forget(integration, known);
        known.stop.abort();
      }
    }
  }

  #find(integration: string): Known | undefined {
    const known = this.#known.get(integration);
    return known !== undefined && Date.now() < known.until ? known : undefined;
  }

  #ask(integration: string): Known {
    const stop = new AbortController();
    const address = this.#fresh(integration, stop.signal);
    const known: Known = { address, until: Number.POSITIVE_INFINITY, waiting: 0, stop };
    this.#known.set(integration, known);
    address.then(
      () => {
        known.until = Date.now() + knownMs;
      },
      () => this.#forget(integration, known),
    );
    return known;
  }

  #forget(integration: string, known: Known): void {
    if (this.#known.get(integration) === known) this.#known.delete(integration);
  }

  async #fresh(integration: string, signal: AbortSignal): Promise<string> {
    const { data } = await this.#transport.json<Answer<'GET /integrations/{key}'>>({
      ...{ route: 'GET /integrations/{key}', path: { key: integration }, signal },
    });
    const found = await this.#transport.json<Answer<'GET /providers/{provider}'>>({
      ...{ route: 'GET /providers/{provider}', path: { provider: data.provider }, signal },
    });
    const { base_url = '' } = (found.data.proxy ?? {}) as { base_url?: string };
    // A setting of the integration, such as a host.
    const filled = base_url.replace(
      /\$\{integrationConfig\.(\w+)\}/g,
      (whole, name: string) => data.integration_config[name] ?? whole,
    );
    return withoutSlash(filled);
  }
}

export function withoutSlash(address: string): string {
  return address.replace(/\/+$/, '');
}
