import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { AppError } from '../errors.ts';

const forwarded = /^(forwarded|x-forwarded-.*|x-real-ip|via)$/;

/** Whether a request says that it was passed on from elsewhere. */
export function isForwarded(headers: IncomingHttpHeaders): boolean {
  return Object.keys(headers).some((name) => forwarded.test(name));
}

/**
 * With the sign-in switched off every client that reaches the service is an owner. So it serves only requests that a
 * program of this machine has sent to it by a name of this machine: a page of the web whose name was made to lead here
 * sends its own name (DNS rebinding), and a proxy that forwards requests from other machines adds its headers. Returns the
 * reason of a refusal; undefined: the request is allowed.
 */
export function createLoopbackGuard(baseUrl: string): (request: IncomingMessage) => AppError | undefined {
  const { port } = new URL(baseUrl);
  const names = ['localhost', '127.0.0.1', '[::1]', new URL(baseUrl).hostname];
  const hosts = new Set(names.map((name) => (port === '' ? name : `${name}:${port}`)));
  return ({ headers }) => {
    if (!hosts.has((headers.host ?? '').toLowerCase())) {
      return new AppError(
        'forbidden',
        'The sign-in is off: this service answers to a name of this machine alone.',
      );
    }
    if (isForwarded(headers)) {
      return new AppError(
        'forbidden',
        'The sign-in is off: this service answers nothing that was passed on to it.',
      );
    }
    return undefined;
  };
}
