import type { Answer, Body, CallOptions, Query } from './route-call.ts';
import type { Transport } from './transport.ts';

/** The name of a sync, or a name and a variant. */
export type SyncName = Body<'POST /functions/syncs/trigger'>['syncs'][number];
/** One sync or a list of at least one; `'*'` means all syncs of the connection. */
export type SyncNames = SyncName | readonly SyncName[] | '*';
export type TriggerOptions = CallOptions &
  Pick<Body<'POST /functions/syncs/trigger'>, 'opts' | 'sync_mode' | 'allow_mass_delete'>;

/** The syncs of one connection. */
export class Syncs {
  readonly #transport: Transport;
  readonly #of: { integration_id: string; connection_id: string };

  /** @internal */
  constructor(transport: Transport, of: { integration_id: string; connection_id: string }) {
    this.#transport = transport;
    this.#of = of;
  }

  /** Starts runs now. `opts` can reset the state of a sync and empty its cache. Throws a `TypeError` for an empty list. */
  async trigger(
    syncs: SyncNames,
    { opts, sync_mode, allow_mass_delete, ...call }: TriggerOptions = {},
  ): Promise<Answer<'POST /functions/syncs/trigger'>> {
    const body = { ...this.#of, syncs: namesOf(syncs), opts, sync_mode, allow_mass_delete };
    return this.#transport.json({ route: 'POST /functions/syncs/trigger', body, ...call });
  }

  /** Resumes the schedule of syncs. Throws a `TypeError` for an empty list. */
  async start(syncs: SyncNames, call: CallOptions = {}): Promise<Answer<'POST /functions/syncs/start'>> {
    const body = { ...this.#of, syncs: namesOf(syncs) };
    return this.#transport.json({ route: 'POST /functions/syncs/start', body, ...call });
  }

  /** Cancels current runs, and starts no run until `start`. Throws a `TypeError` for an empty list. */
  async pause(syncs: SyncNames, call: CallOptions = {}): Promise<Answer<'POST /functions/syncs/pause'>> {
    const body = { ...this.#of, syncs: namesOf(syncs) };
    return this.#transport.json({ route: 'POST /functions/syncs/pause', body, ...call });
  }

  /** Returns the status of all syncs, or of those named. */
  async status(
    syncs: readonly string[] | '*' = '*',
    call: CallOptions = {},
  ): Promise<Answer<'GET /functions/syncs/status'>['syncs']> {
    const query: Query<'GET /functions/syncs/status'> = { ...this.#of, syncs: [syncs].flat().join(',') };
    const sent = { route: 'GET /functions/syncs/status', query, ...call };
    return (await this.#transport.json<Answer<'GET /functions/syncs/status'>>(sent)).syncs;
  }

  /** Sets the schedule of a sync for this connection, such as `every hour`; null restores the schedule of the sync. */
  setFrequency(
    sync: string,
    frequency: string | null,
    { variant, ...call }: CallOptions & { variant?: string | undefined } = {},
  ): Promise<Answer<'PUT /functions/syncs/frequency'>> {
    const body = { ...this.#of, sync_name: sync, sync_variant: variant, frequency };
    return this.#transport.json({ route: 'PUT /functions/syncs/frequency', body, ...call });
  }
}

/** To the service an empty list means all syncs. A list that is empty by mistake would reset or pause all, so it is refused. */
function namesOf(syncs: SyncNames): SyncName[] {
  if (syncs === '*') return [];
  const names = [syncs].flat();
  if (names.length === 0)
    throw new TypeError("syncs: the list is empty. Use '*' for all syncs of the connection.");
  return names;
}
