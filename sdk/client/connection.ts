import { Actions } from './actions.ts';
import { errorOfResponse, TrellisError } from './errors.ts';
import { type ProviderUrls, proxiedFetch } from './proxied-fetch.ts';
import { Records } from './records.ts';
import type { Answer, CallOptions } from './route-call.ts';
import { Syncs } from './syncs.ts';
import type { Fetch, Transport } from './transport.ts';

export type ConnectionOptions = {
  /**
   * The base URL of the provider, such as `https://sheets.googleapis.com`. Required only if `fetch` gets complete URLs and the
   * key is a ticket or lacks the scope `integrations:read`. Otherwise the client requests it from the service.
   */
  baseUrl?: string | undefined;
};

/** The handle of one authorized account: its provider's API, its records, its functions. Creating one sends no request. */
export class Connection<B extends string = 'trellis'> {
  readonly integration: string;
  readonly id: string;
  /**
   * Calls the provider with the user's credentials. Has the signature of `fetch`, so it can be passed to a library that
   * accepts a `fetch` function:
   *
   * ```ts
   * const response = await connection.fetch('/v4/spreadsheets/1AbC/values/cities');
   * ```
   *
   * Accepts a path of the provider's API, or a complete URL of this API or of another address that the integration allows.
   * Returns the provider's response unchanged. An error of Trellis is returned as a response too; see `errorOf`.
   *
   * Follows a redirect of a GET or HEAD without the key and without headers. Returns any other redirect, and a redirect to the
   * service, as the response. A browser hides the target of a redirect: there `fetch` throws a `TypeError`, unless
   * `redirect: 'manual'` is set.
   */
  readonly fetch: Fetch;
  /** Starts, pauses and inspects syncs. */
  readonly syncs: Syncs;
  /** Runs actions. */
  readonly actions: Actions;
  readonly #transport: Transport;
  readonly #brand: string;

  /** @internal */
  constructor(
    { transport, providerUrls, brand }: { transport: Transport; providerUrls: ProviderUrls; brand: string },
    { integration, id, baseUrl }: { integration: string; id: string } & ConnectionOptions,
  ) {
    this.integration = integration;
    this.id = id;
    this.#transport = transport;
    this.#brand = brand;
    const headers = { 'connection-id': id, 'integration-id': integration };
    this.fetch = proxiedFetch({ transport, providerUrls, brand, integration, connectionId: id, baseUrl });
    this.syncs = new Syncs(transport, { integration_id: integration, connection_id: id });
    this.actions = new Actions(transport, headers);
  }

  /** The handle of the records of a model and variant. Sends no request. */
  records<T extends object = Record<string, unknown>>(
    model: string,
    { variant }: { variant?: string | undefined } = {},
  ): Records<T, B> {
    const { integration, id: connectionId } = this;
    return new Records<T, B>({
      transport: this.#transport,
      brand: this.#brand,
      integration,
      connectionId,
      model,
      variant,
    });
  }

  /** Returns the datasets of the connection, one for each model and variant: counts, sizes, settings, the last cursor. */
  async datasets(call: CallOptions = {}): Promise<Answer<'GET /records/datasets'>['datasets']> {
    const headers = { 'connection-id': this.id, 'integration-id': this.integration };
    const sent = { route: 'GET /records/datasets', headers, ...call };
    return (await this.#transport.json<Answer<'GET /records/datasets'>>(sent)).datasets;
  }

  /** Returns the error of Trellis if the response is from Trellis, else undefined. The body of the response stays readable. */
  async errorOf(response: Response): Promise<TrellisError | undefined> {
    const code = response.headers.get(`x-${this.#brand}-error`);
    if (code === null) return undefined;
    const error = errorOfResponse(response, { text: response.bodyUsed ? '' : await response.clone().text() });
    if (error.code === code) return error;
    const { status, requestId, retryAfterMs } = error;
    return new TrellisError({ code, message: code, status, requestId, retryAfterMs });
  }
}
