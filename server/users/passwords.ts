import { AsyncLocalStorage } from 'node:async_hooks';
import { hashPassword, verifyPassword } from 'better-auth/crypto';
import { limitConcurrency } from '../concurrency.ts';
import { AppError } from '../errors.ts';

/** Each hash takes 32 MB and one of the four threads that file access and DNS also need (scrypt, N = 16384, r = 16). */
const maxAtOnce = 2;
/** About two seconds of work. */
const maxWaiting = 16;

export type Passwords = {
  /** Throws `unavailable` if too many wait. */
  hash(password: string): Promise<string>;
  /** As `hash`. `verified` returns the correct hash for the rest of the `request`. */
  verify(given: { hash: string; password: string }): Promise<boolean>;
  request<R>(work: () => Promise<R>): Promise<R>;
  /** The hash that a password of this request has matched; undefined: none. */
  verified(): string | undefined;
};

/** Hashes passwords, a few at a time on a node. */
export function createPasswords(): Passwords {
  const requests = new AsyncLocalStorage<{ verified?: string }>();
  const inTurn = limitConcurrency(maxAtOnce);
  let pending = 0;

  async function unlessMany<R>(work: () => Promise<R>): Promise<R> {
    if (pending >= maxAtOnce + maxWaiting) {
      throw new AppError('unavailable', 'Too many passwords are being checked. Try again in a few seconds.', {
        retryAfterS: 5,
      });
    }
    pending += 1;
    try {
      return await inTurn(work);
    } finally {
      pending -= 1;
    }
  }

  return {
    hash: (password) => unlessMany(() => hashPassword(password)),
    async verify(given) {
      const isRight = await unlessMany(() => verifyPassword(given));
      const request = requests.getStore();
      if (isRight && request !== undefined) request.verified = given.hash;
      return isRight;
    },
    request: (work) => requests.run({}, work),
    verified: () => requests.getStore()?.verified,
  };
}
