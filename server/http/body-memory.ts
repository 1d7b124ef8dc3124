import type { FastifyInstance } from 'fastify';
import { AppError } from '../errors.ts';
import { metrics } from '../metrics/metrics.ts';

/**
 * A body that was compressed is refused unread: what it becomes is known only once it is there. Bodies of proxied calls are no
 * concern of it, they pass as they are.
 */
export function refuseCoded(app: FastifyInstance): void {
  app.addHook('preParsing', (request, _reply, _payload, done) => {
    const coding = request.headers['content-encoding']?.trim().toLowerCase();
    if (coding === undefined || coding === '' || coding === 'identity') {
      done();
      return;
    }
    // RFC 9110 §12.5.3 and §15.5.16: it says what would be taken instead.
    const headers = { 'accept-encoding': 'identity' };
    done(
      new AppError('invalid_content_type', 'Send the body as it is, without Content-Encoding.', { headers }),
    );
  });
}

/** A body that says to be no longer is read without more ado. */
const smallBytes = 64 * 1024;

/**
 * How much of large bodies a node holds at once. A body is kept whole until its request is answered, so many large ones at a
 * time would fill the memory: beyond `mostBytes` together the caller is told to come again, before any of it is read. One
 * that does not say how long it is counts as the longest that its route takes.
 */
export function limitBodyMemory(app: FastifyInstance, mostBytes: number): void {
  let held = 0;
  app.addHook('preParsing', (request, reply, _payload, done) => {
    const said = request.headers['content-length'];
    const longest = request.routeOptions.bodyLimit;
    const length = said === undefined ? longestOf(request.headers, longest) : Number(said);
    // One that says to be too long is refused by what reads it.
    if (!(length > smallBytes && length <= longest)) {
      done();
      return;
    }
    // One alone always goes.
    if (held > 0 && held + length > mostBytes) {
      metrics.httpRefused.add(['overloaded']);
      done(new AppError('overloaded', 'Too many large bodies come at once.', { retryAfterS: 1 }));
      return;
    }
    // Who has gone meanwhile is answered by nobody, and `close` does not come again.
    if (reply.raw.closed || reply.raw.destroyed) {
      done();
      return;
    }
    held += length;
    reply.raw.once('close', () => {
      held -= length;
    });
    done();
  });
}

function longestOf(headers: { 'transfer-encoding'?: string | undefined }, longest: number): number {
  return headers['transfer-encoding'] === undefined ? 0 : longest;
}
