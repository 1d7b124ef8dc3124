/** What a function keeps of a connection for its next run: one text for each variant, sealed with the connection's key. */
import { once } from 'node:events';
import { finished } from 'node:stream/promises';
import { constants, createZstdCompress, createZstdDecompress } from 'node:zlib';
import { z } from 'zod';
import type { LiveConnection } from '../../connections/store/reader.ts';
import { type Db, first, type Queryable } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import { queueEvent } from '../../events/outbox.ts';
import { freeBytes, freeIfLarge, reserve } from '../../large-buffer.ts';
import { type Collector, largeBodies, smallBytes, turnMs, withBody } from './large-body.ts';
import type { RunFacts, ServiceCall } from './service-call.ts';

const sealing = 'function state';
/** Before it is compressed. */
const maxStateBytes = 64 * 1024 * 1024;
const options = { params: { [constants.ZSTD_c_compressionLevel]: 1 } };

type Given = { db: Db; fenced: Db; connection: () => Promise<LiveConnection>; facts: RunFacts };

const reading = z.object({
  /** Another sync of the integration, to be read and no more. */
  of: z.object({ sync: z.string().max(255), variant: z.string().max(255).default('base') }).optional(),
});

/** `getState` and `saveState`: both stream, since a state may be larger than an answer. */
export function stateCalls({ db, fenced, connection, facts }: Given): [string, ServiceCall][] {
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
          if (found === undefined) return Buffer.alloc(0);
          const text = known.dataKey.open(found, sealing);
          freeBytes(found);
          return text;
        };
        return { value: true, body: inflated(body, { sizeBytes, signal }) };
      },
    ],
    [
      'saveState',
      async (_args, { body, signal }) =>
        withBody(body, { maxBytes: maxStateBytes, signal, tooLarge, collect: compressed }, async (text) => {
          const { id: connectionId, dataKey } = await connection();
          const value = dataKey.seal(text, sealing);
          freeBytes(text);
          await fenced.transaction((tx) =>
            tx.query(
              `insert into function_state (function_id, connection_id, variant, value)
               values ($1, $2, $3, $4)
               on conflict on constraint function_state_pkey do update
                 set value = excluded.value, updated_at = now()`,
              [own.functionId, connectionId, own.variant, value],
            ),
          );
          freeIfLarge(value);
          return { value: null };
        }),
    ],
  ];
}

/** Compresses a body as it arrives: only the compressed bytes are held. */
function compressed(): Collector {
  const stream = createZstdCompress(options);
  const parts: Buffer<ArrayBuffer>[] = [];
  stream.on('data', (part: Buffer<ArrayBuffer>) => parts.push(part));
  return {
    async add(bytes) {
      if (!stream.write(bytes)) await once(stream, 'drain');
    },
    async end() {
      await finished(stream.end());
      const all = reserve(parts.reduce((sum, { length }) => sum + length, 0));
      let filled = 0;
      for (const part of parts) {
        filled += part.copy(all, filled);
        if (part.length === part.buffer.byteLength) freeBytes(part);
      }
      return all;
    },
    free: () => void stream.destroy(),
  };
}

/** Of one row that PostgreSQL sends. The driver would otherwise hold a large value several times, also as text. */
const partBytes = 256 * 1024;

async function findState(
  db: Db,
  at: { connectionId: number; functionId: number; variant: string },
): Promise<Buffer<ArrayBuffer> | undefined> {
  let value: Buffer<ArrayBuffer> | undefined;
  await db.transaction((tx) =>
    tx.copyRows(
      `select octet_length(value), n, substring(value from 1 + n * ${partBytes} for ${partBytes})
       from function_state, generate_series(0, (octet_length(value) - 1) / ${partBytes}) as n
       where connection_id = ${at.connectionId} and function_id = ${at.functionId}
         and variant = convert_from('\\x${Buffer.from(at.variant).toString('hex')}', 'utf8')`,
      ([bytes, n, part]) => {
        value ??= reserve(bytes!.readInt32BE());
        part!.copy(value, n!.readInt32BE() * partBytes);
      },
    ),
  );
  return value;
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

/** Deletes the state of a sync, which is useless once its records are removed. */
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

/** `schemaChanged`: queues an event for the application if the provider's fields of a model differ from those of the last run. */
export function schemaChangedCall({ fenced, connection, facts }: Omit<Given, 'db'>): [string, ServiceCall] {
  const args = z.object({ model: z.string().max(255), changes });
  return [
    'schemaChanged',
    async (given) => {
      const read = args.safeParse(given);
      if (!read.success || !facts.models.includes(read.data.model)) {
        throw new AppError('invalid_body', 'The arguments of schemaChanged are not valid.');
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
            connection_id: connectionId,
            provider_config_key: integrationKey,
            function: named?.name ?? '',
            variant: facts.variant,
            model: read.data.model,
            changes: read.data.changes,
          },
        });
      });
      return { value: null };
    },
  ];
}
