import { AppError } from '../errors.ts';

/** What a caller is told whose call was not sent because the service stops: another node, or the next start, answers. */
export function serviceStops(): AppError {
  return new AppError('unavailable', 'The service is about to stop, and the call was not sent. Try again.', {
    retryAfterS: 1,
  });
}

/**
 * Calls that wait before they are sent, for credentials or until they are tried again, so that a stop can tell them at
 * once. Those that wait for a quota are told by `quota/`.
 */
export class Waits {
  readonly #waiting = new Set<(error: AppError) => void>();
  #isStopping = false;

  /** Whether nobody should begin to wait any more. */
  get isStopping(): boolean {
    return this.#isStopping;
  }

  /** Calls `refuse` with `unavailable` (503) where the service stops before what it returns is called. */
  begin(refuse: (error: AppError) => void): () => void {
    this.#waiting.add(refuse);
    return () => this.#waiting.delete(refuse);
  }

  /** As `wanted`, or rejects with `unavailable` (503) where the service begins to stop meanwhile. */
  async orStop<T>(wanted: Promise<T>): Promise<T> {
    const stopped = Promise.withResolvers<never>();
    const end = this.begin(stopped.reject);
    return Promise.race([wanted, stopped.promise]).finally(end);
  }

  stop(): void {
    this.#isStopping = true;
    for (const refuse of this.#waiting) refuse(serviceStops());
    this.#waiting.clear();
  }
}
