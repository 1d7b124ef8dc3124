import { CopyRows } from '../db/copy.ts';
import type { Queryable, Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { OperationIds } from './operation-id.ts';
import type { Operation, OperationDetails, OperationMessage, SealedMessage } from './operations.ts';
import { type CountNames, Tally } from './tally.ts';

/** Number of entries that are written in one pass, with the code in the processor's cache: one at a time takes three times as long. */
const writtenTogether = 64;
const maxIdleMs = 5_000;

/** Rows for COPY, written as they come: a few hundred bytes in one buffer, where objects would burden the collector. */
export class Batch {
  /** A time of each day that it holds entries of, by its number. */
  readonly days = new Map<number, number>();
  /** Entries that it holds. */
  count = 0;
  /** Operations that it holds no entry of and counts. */
  countedOnly = 0;
  readonly #rows = new CopyRows(256 * 1024);
  #messages: CopyRows | undefined;
  #messageCount = 0;
  #lastDay = -1;

  readonly #ids: OperationIds;
  readonly #tally: Tally;
  /** The transaction of the last attempt to write it, and whether all but its commit was done. */
  #attempt: { transaction: string; isComplete: boolean } | undefined;
  /** The entry that is written first. */
  #first: { id: string; at: Date; environmentId: number } | undefined;
  /** Not written yet, and when each of them was. */
  readonly #fresh: Operation[] = [];
  readonly #times: number[] = [];

  constructor(ids: OperationIds, names: CountNames) {
    this.#ids = ids;
    this.#tally = new Tally(names);
  }

  /** Counts an operation that is not kept. */
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

  /** Writes what has been added. To be called before `days` is read. */
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

  /** Empty as a new one, with the memory that it has. */
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
   * Whether an earlier attempt was committed although its answer was lost. Throws `unavailable` while it goes on.
   *
   * The first entry is the proof: all of a batch is written in one transaction. It is read by a statement of its own after
   * the transaction has ended, so a commit that comes in between is not missed. That the transaction is said to be committed
   * proves nothing: after a crash or a failover the database gives out again the transaction IDs that were not on its disk.
   *
   * A batch without entries has nothing else. It is lost where a crash came between its commit and the answer, and
   * another transaction got its ID and was committed before this question. A crash costs as much anyway: see `write`.
   */
  async isWritten(q: Queryable): Promise<boolean> {
    if (this.#attempt === undefined) return false;
    const { transaction, isComplete } = this.#attempt;
    const status = await statusOf(q, transaction);
    if (status === 'in progress') throw new AppError('unavailable');
    const isWritten = this.#first ? await isThere(q, this.#first) : isComplete && status === 'committed';
    // Later its ID may be that of another one.
    if (!isWritten) this.#attempt = undefined;
    return isWritten;
  }

  async write(tx: Tx): Promise<void> {
    // A crash of the database may cost the last half second of the log; nobody waits for the disk in turn. A node that
    // stops in between (SIGSTOP, a paused machine) must not keep others from the counts' rows.
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

/** What has become of a transaction: null where the server does not know it. */
async function statusOf(q: Queryable, transaction: string): Promise<string | null> {
  try {
    const [found] = await q.query<{ status: string | null }>(
      'select pg_xact_status($1::text::xid8) as status',
      [transaction],
    );
    return found?.status ?? null;
  } catch (error) {
    // "transaction ID ... is in the future": it went with a crash.
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

/** PostgreSQL keeps no NUL in a text. */
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

function addInt4(rows: CopyRows, value: number | undefined): void {
  if (value === undefined) rows.null();
  else rows.int4(value);
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

/** Nor a lone surrogate in JSON. */
function storable(_name: string, value: unknown): unknown {
  return typeof value === 'string' ? value.replaceAll('\0', '').toWellFormed() : value;
}
