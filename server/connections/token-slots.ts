import type { Queryable } from '../db/pool.ts';
import type { EventData } from '../events/catalogue.ts';
import type { ConnectionSubject } from '../events/event-type.ts';
import { queueEvent } from '../events/outbox.ts';
import { connectionEvent } from './event.ts';
import { type ConnectionHead, findHead } from './store.ts';

/**
 * The word about accounts whose live refresh tokens come near to what the provider lets live.
 *
 * Owns: from when on it is given, its text, the event `connection.token_slots`, the column `token_slots`. Does not own:
 * counting (`grants.ts`).
 */
type TokenSlots = NonNullable<ConnectionHead['tokenSlots']>;

type Place = Pick<ConnectionHead, 'id' | 'environmentId'>;

const nearShare = 0.8;
const nextToGo =
  "The account has as many live grants with this OAuth client as the provider allows, and this connection's is the oldest: the next one ends it without notice. Ask its user to connect it again.";

/** Whether the application should know: from 80 % of the limit on. */
export function isNear({ used, limit }: TokenSlots): boolean {
  return used >= limit * nearShare;
}

/** What to do about it. */
export function slotsNextStep({ used, limit }: TokenSlots): string {
  return `The account has ${used} of the ${limit} live grants that the provider allows for it and this OAuth client; beyond that the oldest ends without notice. Reconnect its oldest connections, or delete unused ones, instead of connecting it again.`;
}

/** What the connection's health says of it from now on; nothing while the limit is far. */
export async function storeSlots(
  q: Queryable,
  { id, slots }: { id: number; slots: TokenSlots },
): Promise<void> {
  await q.query('update connection set token_slots = $2 where id = $1 and deleted_at is null', [
    id,
    isNear(slots) ? JSON.stringify(slots) : null,
  ]);
}

/** The account has come near to the limit, with a token of this connection or beside it. */
export async function tellNear(
  tx: Queryable,
  { place, slots }: { place: Place; slots: TokenSlots },
): Promise<void> {
  await tell(tx, { place, more: { ...slots, is_next: false, next_step: slotsNextStep(slots) } });
}

/** The limit is reached, and this connection's token is the oldest. */
export async function tellNext(
  tx: Queryable,
  { place, slots }: { place: Place; slots: TokenSlots },
): Promise<void> {
  await tell(tx, { place, more: { ...slots, is_next: true, next_step: nextToGo } });
}

/** The event belongs to the environment of its connection: the cause may be in another environment. */
async function tell(
  tx: Queryable,
  { place, more }: { place: Place; more: Omit<EventData['connection.token_slots'], keyof ConnectionSubject> },
): Promise<void> {
  const connection = await findHead(tx, place);
  if (connection === undefined) return;
  await queueEvent(tx, {
    environmentId: connection.environmentId,
    type: 'connection.token_slots',
    data: { ...connectionEvent(connection), ...more },
  });
}
