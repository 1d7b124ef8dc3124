/** The resources of an environment and the calls of their routes. Bodies and results have the field names of the wire. */
import { Paged } from './paged.ts';
import type { Answer, Body, CallOptions, KeyedCallOptions, Query } from './route-call.ts';
import type { Transport } from './transport.ts';

export type Integration = Answer<'GET /integrations/{key}'>['data'];
export type Provider = Answer<'GET /providers/{provider}'>['data'];
/** A connection in a list, without credentials. */
export type ListedConnection = Answer<'GET /connections'>['connections'][number];
/** A connection with all fields that the key may read. */
export type ConnectionDetails = Answer<'GET /connections/{id}'>;
export type ConnectSession = Answer<'POST /connect/sessions'>['data'];
export type ApiKey = Answer<'GET /environment/api-keys'>['data'][number];
export type Variable = Answer<'GET /environment-variables'>[number];
type Health = Answer<'GET /connections/{id}/health'>;

export class Integrations {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  list(call: CallOptions = {}): Promise<Integration[]> {
    return this.#transport.data({ route: 'GET /integrations', ...call });
  }

  /** `include` adds optional fields; credentials require the scope `integrations:secrets`. */
  get(
    key: string,
    { include, ...call }: CallOptions & Query<'GET /integrations/{key}'> = {},
  ): Promise<Integration> {
    return this.#transport.data({
      route: 'GET /integrations/{key}',
      path: { key },
      query: { include },
      ...call,
    });
  }

  create(body: Body<'POST /integrations'>, call: KeyedCallOptions = {}): Promise<Integration> {
    return this.#transport.data({ route: 'POST /integrations', body, ...call });
  }

  /** Creates an integration with the OAuth client of the sandbox. Returns an existing integration unchanged. */
  createTest(body: Body<'POST /integrations/quickstart'>, call: KeyedCallOptions = {}): Promise<Integration> {
    return this.#transport.data({ route: 'POST /integrations/quickstart', body, ...call });
  }

  update(key: string, body: Body<'PATCH /integrations/{key}'>, call: CallOptions = {}): Promise<Integration> {
    return this.#transport.data({ route: 'PATCH /integrations/{key}', path: { key }, body, ...call });
  }

  /** Throws `integration_in_use` if the integration has connections. */
  delete(key: string, call: CallOptions = {}): Promise<Answer<'DELETE /integrations/{key}'>> {
    return this.#transport.json({ route: 'DELETE /integrations/{key}', path: { key }, ...call });
  }
}

export class Providers {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  list({ search, ...call }: CallOptions & Query<'GET /providers'> = {}): Promise<Provider[]> {
    return this.#transport.data({ route: 'GET /providers', query: { search }, ...call });
  }

  get(provider: string, call: CallOptions = {}): Promise<Provider> {
    return this.#transport.data({ route: 'GET /providers/{provider}', path: { provider }, ...call });
  }
}

export type ConnectionListOptions = Pick<CallOptions, 'signal'> &
  Pick<
    Query<'GET /connections'>,
    'connectionId' | 'search' | 'endUserId' | 'endUserOrganizationId' | 'integrationId' | 'sort'
  > & {
    /** Only connections with one of these statuses. */
    status?: readonly Health['status'][] | undefined;
    tags?: Readonly<Record<string, string>> | undefined;
    pageSize?: number | undefined;
  };
export type GetConnectionOptions = CallOptions & {
  /** Whether to refresh the credentials even if they are still valid. */
  forceRefresh?: boolean | undefined;
  /** Whether to include the refresh token; requires the scope `connections:refresh_tokens`. */
  refreshToken?: boolean | undefined;
};
export type DeleteConnectionOptions = CallOptions &
  Pick<Query<'DELETE /connections/{id}'>, 'revoke' | 'confirm_others'>;

export class Connections {
  /** The application's own data about a connection. */
  readonly metadata: Metadata;
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
    this.metadata = new Metadata(transport);
  }

  /**
   * Lists connections, newest first or in the order of `sort`. Yields each connection once. Pages are counted from the start,
   * so deletions during the iteration may cause other connections to be skipped.
   */
  list(options: ConnectionListOptions = {}): Paged<ListedConnection> {
    const transport = this.#transport;
    const { pageSize: limit = 100, status, tags = {}, signal, ...filters } = options;
    const byTag = Object.fromEntries(Object.entries(tags).map(([name, value]) => [`tags[${name}]`, value]));
    const query = { ...filters, ...byTag, status: status?.join(','), limit };
    return new Paged(
      async function* () {
        const seen = new Set<number>();
        for (let page = 0; ; page += 1) {
          const sent = { route: 'GET /connections', query: { ...query, page }, signal };
          const { connections } = await transport.json<Answer<'GET /connections'>>(sent);
          yield connections.filter(({ id }) => !seen.has(id));
          if (connections.length < limit) return;
          for (const { id } of connections) seen.add(id);
        }
      },
      (page) => page,
    );
  }

  /** Returns a connection. If the key may read credentials, returns valid credentials or throws `invalid_credentials`. */
  get(
    integration: string,
    id: string,
    { forceRefresh, refreshToken, ...call }: GetConnectionOptions = {},
  ): Promise<ConnectionDetails> {
    const query = {
      ...of(integration),
      force_refresh: forceRefresh,
      refresh_token: refreshToken,
    };
    return this.#transport.json({ route: 'GET /connections/{id}', path: { id }, query, ...call });
  }

  /** Imports credentials. Replaces the credentials, tags and metadata of an existing connection. */
  create(body: Body<'POST /connections'>, call: KeyedCallOptions = {}): Promise<ConnectionDetails> {
    return this.#transport.json({ route: 'POST /connections', body, ...call });
  }

  update(
    integration: string,
    id: string,
    body: Body<'PATCH /connections/{id}'>,
    call: CallOptions = {},
  ): Promise<Answer<'PATCH /connections/{id}'>> {
    const sent = { route: 'PATCH /connections/{id}', path: { id }, query: of(integration), body };
    return this.#transport.json({ ...sent, ...call });
  }

  /** Deletes a connection, and revokes its grant at the provider if no other connection uses it: see `revocation` in the result. */
  delete(
    integration: string,
    id: string,
    { revoke, confirm_others, ...call }: DeleteConnectionOptions = {},
  ): Promise<Answer<'DELETE /connections/{id}'>> {
    const query = { ...of(integration), revoke, confirm_others };
    return this.#transport.json({ route: 'DELETE /connections/{id}', path: { id }, query, ...call });
  }

  /** Refreshes the credentials and returns the health of the connection. */
  refresh(integration: string, id: string, call: CallOptions = {}): Promise<Health> {
    const sent = { route: 'POST /connections/{id}/refresh', path: { id }, query: of(integration) };
    return this.#transport.json({ ...sent, ...call });
  }

  /** Returns the status of a connection, its cause and the next step. */
  health(integration: string, id: string, call: CallOptions = {}): Promise<Health> {
    const sent = { route: 'GET /connections/{id}/health', path: { id }, query: of(integration) };
    return this.#transport.json({ ...sent, ...call });
  }
}

export class Metadata {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Replaces the metadata of one connection or of several. */
  set(
    integration: string,
    id: string | readonly string[],
    metadata: Record<string, unknown>,
    call: CallOptions = {},
  ): Promise<Answer<'POST /connections/metadata'>> {
    const body = { ...of(integration), connection_id: id, metadata };
    return this.#transport.json({ route: 'POST /connections/metadata', body, ...call });
  }

  /** Replaces the given top-level fields of the metadata. */
  merge(
    integration: string,
    id: string | readonly string[],
    metadata: Record<string, unknown>,
    call: CallOptions = {},
  ): Promise<Answer<'PATCH /connections/metadata'>> {
    const body = { ...of(integration), connection_id: id, metadata };
    return this.#transport.json({ route: 'PATCH /connections/metadata', body, ...call });
  }
}

const of = (integration: string) => ({ integration_id: integration });

/** Short-lived permissions for end users to create or renew a connection. Pass the token to `@trellis-run/client/connect`. */
export class ConnectSessions {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  create(body: Body<'POST /connect/sessions'>, call: KeyedCallOptions = {}): Promise<ConnectSession> {
    return this.#transport.data({ route: 'POST /connect/sessions', body, ...call });
  }

  /** Creates a session that renews a connection. The health of the connection has the body, in `reconnect`. */
  reconnect(
    body: Body<'POST /connect/sessions/reconnect'>,
    call: KeyedCallOptions = {},
  ): Promise<ConnectSession> {
    return this.#transport.data({ route: 'POST /connect/sessions/reconnect', body, ...call });
  }
}

/** Short-lived permissions to call the provider of one connection, for a browser, an agent or a job. */
export class Tickets {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  create(body: Body<'POST /tickets'>, call: CallOptions = {}): Promise<Answer<'POST /tickets'>['data']> {
    return this.#transport.data({ route: 'POST /tickets', body, ...call });
  }
}

/** The variables of the environment, which functions read. */
export class Variables {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Values are null if the key lacks the scope `environment:secrets`. */
  list(call: CallOptions = {}): Promise<Variable[]> {
    return this.#transport.json({ route: 'GET /environment-variables', ...call });
  }

  /** Sets the given variables. Does not change others. */
  set(variables: Readonly<Record<string, string>>, call: CallOptions = {}): Promise<Variable[]> {
    const set = Object.entries(variables).map(([name, value]) => ({ name, value }));
    return this.#transport.json({ route: 'PATCH /environment-variables', body: { set }, ...call });
  }

  remove(names: readonly string[], call: CallOptions = {}): Promise<Variable[]> {
    return this.#transport.json({ route: 'PATCH /environment-variables', body: { remove: names }, ...call });
  }
}

/** The secret keys of the environment. */
export class Keys {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  list(call: CallOptions = {}): Promise<ApiKey[]> {
    return this.#transport.data({ route: 'GET /environment/api-keys', ...call });
  }

  /** Creates a key. Only this result contains the secret. */
  create(
    body: Body<'POST /environment/api-keys'>,
    call: CallOptions = {},
  ): Promise<Answer<'POST /environment/api-keys'>['data']> {
    return this.#transport.data({ route: 'POST /environment/api-keys', body, ...call });
  }

  update(
    id: number,
    body: Body<'PATCH /environment/api-keys/{id}'>,
    call: CallOptions = {},
  ): Promise<ApiKey> {
    return this.#transport.data({ route: 'PATCH /environment/api-keys/{id}', path: { id }, body, ...call });
  }

  /** Deletes a key. Other nodes refuse it within one second. */
  delete(id: number, call: CallOptions = {}): Promise<Answer<'DELETE /environment/api-keys/{id}'>> {
    return this.#transport.json({ route: 'DELETE /environment/api-keys/{id}', path: { id }, ...call });
  }
}
