import type { Answer, Body, CallOptions, Query } from './route-call.ts';
import type { Transport } from './transport.ts';

/** A sync by its name, or one of its variants. */
export type SyncName = Body<'POST /sync/trigger'>['syncs'][number];
/** One or several, at least one; `'*'` is all that the connection has. */
export type SyncNames = SyncName | readonly SyncName[] | '*';
export type TriggerOptions = CallOptions &
  Pick<Body<'POST /sync/trigger'>, 'opts' | 'sync_mode' | 'allow_mass_delete'>;

/** Syncs of one connection. */
export class Syncs {
  readonly #transport: Transport;
  readonly #of: { provider_config_key: string; connection_id: string };

  /** @internal */
  constructor(transport: Transport, of: { provider_config_key: string; connection_id: string }) {
    this.#transport = transport;
    this.#of = of;
  }

  /** Has them run now. `opts` can reset what a sync remembers, and empty its cache. Throws a `TypeError` for an empty list. */
  async trigger(
    syncs: SyncNames,
    { opts, sync_mode, allow_mass_delete, ...call }: TriggerOptions = {},
  ): Promise<Answer<'POST /sync/trigger'>> {
    const body = { ...this.#of, syncs: namesOf(syncs), opts, sync_mode, allow_mass_delete };
    return this.#transport.json({ route: 'POST /sync/trigger', body, ...call });
  }

  /** Has them run by their schedule again. Throws a `TypeError` for an empty list. */
  async start(syncs: SyncNames, call: CallOptions = {}): Promise<Answer<'POST /sync/start'>> {
    const body = { ...this.#of, syncs: namesOf(syncs) };
    return this.#transport.json({ route: 'POST /sync/start', body, ...call });
  }

  /** Ends what runs, and starts none until `start`. Throws a `TypeError` for an empty list. */
  async pause(syncs: SyncNames, call: CallOptions = {}): Promise<Answer<'POST /sync/pause'>> {
    const body = { ...this.#of, syncs: namesOf(syncs) };
    return this.#transport.json({ route: 'POST /sync/pause', body, ...call });
  }

  /** Where they stand: all, or those named. */
  async status(
    syncs: readonly string[] | '*' = '*',
    call: CallOptions = {},
  ): Promise<Answer<'GET /sync/status'>['syncs']> {
    const query: Query<'GET /sync/status'> = { ...this.#of, syncs: [syncs].flat().join(',') };
    const sent = { route: 'GET /sync/status', query, ...call };
    return (await this.#transport.json<Answer<'GET /sync/status'>>(sent)).syncs;
  }

  /** Another schedule for this connection, such as `every hour`; null for the sync's own. */
  setFrequency(
    sync: string,
    frequency: string | null,
    { variant, ...call }: CallOptions & { variant?: string | undefined } = {},
  ): Promise<Answer<'PUT /sync/update-connection-frequency'>> {
    const body = { ...this.#of, sync_name: sync, sync_variant: variant, frequency };
    return this.#transport.json({ route: 'PUT /sync/update-connection-frequency', body, ...call });
  }
}

/** As the service takes them: none for all. So a list that came out empty would have it reset or pause everything. */
function namesOf(syncs: SyncNames): SyncName[] {
  if (syncs === '*') return [];
  const names = [syncs].flat();
  if (names.length === 0) throw new TypeError("syncs: the list is empty. All of a connection are '*'.");
  return names;
}
