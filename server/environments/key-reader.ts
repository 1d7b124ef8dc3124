import { timingSafeEqual } from 'node:crypto';
import { type InferResult, sql } from 'kysely';
import { isSecretKey } from '../config/config.ts';
import { type Queryable, tables } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { AuthenticateCall, KeyCaller, TicketCaller } from '../http/auth/caller.ts';
import type { ProxyRule } from '../http/auth/proxy-rule.ts';
import { TtlCache } from '../ttl-cache.ts';
import type { Vault } from '../vault.ts';
import { hashOf } from './keys.ts';
import { keyIdIn, openTicket, signingKeyOf, type TicketKey } from './tickets.ts';

/** The precision of the time of a key's last use. */
const useNotedEveryMs = 60_000;
const maxTicketsOfKey = 1_000;
/** The number of keys that are remembered as valid, 100 bytes each. */
const maxServed = 10_000;

export type KeyReader = AuthenticateCall & {
  /** As `key`, without the cache. */
  reread(secret: string): Promise<KeyCaller>;
  /** Must be called when this node has changed or revoked a key, so that the change applies here immediately. */
  forget(keyId: number): void;
  /** Must be called when this node has deleted or renamed an environment. */
  forgetAll(): void;
  /** Resolves when no last use is being written any more. */
  settled(): Promise<void>;
};

/** A key that makes tickets, and its tickets that were read since its row was read. */
type Maker = {
  readonly key: KeyCaller;
  readonly row: KeyReaderRow;
  readonly signing: TicketKey;
  readonly tickets: Map<string, { caller: TicketCaller; expiresAt: number }>;
};

/**
 * Finds the owner of a secret key or a ticket. `key` throws `invalid_secret_key_format`, or rejects with
 * `unknown_account`; `ticket` throws or rejects with `invalid_ticket`.
 *
 * The row of a key is cached for a second, so the revocation, narrowing or expiry of a key takes effect everywhere within
 * a second, also for its tickets; a cached row costs no wait. No key and no ticket stays in memory for longer than two.
 *
 * Any client can make keys up, and each costs a query. So `admit` is called first, except for a key that was good at its
 * last query: a caller that shares its address with a client that makes keys up is still served.
 */
export function createKeyReader(given: {
  db: Queryable;
  vault: Vault;
  now?: () => number;
  /** The clock of `TtlCache` and of `createKeyRates`. */
  clock?: () => number;
}): KeyReader {
  const { db, vault, now = Date.now, clock = () => performance.now() } = given;
  const noting = new Set<Promise<unknown>>();
  /** Hashes of keys, and IDs of the makers of tickets. */
  const served = new Set<string | number>();

  /** If there are too many, the oldest is removed. */
  function noteServed(name: string | number): void {
    served.add(name);
    const [oldest] = served;
    if (oldest !== undefined && served.size > maxServed) served.delete(oldest);
  }

  /** No call waits for the write; after a failure the next call writes again. */
  function noteUse(key: Pick<KeyReaderRow, 'id' | 'last_used_at'>): void {
    const { id, last_used_at: last } = key;
    const at = new Date(now());
    if (last !== null && at.getTime() - last.getTime() < useNotedEveryMs) return;
    key.last_used_at = at;
    const noted = storeUse(db, { id, at })
      .catch(() => {})
      .finally(() => noting.delete(noted));
    noting.add(noted);
  }

  async function loadCaller(secret: string): Promise<KeyCaller> {
    const hash = hashOf(secret);
    const [row] = await db.run(selectKeys().where('api_key.hash', '=', hash));
    const name = hash.toString('latin1');
    served.delete(name);
    if (row === undefined || !timingSafeEqual(row.hash, hash)) throw new AppError('unknown_account');
    if (!isLive(row)) throw new AppError('unknown_account', 'This secret key has expired.');
    noteServed(name);
    noteUse(row);
    return callerOf(row, clock());
  }

  async function loadMaker(keyId: number): Promise<Maker> {
    const [row] = await db.run(
      selectKeys()
        .innerJoin('data_key', 'data_key.id', 'environment.data_key')
        .select('data_key.wrapped')
        .where('api_key.id', '=', keyId),
    );
    served.delete(keyId);
    if (row === undefined || !isLive(row)) throw new AppError('invalid_ticket');
    noteServed(keyId);
    const signing = signingKeyOf(vault.unwrap(row.wrapped), row.hash);
    return { key: callerOf(row, clock()), row, signing, tickets: new Map() };
  }

  const isLive = ({ expires_at: ends }: KeyReaderRow) => ends === null || ends.getTime() > now();
  const endOf = ({ expiresAt }: KeyCaller) => expiresAt?.getTime() ?? Number.POSITIVE_INFINITY;
  const itself = <K>(key: K) => key;
  const callers = new TtlCache({ load: loadCaller, keyOf: itself<string>, endOf, now, clock, max: 10_000 });
  const makers = new TtlCache({
    load: loadMaker,
    keyOf: itself<number>,
    endOf: ({ key }) => endOf(key),
    now,
    clock,
    max: 1_000,
  });

  function callerBy(token: string, maker: Maker): TicketCaller {
    const known = maker.tickets.get(token);
    const { caller, expiresAt } = known ?? openTicket(token, maker);
    if (expiresAt <= now()) throw new AppError('invalid_ticket', 'The ticket has expired. Request another.');
    if (known === undefined) {
      if (maker.tickets.size >= maxTicketsOfKey) maker.tickets.clear();
      maker.tickets.set(token, { caller, expiresAt });
    }
    noteUse(maker.row);
    return caller;
  }

  return {
    key(secret, admit) {
      const caller = callers.known(secret);
      if (caller !== undefined) return caller;
      if (!isSecretKey(secret)) throw new AppError('invalid_secret_key_format');
      if (!served.has(hashOf(secret).toString('latin1'))) admit?.();
      return callers.get(secret);
    },
    reread: (secret) => callers.reread(secret),
    ticket(token, admit) {
      const keyId = keyIdIn(token);
      if (makers.known(keyId) === undefined && !served.has(keyId)) admit?.();
      const maker = makers.get(keyId);
      return maker instanceof Promise ? maker.then((read) => callerBy(token, read)) : callerBy(token, maker);
    },
    forget(keyId) {
      callers.forgetWhere((caller) => caller.keyId === keyId);
      makers.forgetWhere(({ key }) => key.keyId === keyId);
    },
    forgetAll() {
      callers.forgetWhere(() => true);
      makers.forgetWhere(() => true);
    },
    async settled() {
      await Promise.all(noting);
    },
  };
}

const selectKeys = () =>
  tables
    .selectFrom('api_key')
    .innerJoin('environment', 'environment.id', 'api_key.environment_id')
    .leftJoin('key_rate', 'key_rate.key_id', 'api_key.id')
    .select([
      'api_key.id',
      'api_key.hash',
      'api_key.scopes',
      'api_key.proxy_rules',
      'api_key.expires_at',
      'api_key.rate_limit',
      'api_key.last_used_at',
      'environment.id as environment_id',
      'environment.name',
      sql<number | null>`extract(epoch from key_rate.full_at - now())::float8 * 1000`.as('full_in_ms'),
    ])
    .where('api_key.revoked_at', 'is', null);
/** `full_in_ms` is null if nothing was ever taken from the key's bucket. */
type KeyReaderRow = InferResult<ReturnType<typeof selectKeys>>[number];

/** `atMs`: when the row was read, by the monotonic clock. */
function callerOf(row: KeyReaderRow, atMs: number): KeyCaller {
  return {
    kind: 'key',
    environmentId: row.environment_id,
    environment: row.name,
    keyId: row.id,
    scopes: new Set(row.scopes),
    proxyRules: row.proxy_rules as ProxyRule[],
    expiresAt: row.expires_at ?? undefined,
    rateLimit: row.rate_limit ?? undefined,
    fullAtMs: row.full_in_ms === null ? undefined : atMs + row.full_in_ms,
  };
}

/** Of nodes that write at the same time, one changes the row. */
async function storeUse(db: Queryable, { id, at }: { id: number; at: Date }): Promise<void> {
  await db.run(
    tables
      .updateTable('api_key')
      .set({ last_used_at: at })
      .where('id', '=', id)
      .where((either) =>
        either.or([
          either('last_used_at', 'is', null),
          either('last_used_at', '<=', new Date(at.getTime() - useNotedEveryMs)),
        ]),
      ),
  );
}
