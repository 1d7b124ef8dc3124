import type { AppError } from '../errors.ts';
import { serviceStops } from '../http/drain.ts';

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

  /** As `wanted`, or rejects with `unavailable` (503) where the service stops, or begins to meanwhile. */
  async orStop<T>(wanted: Promise<T>): Promise<T> {
    const stopped = Promise.withResolvers<never>();
    if (this.#isStopping) stopped.reject(serviceStops());
    const end = this.begin(stopped.reject);
    return Promise.race([wanted, stopped.promise]).finally(end);
  }

  stop(): void {
    this.#isStopping = true;
    for (const refuse of this.#waiting) refuse(serviceStops());
    this.#waiting.clear();
  }
}
