// What the types of the client promise; a line that must not compile says so. Read by the compiler, never run.

import { isTrellisError, Trellis, type TrellisEvent, verifyEvent } from '@trellis-run/client';

type City = { city: string; size?: number };

const trellis = new Trellis({ url: 'https://trellis.example.com', key: 'k' });
const connection = trellis.connection('google-sheet', 'ada');
const plain: typeof globalThis.fetch = connection.fetch;
export const ask = () => plain('/x');

export async function readRecords(signal: AbortSignal | undefined): Promise<void> {
  const cities = connection.records<City>('City', { variant: undefined });
  for await (const { records, cursor, isRestart, isCaughtUp } of cities.follow({
    consumer: 'billing',
    signal,
  })) {
    const first: string | undefined = records[0]?.city;
    const at: string = records[0]!._trellis_metadata.cursor;
    console.log(first, at, cursor, (isRestart && isCaughtUp) satisfies boolean);
    // @ts-expect-error a pruned record has no city
    const whole: string = records[0]!.city;
    // @ts-expect-error there is no such field
    console.log(whole, records[0]!.town);
  }
  await cities.save([{ id: 1, city: 'Oslo' }]);
  // @ts-expect-error the city is missing
  await cities.save([{ id: 1 }]);
  await cities.prune({ until: 'c', onProgress: ({ pruned, total }) => console.log(pruned / total) });
  const loose = await connection.records('Any').list().toArray({ atMost: 1 });
  console.log(loose[0]?.whatever satisfies unknown, loose[0]?._trellis_metadata.pruned_at);
  const branded = new Trellis({ url: 'https://trellis.example.com', key: 'k', brand: 'acme' });
  const [theirs] = await branded.connection('i', 'c').records<City>('City').list().toArray();
  console.log(theirs?._acme_metadata.pruned_at);
  // @ts-expect-error that is the name of another brand
  console.log(theirs?._trellis_metadata);
}

export async function callRoutes(): Promise<void> {
  const [one] = await trellis.connections.list({ status: ['active'] }).toArray();
  const status: 'active' | 'needs_reauth' | 'blocked' | undefined = one?.health.status;
  console.log(status);
  // @ts-expect-error there is no such status
  trellis.connections.list({ status: ['dead'] });
  const { data } = await trellis.request('GET /environment/settings');
  console.log(data.webhook_url satisfies string | null);
  await trellis.request('GET /operations/{id}', { path: { id: 'x' } });
  // @ts-expect-error the id is missing
  await trellis.request('GET /operations/{id}');
  // @ts-expect-error there is no such route
  await trellis.request('GET /nothing');
  // @ts-expect-error providers are called by `fetch` of a connection
  await trellis.request('GET /proxy/{path}', { path: { path: 'x' } });
}

export function readError(error: unknown): void {
  if (isTrellisError(error)) console.log(error.code satisfies string, error.payload satisfies unknown);
  if (isTrellisError(error, 'mass_delete_held')) console.log(error.payload.would_delete satisfies number);
  if (isTrellisError(error, 'cursor_expired', 'timeout')) {
    const code: 'cursor_expired' | 'timeout' = error.code;
    console.log(code);
  }
  // @ts-expect-error there is no such code
  isTrellisError(error, 'no_such_code');
}

export async function readEvent(body: string, headers: Record<string, string | string[] | undefined>) {
  const event: TrellisEvent = await verifyEvent(body, headers, 'whsec_...');
  if (event.type === 'records.mass_delete_held') return event.data.live satisfies number;
  if (event.type === 'connection.created') return event.data.account?.email satisfies string | undefined;
  // @ts-expect-error there is no such type
  return event.type === 'connection.exploded';
}
