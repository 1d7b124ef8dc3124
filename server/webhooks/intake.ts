import type { preParsingHookHandler } from 'fastify';
import { limitConcurrency } from '../concurrency.ts';
import { AppError } from '../errors.ts';
import { BodyBudget, holdIn } from '../http/body-memory.ts';

/**
 * How much a node takes at a time of what comes from outside: anybody may send to a webhook's address, and it is read before
 * it is known whether it is proved. Beyond that the sender is told to come again, and other calls go on.
 */

/** Of those that are not small, together, as far as they have come. */
const maxBytes = 64 * 1024 * 1024;
/** In that time a longer one has come. */
const arrivalMs = 30_000;
/** Of the connections to the database: other calls need them too. */
const maxAtOnce = 4;
const maxWaiting = 500;

export function createIntake() {
  const inTurn = limitConcurrency(maxAtOnce);
  const budget = new BodyBudget(maxBytes);
  let inside = 0;

  /** Before the body is read. Refuses with `unavailable` (503). */
  const admit: preParsingHookHandler = (request, reply, payload, done) => {
    const { raw } = request;
    holdIn([budget], { request, reply, payload, refusal: full }, (error, body) => {
      if (body !== undefined) {
        const timer = setTimeout(() => raw.destroy(), arrivalMs);
        const clear = () => clearTimeout(timer);
        raw.once('end', clear);
        reply.raw.once('close', clear);
      }
      done(error, body);
    });
  };

  return {
    admit,
    /** Does what follows from one, a few at a time. Throws `unavailable` (503) where too many wait. */
    async during<T>(work: () => Promise<T>): Promise<T> {
      if (inside >= maxAtOnce + maxWaiting) throw full();
      inside += 1;
      return inTurn(work).finally(() => {
        inside -= 1;
      });
    },
  };
}

const full = () => new AppError('unavailable', 'Too many webhooks come at once.', { retryAfterS: 1 });
