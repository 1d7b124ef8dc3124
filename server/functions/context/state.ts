/** What a function keeps of a connection for its next run: one text for each variant, sealed with the connection's key. */
import { promisify } from 'node:util';
import { constants, createZstdDecompress, zstdCompress } from 'node:zlib';
import { z } from 'zod';
import type { LiveConnection } from '../../connections/reader.ts';
import { type Db, first, type Queryable } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import { queueEvent } from '../../events/outbox.ts';
import type { Ask, RunFacts } from './context.ts';
import { largeBodies, smallBytes, turnMs, withBody } from './large-body.ts';

const sealing = 'function state';
/** Before it is compressed. */
const maxStateBytes = 64 * 1024 * 1024;
const compress = promisify(zstdCompress);
const options = { params: { [constants.ZSTD_c_compressionLevel]: 1 } };

type Given = { db: Db; fenced: Db; connection: () => Promise<LiveConnection>; facts: RunFacts };

const reading = z.object({
  /** Another sync of the integration, to be read and no more. */
  of: z.object({ sync: z.string().max(255), variant: z.string().max(255).default('base') }).optional(),
});

/** `getState` and `saveState`: both stream, since a state may be larger than an answer. */
export function stateAsks({ db, fenced, connection, facts }: Given): [string, Ask][] {
  const own = { functionId: facts.functionId, variant: facts.variant };

  async function placeOf(of: z.output<typeof reading>['of'], { integrationId }: LiveConnection) {
    if (of === undefined) return own;
    const found = first(
      await db.query<{ id: number }>(
        `select id
         from function
         where environment_id = $1 and integration_id = $2 and kind = 'sync' and name = $3`,
        [facts.environmentId, integrationId, of.sync],
      ),
    );
    return found && { functionId: found.id, variant: of.variant };
  }

  return [
    [
      'getState',
      async (args, { signal }) => {
        const { of } = reading.parse(args ?? {});
        const known = await connection();
        const place = await placeOf(of, known);
        const at = place && { ...place, connectionId: known.id };
        const sizeBytes = at && (await sizeOf(db, at));
        if (sizeBytes === undefined) return { value: false };
        const body = async () => {
          const found = await findState(db, at!);
          return found === undefined ? Buffer.alloc(0) : known.dataKey.open(found, sealing);
        };
        return { value: true, body: inflated(body, { sizeBytes, signal }) };
      },
    ],
    [
      'saveState',
      async (_args, { body, signal }) =>
        withBody(body, { maxBytes: maxStateBytes, signal, tooLarge }, async (text) => {
          const { id: connectionId, dataKey } = await connection();
          const value = dataKey.seal(await compress(text, options), sealing);
          await fenced.transaction((tx) =>
            tx.query(
              `insert into function_state (function_id, connection_id, variant, value)
               values ($1, $2, $3, $4)
               on conflict on constraint function_state_pkey do update
                 set value = excluded.value, updated_at = now()`,
              [own.functionId, connectionId, own.variant, value],
            ),
          );
          return { value: null };
        }),
    ],
  ];
}

async function findState(
  q: Queryable,
  at: { connectionId: number; functionId: number; variant: string },
): Promise<Buffer | undefined> {
  const found = await q.query<{ value: Buffer }>(
    'select value from function_state where connection_id = $1 and function_id = $2 and variant = $3',
    [at.connectionId, at.functionId, at.variant],
  );
  return first(found)?.value;
}

async function sizeOf(
  q: Queryable,
  at: { connectionId: number; functionId: number; variant: string },
): Promise<number | undefined> {
  const found = await q.query<{ bytes: number }>(
    `select octet_length(value) as bytes
     from function_state
     where function_id = $1 and connection_id = $2 and variant = $3`,
    [at.functionId, at.connectionId, at.variant],
  );
  return first(found)?.bytes;
}

/** A state as its reader takes it: a few bytes may stand for megabytes. Its reader has a minute. */
async function* inflated(
  read: () => Promise<Buffer>,
  { sizeBytes, signal }: { sizeBytes: number; signal: AbortSignal },
): AsyncGenerator<Uint8Array> {
  const isLarge = sizeBytes > smallBytes;
  const leave = isLarge ? await largeBodies.enter(2 * sizeBytes, signal) : () => {};
  const stream = createZstdDecompress();
  const overdue = new AppError('unavailable', 'The state was not read in time.', { retryAfterS: 1 });
  const timer = setTimeout(() => {
    stream.destroy(overdue);
    leave();
  }, turnMs);
  try {
    stream.end(await read());
    yield* stream;
  } finally {
    clearTimeout(timer);
    stream.destroy();
    leave();
  }
}

/** Where its records are removed, what told them apart is of no use. */
export async function removeState(
  q: Queryable,
  at: { connectionId: number; functionId: number; variant: string },
): Promise<void> {
  await q.query('delete from function_state where connection_id = $1 and function_id = $2 and variant = $3', [
    at.connectionId,
    at.functionId,
    at.variant,
  ]);
}

const tooLarge = () => new AppError('invalid_body', 'A state has at most 64 MB.');

const changes = z
  .array(
    z.object({
      change: z.enum(['added', 'removed', 'renamed', 'moved']),
      field: z.string().max(1_000),
      previous: z.string().max(1_000).optional(),
    }),
  )
  .min(1)
  .max(1_000);

/** `schemaChanged`: tells the application that the provider's fields of a model are others than at the last run. */
export function schemaChangedAsk({ fenced, connection, facts }: Omit<Given, 'db'>): [string, Ask] {
  const args = z.object({ model: z.string().max(255), changes });
  return [
    'schemaChanged',
    async (given) => {
      const read = args.safeParse(given);
      if (!read.success || !facts.models.includes(read.data.model)) {
        throw new AppError('invalid_body', 'What was given to schemaChanged does not fit.');
      }
      const { connectionId, integrationKey } = await connection();
      await fenced.transaction(async (tx) => {
        const named = first(
          await tx.query<{ name: string }>(
            'select name from function where id = $1 and environment_id = $2',
            [facts.functionId, facts.environmentId],
          ),
        );
        await queueEvent(tx, {
          environmentId: facts.environmentId,
          type: 'sync.schema_changed',
          data: {
            ...{ connection_id: connectionId, provider_config_key: integrationKey },
            ...{ function: named?.name ?? '', variant: facts.variant, model: read.data.model },
            changes: read.data.changes,
          },
        });
      });
      return { value: null };
    },
  ];
}
