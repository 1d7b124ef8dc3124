import type { FastifyReply, FastifyRequest } from 'fastify';
import { takingTurns } from '../deliveries/turns.ts';
import { AppError } from '../errors.ts';

/**
 * How much a node takes at a time of what comes from outside: anybody may send to a webhook's address, and it is read before
 * it is known whether it is proved. Beyond that the sender is told to come again, and other calls go on.
 */

/** One that says to be no longer is read without more ado. */
const smallBytes = 64 * 1024;
/** Of longer ones, together. */
const mostBytes = 64 * 1024 * 1024;
/** In that time a longer one has come. */
const arrivalMs = 30_000;
/** Of the connections to the database: other calls need them too. */
const mostAtOnce = 4;
const mostWaiting = 500;

/** `largestBytes`: of one that does not say how long it is. */
export function createIntake({ largestBytes }: { largestBytes: number }) {
  const inTurn = takingTurns(mostAtOnce);
  let bytes = 0;
  let inside = 0;

  return {
    /** Before the body is read. Throws `unavailable` (503). */
    async admit({ headers, raw }: FastifyRequest, reply: FastifyReply): Promise<void> {
      const said = headers['content-length'];
      const length = said === undefined ? largestBytes : Number(said);
      // One that says to be too long is refused by what reads it.
      if (!(length > smallBytes && length <= largestBytes)) return;
      if (bytes + length > mostBytes) throw full();
      bytes += length;
      const timer = setTimeout(() => raw.destroy(), arrivalMs);
      raw.once('end', () => clearTimeout(timer));
      reply.raw.once('close', () => {
        clearTimeout(timer);
        bytes -= length;
      });
    },
    /** Does what follows from one, a few at a time. Throws `unavailable` (503) where too many wait. */
    async during<T>(work: () => Promise<T>): Promise<T> {
      if (inside >= mostAtOnce + mostWaiting) throw full();
      inside += 1;
      return inTurn(work).finally(() => {
        inside -= 1;
      });
    },
  };
}

const full = () => new AppError('unavailable', 'Too many webhooks come at once.', { retryAfterS: 1 });
