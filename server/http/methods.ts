import { METHODS } from 'node:http';

/**
 * All that Node knows but CONNECT and TRACE (RFC 9110 §9.3.6 and §9.3.8): one would make a tunnel of us, the other an
 * echo of the credentials.
 */
export const methods: readonly string[] = METHODS.filter(
  (method) => method !== 'CONNECT' && method !== 'TRACE',
);

/** As the header Allow has them. */
export const allowedMethods = methods.join(', ');
