import type { AppError } from '../errors.ts';
import type { Logger } from '../log.ts';

/** A call that failed, and where it was to go, as far as that was known. */
type Failed = {
  readonly reqId: string;
  readonly origin: string | undefined;
  readonly error: AppError;
};

const gatheredMs = 1_000;

/**
 * Logs failed calls, with the causes, once a second for each origin and code: a write to the log blocks the process, and a
 * provider that is away fails hundreds of calls a second. The outcome of each call is in the activity log.
 */
export class FailureLog {
  readonly #log: Logger;
  /** How many came since the line of their kind, and the last of them. */
  readonly #gathered = new Map<string, { count: number; last: Failed | undefined }>();

  constructor(log: Logger) {
    this.#log = log;
  }

  /** The first of a kind is written at once, and those that follow within the second as one line with their count. */
  note(failed: Failed): void {
    const kind = `${failed.error.code} ${failed.origin ?? ''}`;
    const known = this.#gathered.get(kind);
    if (known === undefined) {
      this.#write(failed, 1);
      this.#gather(kind);
    } else {
      known.count += 1;
      known.last = failed;
    }
  }

  #gather(kind: string): void {
    const gathered = { count: 0, last: undefined };
    this.#gathered.set(kind, gathered);
    setTimeout(() => this.#tell(kind, gathered), gatheredMs).unref();
  }

  #tell(kind: string, { count, last }: { count: number; last: Failed | undefined }): void {
    if (last === undefined) {
      this.#gathered.delete(kind);
      return;
    }
    this.#write(last, count);
    this.#gather(kind);
  }

  #write({ reqId, origin, error }: Failed, count: number): void {
    this.#log.warn({ reqId, origin, count, err: error }, 'proxied requests failed');
  }
}
