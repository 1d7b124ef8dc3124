/**
 * Writes the activity log: a bounded queue in memory, batches of rows for COPY, and what the log may hold of addresses and
 * errors.
 */
import { CopyRows } from '../db/copy.ts';
import { type Db, mayPass, type Queryable, type Tx } from '../db/pool.ts';
import { AppError, errorCatalogue } from '../errors.ts';
import { decodedBytes } from '../http/query.ts';
import type { Logger } from '../log.ts';
import { outside } from '../tracing/tracing.ts';
import {
  type Operation,
  type OperationDetails,
  OperationIds,
  type OperationMessage,
  type SealedMessage,
} from './operations.ts';
import { ensureDay } from './partitions.ts';
import { CountNames, Tally } from './tally.ts';

/** The activity log for all modules. */
export type Activity = {
  /** Returns at once, never throws, and waits for nothing. The entry is in the database within a second. */
  log(operation: Operation): void;
  /** The operations since the start of this node that are neither logged nor counted: the queue was full, or a write failed. */
  readonly dropped: number;
  /**
   * Writes the queue, for a second at most, and discards later operations. A write that is under way continues; if it fails,
   * its batch counts as discarded.
   */
  stop(): Promise<void>;
};

export type ActivitySettings = {
  /** The logged share, 0 to 1, of the proxied calls that succeed. All other operations are logged. All are counted. */
  readonly sampleRate: number;
};

type ActivityParts = {
  db: Db;
  log: Logger;
  settings: ActivitySettings;
  nowMs?: () => number;
  random?: () => number;
  /** The size of the queue. */
  capacity?: number;
};

const flushMs = 200;
/** A batch of this size is written immediately. */
const maxAtOnce = 5_000;
const retryMs = 1_000;
/** For a batch that the database refuses. A dropped partition is the reason for more than one: the next try creates it. */
const maxTries = 3;
/** How long a batch is retried after temporary errors, such as a deadlock or a timeout. */
const maxPassingMs = 60_000;
const stopMs = 1_000;
const reportMs = 60_000;

/** The activity log if it is switched off. */
export const noActivity: Activity = { log() {}, dropped: 0, async stop() {} };

/** A bounded queue in memory and one writer. A full queue discards and counts new operations. */
export function createActivity({
  db,
  log,
  settings: { sampleRate },
  nowMs = Date.now,
  random = Math.random,
  capacity = 10_000,
}: ActivityParts): Activity {
  /** Oldest first. The last one is still open, unless it is being written. */
  const batches: Batch[] = [];
  let open: Batch | undefined;
  /** The last written batch, whose memory is used again. */
  let spare: Batch | undefined;
  let waiting = 0;
  /**
   * The latest time so far. All operations have it while a clock that was set back catches up: IDs must ascend, since a tail
   * reads new operations at the end.
   */
  let atMs = 0;
  const ids = new OperationIds();
  const names = new CountNames();
  const madeDays = new Set<number>();
  let dropped = 0;
  let reportedDropped = 0;
  let reporting: NodeJS.Timeout | undefined;
  /** Of the oldest batch, after a failed try. */
  let failures: Failures | undefined;
  let timer: NodeJS.Timeout | undefined;
  let writing: Promise<void> | undefined;
  let isStopped = false;

  function drop(count: number): void {
    dropped += count;
    if (reporting === undefined) reportDropped();
  }

  /** Discards batches at a stop, from this one on; the oldest is 0. */
  function discardFrom(index: number): void {
    for (const batch of batches.splice(index)) dropped += batch.count + batch.countedOnly;
    reportDropped();
  }

  /** Logs the operations that were discarded, at most once a minute. */
  function reportDropped(): void {
    if (dropped === reportedDropped) return;
    log.warn({ dropped: dropped - reportedDropped }, 'the activity log discarded entries');
    reportedDropped = dropped;
    reporting = setTimeout(() => {
      reporting = undefined;
      reportDropped();
    }, reportMs).unref();
  }

  function writeLater(afterMs: number): void {
    timer ??= setTimeout(() => {
      timer = undefined;
      writeNow();
    }, afterMs).unref();
  }

  function writeNow(): void {
    // A batch holds operations of many callers, so it runs outside the async context of the caller that started it.
    writing ??= outside(writeAll).finally(() => {
      writing = undefined;
      if (batches.length > 0 && !isStopped) writeLater(failures ? retryMs : flushMs);
    });
  }

  /** Writes all batches, until one fails. */
  async function writeAll(): Promise<void> {
    clearTimeout(timer);
    timer = undefined;
    for (let batch = batches[0]; batch !== undefined; batch = batches[0]) {
      if (batch === open) open = undefined;
      try {
        await write(batch);
      } catch (error) {
        // The partition of the day may have been dropped.
        madeDays.clear();
        failures ??= { refused: 0, passingSince: undefined };
        if (isRetried(error, failures)) return;
        log.warn({ err: error }, 'a batch of the activity log could not be written');
        drop(batch.count + batch.countedOnly);
      }
      failures = undefined;
      batches.shift();
      waiting -= batch.count;
      batch.clear();
      spare = batch;
    }
  }

  async function write(batch: Batch): Promise<void> {
    batch.seal();
    for (const [day, epochMs] of batch.days) {
      if (madeDays.has(day)) continue;
      await ensureDay(db, epochMs);
      madeDays.add(day);
    }
    if (await batch.isWritten(db)) return;
    await db.transaction((tx) => batch.write(tx));
  }

  function opened(): Batch {
    if (open === undefined) {
      open = spare ?? new Batch(ids, names);
      spare = undefined;
      batches.push(open);
    }
    return open;
  }

  return {
    get dropped() {
      return dropped;
    },
    log(operation) {
      const { type, status } = operation;
      const isKept = type !== 'proxy' || status !== 'success' || sampleRate >= 1 || random() < sampleRate;
      if (isStopped || waiting >= capacity) {
        drop(1);
        return;
      }
      atMs = Math.max(atMs, nowMs());
      const batch = opened();
      if (isKept) {
        batch.add(operation, atMs);
        waiting += 1;
      } else batch.countOnly(operation, atMs);
      if (batch.count >= maxAtOnce && failures === undefined) {
        open = undefined;
        writeNow();
      } else if (writing === undefined) writeLater(flushMs);
    },
    async stop() {
      isStopped = true;
      let isLate = false;
      let deadline: NodeJS.Timeout | undefined;
      const late = new Promise<void>((resolve) => {
        deadline = setTimeout(() => {
          isLate = true;
          resolve();
        }, stopMs);
      });
      const last = (writing ?? Promise.resolve()).then(() => (isLate ? undefined : writeAll()));
      await Promise.race([late, last]);
      clearTimeout(deadline);
      clearTimeout(timer);
      clearTimeout(reporting);
      discardFrom(isLate ? 1 : 0);
      if (isLate) void last.then(() => discardFrom(0));
    },
  };
}

type Failures = {
  /** The number of tries that the database refused. */
  refused: number;
  /** Since when tries fail for other reasons while the database is available; by the monotonic clock. */
  passingSince: number | undefined;
};

/** Counts a failure, and returns whether the batch is tried again; always after an outage. */
function isRetried(error: unknown, failures: Failures): boolean {
  if (!mayPass(error)) {
    failures.refused += 1;
    return failures.refused < maxTries;
  }
  if (error instanceof AppError) {
    failures.passingSince = undefined;
    return true;
  }
  failures.passingSince ??= performance.now();
  return performance.now() - failures.passingSince < maxPassingMs;
}

/** Adds a message to an operation while it runs. Never a secret. */
type Tell = (level: OperationMessage['level'], message: string, details?: OperationDetails) => void;

/** The maximum of messages of one operation, so that an operation in a loop does not fill the log. */
const maxMessages = 50;

/**
 * Logs the outcome of `work`, its duration and its messages; returns and throws as `work` does. `of` adds facts of the
 * result. Logging never delays or fails the work.
 */
export async function logged<T>(
  activity: Activity,
  about: Omit<Operation, 'status' | 'durationMs' | 'messages'> & { of?: (result: T) => Partial<Operation> },
  work: (tell: Tell) => Promise<T>,
): Promise<T> {
  const { of, ...operation } = about;
  const startedAt = performance.now();
  const messages: OperationMessage[] = [];
  const log = (status: Operation['status'], more: Partial<Operation>) =>
    activity.log({ ...operation, status, durationMs: elapsedMs(startedAt), messages, ...more });
  const tell: Tell = (level, message, details) => {
    if (messages.length < maxMessages) messages.push({ level, message, ...(details && { details }) });
  };
  let result: T;
  try {
    result = await work(tell);
  } catch (error) {
    const { message, ...fault } = loggedFault(error);
    tell('error', message);
    log('failed', fault);
    throw error;
  }
  log('success', of?.(result) ?? {});
  return result;
}

/**
 * The code, the status and the message of an error as the log shows them. An error that is no AppError gets a general
 * message, and an error that quotes the code of a function gets the catalogue's: the log stores messages in plain text.
 */
export function loggedFault(error: unknown): { errorCode: string; httpStatus: number; message: string } {
  if (!(error instanceof AppError)) {
    return { errorCode: 'internal', httpStatus: 500, message: 'unexpected error' };
  }
  const message = error.quotesCode ? errorCatalogue[error.code].message : error.message;
  return { errorCode: error.code, httpStatus: error.status, message };
}

/** To a hundredth. */
function elapsedMs(startedAt: number): number {
  return Math.round((performance.now() - startedAt) * 100) / 100;
}

/** Operations that become rows in one pass, with the code in the processor's cache: single ones take three times as long. */
const writtenTogether = 64;
const maxIdleMs = 5_000;

/** Operations as rows for COPY: a few hundred bytes in one buffer are less work for the garbage collector than objects. */
export class Batch {
  /** A time of each day of its entries, by the number of the day. */
  readonly days = new Map<number, number>();
  /** The number of its entries. */
  count = 0;
  /** The number of operations that are only counted. */
  countedOnly = 0;
  readonly #rows = new CopyRows(256 * 1024);
  #messages: CopyRows | undefined;
  #messageCount = 0;
  #lastDay = -1;

  readonly #ids: OperationIds;
  readonly #tally: Tally;
  /** The transaction of the last attempt to write it, and whether everything but its commit was done. */
  #attempt: { transaction: string; isComplete: boolean } | undefined;
  /** The first entry. */
  #first: { id: string; at: Date; environmentId: number } | undefined;
  /** Operations that are not rows yet, and their times. */
  readonly #fresh: Operation[] = [];
  readonly #times: number[] = [];

  constructor(ids: OperationIds, names: CountNames) {
    this.#ids = ids;
    this.#tally = new Tally(names);
  }

  /** Counts an operation without an entry. */
  countOnly(operation: Operation, at: number): void {
    this.countedOnly += 1;
    this.#tally.add(operation, at);
  }

  add(operation: Operation, at: number): void {
    this.count += 1;
    this.#fresh.push(operation);
    this.#times.push(at);
    if (this.#fresh.length === writtenTogether) this.seal();
  }

  /** Turns the added operations into rows. To be called before `days` is read. */
  seal(): void {
    for (const [index, operation] of this.#fresh.entries()) this.#addRow(operation, this.#times[index]!);
    this.#fresh.length = 0;
    this.#times.length = 0;
  }

  #addRow(operation: Operation, at: number): void {
    const ids = this.#ids;
    const id = ids.next(at);
    const { epochMs } = ids;
    const day = Math.floor(epochMs / 86_400_000);
    if (day !== this.#lastDay) this.days.set(day, epochMs);
    this.#lastDay = day;
    this.#tally.add(operation, epochMs);
    const { environmentId } = operation;
    this.#first ??= { id: id.toString('hex'), at: new Date(epochMs), environmentId };
    const rows = this.#rows.row(24).bytes(id).timestamptz(epochMs).int8(environmentId);
    rows.text(operation.type).text(operation.status);
    addText(rows, operation.integration);
    addText(rows, operation.connection);
    addText(rows, operation.actor);
    addText(rows, operation.requestId);
    addFloat(rows, operation.durationMs);
    addText(rows, operation.method);
    addText(rows, operation.path);
    addInt4(rows, operation.httpStatus);
    addText(rows, operation.errorCode);
    addInt4(rows, operation.requests);
    addInt4(rows, operation.retries);
    addInt8(rows, operation.requestBytes);
    addInt8(rows, operation.answerBytes);
    addFloat(rows, operation.credentialsMs);
    addFloat(rows, operation.quotaMs);
    addFloat(rows, operation.connectMs);
    addFloat(rows, operation.firstByteMs);
    addFloat(rows, operation.bodyMs);
    rows.jsonb(jsonOf(operation.details));
    for (const message of operation.messages ?? []) this.#addMessage(message, { id, epochMs });
  }

  /** Empties it and keeps its memory. */
  clear(): void {
    this.#fresh.length = 0;
    this.#times.length = 0;
    this.days.clear();
    this.count = 0;
    this.countedOnly = 0;
    this.#rows.clear();
    this.#messages = undefined;
    this.#messageCount = 0;
    this.#lastDay = -1;
    this.#tally.clear();
    this.#attempt = undefined;
    this.#first = undefined;
  }

  /**
   * Whether an earlier attempt was committed although its answer was lost. Throws `unavailable` while that transaction runs.
   *
   * The first entry is the proof, since one transaction writes a batch. A separate statement reads it after the transaction
   * has ended, so no commit in between is missed. The status of the transaction is not a proof: after a crash or a failover
   * the database assigns the transaction IDs again that were not on its disk.
   *
   * A batch without entries has only that status. It is lost if a crash comes between its commit and the answer, and another
   * transaction gets its ID and commits before this query. A crash may cost as much anyway: see `write`.
   */
  async isWritten(q: Queryable): Promise<boolean> {
    if (this.#attempt === undefined) return false;
    const { transaction, isComplete } = this.#attempt;
    const status = await statusOf(q, transaction);
    if (status === 'in progress') throw new AppError('unavailable');
    const isWritten = this.#first ? await isThere(q, this.#first) : isComplete && status === 'committed';
    // Another transaction may get its ID later.
    if (!isWritten) this.#attempt = undefined;
    return isWritten;
  }

  async write(tx: Tx): Promise<void> {
    // A crash of the database may cost the last half second of the log; in return no write waits for the disk. A node that
    // stops in between (SIGSTOP, a paused machine) must not block the rows of the counts for other nodes.
    const [begun] = await tx.query<{ id: string }>(
      `select
         pg_current_xact_id()::text as id,
         set_config('synchronous_commit', 'off', true),
         set_config('idle_in_transaction_session_timeout', '${maxIdleMs}', true)`,
    );
    const attempt = { transaction: begun!.id, isComplete: false };
    this.#attempt = attempt;
    if (this.count > 0) await tx.copyInto(`operation (${columns})`, this.#rows);
    if (this.#messages) await tx.copyInto(`operation_message (${messageColumns})`, this.#messages);
    await this.#tally.write(tx);
    attempt.isComplete = true;
  }

  #addMessage(message: OperationMessage, { id, epochMs }: { id: Buffer; epochMs: number }): void {
    this.#messages ??= new CopyRows();
    this.#messages
      .row(8)
      .bytes(id)
      .timestamptz(epochMs)
      .int4(this.#messageCount++)
      .text(message.level);
    addText(this.#messages, message.message);
    this.#messages.jsonb(jsonOf(message.details));
    addSealed(this.#messages, message.sealed);
  }
}

/** The status of a transaction: null if the server no longer has it. */
async function statusOf(q: Queryable, transaction: string): Promise<string | null> {
  try {
    const [found] = await q.query<{ status: string | null }>(
      'select pg_xact_status($1::text::xid8) as status',
      [transaction],
    );
    return found?.status ?? null;
  } catch (error) {
    // "transaction ID ... is in the future": a crash has removed it.
    if (error instanceof Error && 'code' in error && error.code === '22023') return null;
    throw error;
  }
}

async function isThere(
  q: Queryable,
  { id, at, environmentId }: { id: string; at: Date; environmentId: number },
): Promise<boolean> {
  const found = await q.query(
    'select from operation where environment_id = $1 and created_at = $2 and id = $3',
    [environmentId, at, id],
  );
  return found.length > 0;
}

const columns =
  'id, created_at, environment_id, type, status, integration, connection, actor, request_id, duration_ms, method, path, ' +
  'http_status, error_code, requests, retries, request_bytes, answer_bytes, credentials_ms, quota_ms, connect_ms, ' +
  'first_byte_ms, body_ms, details';
const messageColumns = 'operation_id, created_at, position, level, message, details, sealed, connection_id';

/** PostgreSQL stores no NUL in a text. */
function addText(rows: CopyRows, text: string | undefined): void {
  if (text === undefined) rows.null();
  else rows.text(text.includes('\0') ? text.replaceAll('\0', '') : text);
}

function addSealed(rows: CopyRows, sealed: SealedMessage | undefined): void {
  if (sealed === undefined) rows.null().null();
  else {
    rows.bytes(sealed.body);
    addInt8(rows, sealed.connectionRow ?? undefined);
  }
}

/** A number outside the column's range becomes the nearest one in it: logging must not fail. */
function addInt4(rows: CopyRows, value: number | undefined): void {
  if (value === undefined) rows.null();
  else rows.int4(Math.min(Math.max(value, -(2 ** 31)), 2 ** 31 - 1));
}

function addInt8(rows: CopyRows, value: number | undefined): void {
  if (value === undefined) rows.null();
  else rows.int8(value);
}

function addFloat(rows: CopyRows, value: number | undefined): void {
  if (value === undefined) rows.null();
  else rows.float8(value);
}

function jsonOf(details: OperationDetails | undefined): string {
  if (details === undefined) return '{}';
  const json = JSON.stringify(details);
  return json.includes('\\u') ? JSON.stringify(details, storable) : json;
}

/** PostgreSQL keeps neither a NUL nor a lone surrogate in JSON. */
function storable(_name: string, value: unknown): unknown {
  return typeof value === 'string' ? value.replaceAll('\0', '').toWellFormed() : value;
}

/** Words that mark a parameter as a secret, or as a temporary credential. */
const secretWords = new Set([
  'assertion', 'auth', 'authorization', 'bearer', 'code', 'cookie', 'credential', 'credentials', 'hmac', 'jwt',
  'key', 'mac', 'otp', 'pass', 'passcode', 'passphrase', 'passwd', 'password', 'pin', 'private', 'pwd', 'sas', 'secret', 'session',
  'sid', 'sig', 'signature', 'sso', 'ticket', 'token', 'verifier',
]); // biome-ignore format: a list reads better in lines
/** The same for words without separators, and Google's name for an open upload, which needs no other credential. */
const secretEnds =
  /((?<!don|hoc|joc|mon|tur|whis)key|credentials?|passphrase|passw(or)?d|secret|sessionid|signature|token|httpheaders|uploadid)$/;

const maxCharacters = 2048;
const mask = '***';

/**
 * Path and query as received, with the values of credential-like parameters masked, and those that hold another
 * address with such parameters; at most 2048 characters. Segments of the path stay unchanged, except those with a token of
 * Telegram (`/bot1:abc`): if another provider expects a secret there, the log holds it.
 */
export function redactedTarget(rawUrl: string): string {
  const at = rawUrl.indexOf('?');
  const text =
    at === -1
      ? maskedPath(rawUrl)
      : maskedPath(rawUrl.slice(0, at)) + maskedQuery(rawUrl.slice(at, at + maxCharacters));
  return text.length > maxCharacters ? `${text.slice(0, maxCharacters - 1)}…` : text;
}

function maskedQuery(query: string): string {
  return query.replace(/([^?&;=]+)=([^&;]*)/g, (pair, name: string, value: string) =>
    isSecretName(decodedBytes(name)) || holdsSecret(value) ? `${name}=${mask}` : pair,
  );
}

/** A path may have parameters too (RFC 3986 §3.3). */
function maskedPath(path: string): string {
  const masked = path.includes('/bot') ? path.replace(/\/bot\d+(?::|%3A)[\w-]+/gi, `/bot${mask}`) : path;
  if (!masked.includes(';')) return masked;
  return masked.replace(/;([^;/=]+)=[^;/]*/g, (pair, name: string) =>
    isSecretName(decodedBytes(name)) ? `;${name}=${mask}` : pair,
  );
}

/** Whether a value has secret parameters, as a return address may have. */
function holdsSecret(value: string): boolean {
  if (!/[=%]/.test(value)) return false;
  const parameters = decodedBytes(value).matchAll(/(?<=[?&;#])[^?&;#=]+(?==)/g);
  return parameters.some(([name]) => isSecretName(decodedBytes(name)));
}

function isSecretName(name: string): boolean {
  const words = name
    .replace(/([a-z\d])([A-Z])/g, '$1 $2')
    .toLowerCase()
    .split(/[^a-z\d]+/);
  return words.some((word) => secretWords.has(word)) || secretEnds.test(words.join(''));
}
