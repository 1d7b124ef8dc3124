/** What an environment holds, each with the calls of its routes. Bodies and answers are as they go over the wire. */
import { Paged } from './paged.ts';
import type { Answer, Body, CallOptions, Query } from './route-call.ts';
import type { Transport } from './transport.ts';

export type Integration = Answer<'GET /integrations/{key}'>['data'];
export type Provider = Answer<'GET /providers/{provider}'>['data'];
/** A connection as it is listed: without credentials. */
export type ListedConnection = Answer<'GET /connections'>['connections'][number];
/** A connection with all that the key may see of it. */
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

  async list(call: CallOptions = {}): Promise<Integration[]> {
    const sent = { route: 'GET /integrations', ...call };
    return (await this.#transport.json<Answer<'GET /integrations'>>(sent)).data;
  }

  /** `include` adds what is not told otherwise; credentials take the scope `integrations:secrets`. */
  async get(
    key: string,
    { include, ...call }: CallOptions & Query<'GET /integrations/{key}'> = {},
  ): Promise<Integration> {
    const sent = { route: 'GET /integrations/{key}', path: { key }, query: { include }, ...call };
    return (await this.#transport.json<Answer<'GET /integrations/{key}'>>(sent)).data;
  }

  async create(body: Body<'POST /integrations'>, call: CallOptions = {}): Promise<Integration> {
    const sent = { route: 'POST /integrations', body, ...call };
    return (await this.#transport.json<Answer<'POST /integrations'>>(sent)).data;
  }

  /** With the client of the sandbox, to try things. An integration that is there already is answered as it is. */
  async createTest(
    body: Body<'POST /integrations/quickstart'>,
    call: CallOptions = {},
  ): Promise<Integration> {
    const sent = { route: 'POST /integrations/quickstart', body, ...call };
    return (await this.#transport.json<Answer<'POST /integrations/quickstart'>>(sent)).data;
  }

  async update(
    key: string,
    body: Body<'PATCH /integrations/{key}'>,
    call: CallOptions = {},
  ): Promise<Integration> {
    const sent = { route: 'PATCH /integrations/{key}', path: { key }, body, ...call };
    return (await this.#transport.json<Answer<'PATCH /integrations/{key}'>>(sent)).data;
  }

  /** Throws `integration_in_use` while it has connections. */
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

  async list({ search, ...call }: CallOptions & Query<'GET /providers'> = {}): Promise<Provider[]> {
    const sent = { route: 'GET /providers', query: { search }, ...call };
    return (await this.#transport.json<Answer<'GET /providers'>>(sent)).data;
  }

  async get(provider: string, call: CallOptions = {}): Promise<Provider> {
    const sent = { route: 'GET /providers/{provider}', path: { provider }, ...call };
    return (await this.#transport.json<Answer<'GET /providers/{provider}'>>(sent)).data;
  }
}

export type ConnectionListOptions = Pick<CallOptions, 'signal'> &
  Pick<
    Query<'GET /connections'>,
    'connectionId' | 'search' | 'endUserId' | 'endUserOrganizationId' | 'integrationId' | 'sort'
  > & {
    /** Only those of one of these. */
    status?: readonly Health['status'][] | undefined;
    tags?: Readonly<Record<string, string>> | undefined;
    pageSize?: number | undefined;
  };
export type GetConnectionOptions = CallOptions & {
  /** Refresh now, whether it is due or not. */
  forceRefresh?: boolean | undefined;
  /** Also what renews the credentials; takes the scope `connections:refresh_tokens`. */
  refreshToken?: boolean | undefined;
};
export type DeleteConnectionOptions = CallOptions &
  Omit<Query<'DELETE /connections/{id}'>, 'provider_config_key'>;

export class Connections {
  /** What the application keeps with a connection. */
  readonly metadata: Metadata;
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
    this.metadata = new Metadata(transport);
  }

  /**
   * Newest first, or those that were used last; each comes once. The service counts pages off: where connections are deleted
   * while they are walked, others may be passed over.
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

  /** With fresh credentials, where the key may see them: throws `invalid_credentials` then for one that is dead. */
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

  /** Imports credentials that you hold. One that exists gets these, and its tags and metadata become those of the body. */
  create(body: Body<'POST /connections'>, call: CallOptions = {}): Promise<ConnectionDetails> {
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

  /** Also ends the grant at the provider, where nobody else needs it: see `revocation` in the answer. */
  delete(
    integration: string,
    id: string,
    { revoke, confirm_others, ...call }: DeleteConnectionOptions = {},
  ): Promise<Answer<'DELETE /connections/{id}'>> {
    const query = { ...of(integration), revoke, confirm_others };
    return this.#transport.json({ route: 'DELETE /connections/{id}', path: { id }, query, ...call });
  }

  /** Refreshes now, and tells how the connection is then. */
  refresh(integration: string, id: string, call: CallOptions = {}): Promise<Health> {
    const sent = { route: 'POST /connections/{id}/refresh', path: { id }, query: of(integration) };
    return this.#transport.json({ ...sent, ...call });
  }

  /** Why it works or not, and what to do. */
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

  /** Puts this in place of what there was, of one connection or of all that are named. */
  set(
    integration: string,
    id: string | readonly string[],
    metadata: Record<string, unknown>,
    call: CallOptions = {},
  ): Promise<Answer<'POST /connections/metadata'>> {
    const body = { ...of(integration), connection_id: id, metadata };
    return this.#transport.json({ route: 'POST /connections/metadata', body, ...call });
  }

  /** Changes the fields that it names, one level deep. */
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

const of = (integration: string) => ({ provider_config_key: integration });

/** Short-lived rights of end users to make or renew a connection: give the token to `trellis-client/connect`. */
export class ConnectSessions {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  async create(body: Body<'POST /connect/sessions'>, call: CallOptions = {}): Promise<ConnectSession> {
    const sent = { route: 'POST /connect/sessions', body, ...call };
    return (await this.#transport.json<Answer<'POST /connect/sessions'>>(sent)).data;
  }

  /** To renew a connection, by the body that `reconnect` of its health holds. */
  async reconnect(
    body: Body<'POST /connect/sessions/reconnect'>,
    call: CallOptions = {},
  ): Promise<ConnectSession> {
    const sent = { route: 'POST /connect/sessions/reconnect', body, ...call };
    return (await this.#transport.json<Answer<'POST /connect/sessions/reconnect'>>(sent)).data;
  }
}

/** Rights to call the provider of one connection for a while, for a browser, an agent or a job. */
export class Tickets {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  async create(
    body: Body<'POST /tickets'>,
    call: CallOptions = {},
  ): Promise<Answer<'POST /tickets'>['data']> {
    const sent = { route: 'POST /tickets', body, ...call };
    return (await this.#transport.json<Answer<'POST /tickets'>>(sent)).data;
  }
}

/** Variables of the environment, which functions read. */
export class Variables {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Values are null to a key without the scope `environment:secrets`. */
  list(call: CallOptions = {}): Promise<Variable[]> {
    return this.#transport.json({ route: 'GET /environment-variables', ...call });
  }

  /** Sets those that are named; others stay. */
  set(variables: Readonly<Record<string, string>>, call: CallOptions = {}): Promise<Variable[]> {
    const set = Object.entries(variables).map(([name, value]) => ({ name, value }));
    return this.#transport.json({ route: 'PATCH /environment-variables', body: { set }, ...call });
  }

  remove(names: readonly string[], call: CallOptions = {}): Promise<Variable[]> {
    return this.#transport.json({ route: 'PATCH /environment-variables', body: { remove: names }, ...call });
  }
}

/** Secret keys of the environment. */
export class Keys {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  async list(call: CallOptions = {}): Promise<ApiKey[]> {
    const sent = { route: 'GET /environment/api-keys', ...call };
    return (await this.#transport.json<Answer<'GET /environment/api-keys'>>(sent)).data;
  }

  /** The secret is told this once. */
  async create(
    body: Body<'POST /environment/api-keys'>,
    call: CallOptions = {},
  ): Promise<Answer<'POST /environment/api-keys'>['data']> {
    const sent = { route: 'POST /environment/api-keys', body, ...call };
    return (await this.#transport.json<Answer<'POST /environment/api-keys'>>(sent)).data;
  }

  async update(
    id: number,
    body: Body<'PATCH /environment/api-keys/{id}'>,
    call: CallOptions = {},
  ): Promise<ApiKey> {
    const sent = { route: 'PATCH /environment/api-keys/{id}', path: { id }, body, ...call };
    return (await this.#transport.json<Answer<'PATCH /environment/api-keys/{id}'>>(sent)).data;
  }

  /** Ends a key, at once here and within a second on other nodes. */
  delete(id: number, call: CallOptions = {}): Promise<Answer<'DELETE /environment/api-keys/{id}'>> {
    return this.#transport.json({ route: 'DELETE /environment/api-keys/{id}', path: { id }, ...call });
  }
}
