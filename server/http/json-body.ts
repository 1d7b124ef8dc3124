import type { FastifyInstance } from 'fastify';

/** A body that is no longer than that is read sooner than it could wait for its turn. */
const smallLength = 64 * 1024;

/**
 * JSON and nothing else; an empty body under that type is an empty object.
 *
 * Long ones are read one after the other, and what else came in is looked after between two of them: a megabyte of the
 * worst kind, brackets within brackets, takes the parser 40 to 100 ms, and fifty of them at once would keep everybody else waiting for as
 * long as all take together.
 */
export function parseJsonOnly(app: FastifyInstance): void {
  const parse = app.getDefaultJsonParser('error', 'error');
  const waiting: (() => void)[] = [];
  const readNext = () => {
    waiting.shift()?.();
    if (waiting.length > 0) setImmediate(readNext);
  };
  app.removeAllContentTypeParsers();
  app.addContentTypeParser<string>('application/json', { parseAs: 'string' }, (request, body, done) => {
    if (body.length === 0) done(null, {});
    else if (body.length <= smallLength) parse(request, body, done);
    else {
      waiting.push(() => parse(request, body, done));
      if (waiting.length === 1) setImmediate(readNext);
    }
  });
}
