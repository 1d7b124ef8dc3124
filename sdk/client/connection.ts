import { Actions } from './actions.ts';
import { errorOfAnswer, TrellisError } from './errors.ts';
import type { ProviderAddresses } from './provider-addresses.ts';
import { proxiedFetch } from './proxied-fetch.ts';
import { Records } from './records.ts';
import type { Answer, CallOptions } from './route-call.ts';
import { Syncs } from './syncs.ts';
import type { Fetch, Transport } from './transport.ts';

export type ConnectionOptions = {
  /**
   * The provider's own address, such as `https://sheets.googleapis.com`. Only needed where a key that may not read
   * integrations, or a ticket, calls whole addresses: else the service is asked for it.
   */
  baseUrl?: string | undefined;
};

/** One authorized account: its provider's API, its records, its functions. Nothing is fetched to make one. */
export class Connection<B extends string = 'trellis'> {
  readonly integration: string;
  readonly id: string;
  /**
   * Calls the provider with the user's credentials, and has the form of `fetch`: give it to a library that takes one.
   *
   * ```ts
   * const answer = await connection.fetch('/v4/spreadsheets/1AbC/values/cities');
   * ```
   *
   * A path is the provider's; a whole address is of its API, or of another that the integration allows. What the provider
   * answers comes as it is. A redirect of a GET or HEAD is followed without the key and without headers; any other, and one
   * back to the service, is the answer. A browser tells no page where a redirect leads: there it throws a `TypeError`, unless
   * `redirect: 'manual'` asks for such an answer. An error of Trellis is an answer too: ask `errorOf`.
   */
  readonly fetch: Fetch;
  /** Syncs: run now, pause, status. */
  readonly syncs: Syncs;
  /** Actions: run one, and have its output. */
  readonly actions: Actions;
  readonly #transport: Transport;
  readonly #brand: string;

  /** @internal */
  constructor(
    { transport, addresses, brand }: { transport: Transport; addresses: ProviderAddresses; brand: string },
    { integration, id, baseUrl }: { integration: string; id: string } & ConnectionOptions,
  ) {
    this.integration = integration;
    this.id = id;
    this.#transport = transport;
    this.#brand = brand;
    const headers = { 'connection-id': id, 'provider-config-key': integration };
    this.fetch = proxiedFetch({ transport, addresses, brand, integration, connectionId: id, baseUrl });
    this.syncs = new Syncs(transport, { provider_config_key: integration, connection_id: id });
    this.actions = new Actions(transport, headers);
  }

  /** The records of a model, and of a variant of it. */
  records<T extends object = Record<string, unknown>>(
    model: string,
    { variant }: { variant?: string | undefined } = {},
  ): Records<T, B> {
    const { integration, id: connectionId } = this;
    return new Records<T, B>({
      ...{ transport: this.#transport, brand: this.#brand },
      ...{ integration, connectionId, model, variant },
    });
  }

  /** What there is of records, by model and variant: counts, sizes, settings, the newest cursor. */
  async datasets(call: CallOptions = {}): Promise<Answer<'GET /records/datasets'>['datasets']> {
    const headers = { 'connection-id': this.id, 'provider-config-key': this.integration };
    const sent = { route: 'GET /records/datasets', headers, ...call };
    return (await this.#transport.json<Answer<'GET /records/datasets'>>(sent)).datasets;
  }

  /** What Trellis says is wrong, where it and not the provider gave the answer; the answer can still be read. */
  async errorOf(response: Response): Promise<TrellisError | undefined> {
    const code = response.headers.get(`x-${this.#brand}-error`);
    if (code === null) return undefined;
    const told = errorOfAnswer(response, { text: response.bodyUsed ? '' : await response.clone().text() });
    if (told.code === code) return told;
    const { status, requestId, retryAfterMs } = told;
    return new TrellisError({ code, message: code, status, requestId, retryAfterMs });
  }
}
