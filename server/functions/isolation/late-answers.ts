/**
 * What Node's modules answer later, by a callback or a promise, they answer only to the run that asked: code of a run that
 * is over would go on in the next one. Timers are the realm's own.
 */
import crypto from 'node:crypto';

/** Counts up: the one that is under way. */
let run = 0;

/** Once, before anything is frozen. To call what is returned ends the run for all that it waits for. */
export function fenceLateAnswers(): () => void {
  fenceCallbacks(crypto);
  fencePromises(Object.getPrototypeOf(crypto.subtle));
  fencePromises(Blob.prototype);
  return () => {
    run += 1;
  };
}

/** Node calls some on the native job that has the result, and what all jobs of a kind inherit from is shared by all runs. */
function fenceCallbacks(target: object): void {
  for (const [name, { configurable }] of Object.entries(Object.getOwnPropertyDescriptors(target))) {
    const value: unknown = Reflect.get(target, name);
    if (!configurable || typeof value !== 'function' || /^[A-Z]/.test(name)) continue;
    const call = (...args: unknown[]) =>
      value(...args.map((arg) => (typeof arg === 'function' ? fenced(arg as never) : arg)));
    Object.defineProperties(call, Object.getOwnPropertyDescriptors(value));
    Object.defineProperty(target, name, { value: call, enumerable: true });
  }
}

function fencePromises(target: object): void {
  for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors(target))) {
    if (typeof value !== 'function' || name === 'constructor') continue;
    const method = {
      call(...args: unknown[]): unknown {
        const answer: unknown = Reflect.apply(value, this, args);
        if (!(answer instanceof Promise)) return answer;
        return new Promise((resolve, reject) => {
          answer.then(fenced(resolve), fenced(reject));
        });
      },
    };
    Object.defineProperties(method.call, Object.getOwnPropertyDescriptors(value));
    Object.defineProperty(target, name, { value: method.call });
  }
}

function fenced<T extends unknown[]>(answered: (...results: T) => void): (...results: T) => void {
  const asking = run;
  return (...results) => {
    if (run === asking) answered(...results);
  };
}
