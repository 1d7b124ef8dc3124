/** What calls about syncs name, and what a trigger may ask for. */
import { z } from 'zod';
import { fieldError } from '../../errors.ts';
import { functionName } from '../deploys/definition.ts';
import type { SyncName, SyncPlace } from './syncs.ts';

/** `rows`, `rows::a-variant`, or both apart. */
export const syncName = z
  .union([
    z.string().transform((given) => {
      const [name = '', ...variant] = given.split('::');
      return { name, variant: variant.length === 0 ? undefined : variant.join('::') };
    }),
    z.strictObject({ name: z.string(), variant: z.string().optional() }),
  ])
  .transform(({ name, variant }) => ({ name, variant: variant ?? 'base' }))
  .pipe(z.object({ name: functionName, variant: functionName }));
export const opts = z.strictObject({ reset: z.boolean().optional(), emptyCache: z.boolean().optional() });
/** By model: how many records the next end of its delete tracking may delete. */
export const allowances = z
  .record(z.string().min(1).max(255), z.int().min(1).max(Number.MAX_SAFE_INTEGER))
  .refine((given) => Object.keys(given).length > 0, 'names no model');

export function wantedOf(given: string): SyncName[] | undefined {
  if (given === '*') return undefined;
  const read = z.array(syncName).safeParse(given.split(','));
  if (read.success) return read.data;
  throw fieldError('invalid_query_params', ['syncs'], 'is `*` or names of syncs, separated by commas');
}

/** What a trigger forgets first. The names that came before `opts` stand alone. */
export function resetOf(body: {
  opts?: z.output<typeof opts> | undefined;
  sync_mode?: string | undefined;
  full_resync?: boolean | undefined;
}): 'kept' | 'removed' | undefined {
  const { sync_mode: mode, full_resync: isFull } = body;
  if (body.opts !== undefined) {
    if (mode !== undefined || isFull !== undefined)
      throw fieldError('invalid_body', ['opts'], 'does not stand beside `sync_mode` or `full_resync`');
    const { reset, emptyCache } = body.opts;
    return reset ? (emptyCache ? 'removed' : 'kept') : undefined;
  }
  if (mode === 'full_refresh_and_clear_cache') return 'removed';
  return mode === 'full_refresh' || isFull ? 'kept' : undefined;
}

/** An allowance is for one sync of one connection, without a reset. */
export function requireOneSync(
  { place: at, wanted }: { place: SyncPlace; wanted: readonly SyncName[] },
  reset: 'kept' | 'removed' | undefined,
): void {
  const fault =
    at.connectionId === undefined
      ? 'needs a `connection_id`'
      : wanted.length !== 1
        ? 'needs one name in `syncs`'
        : reset !== undefined && 'does not stand beside a reset, which forgets what was held';
  if (fault) throw fieldError('invalid_body', ['allow_mass_delete'], fault);
}
