import type { FastifyInstance } from 'fastify';

/** Nobody means more brackets within brackets; half a million of them in a megabyte take the parser up to 100 ms. */
export const deepest = 1_000;
/** A body that is no longer than that is read sooner than it could wait for its turn. */
const smallLength = 64 * 1024;
/**
 * Turns of the event loop between two long bodies, and the time after which there were enough of them. The loop accepts one
 * new connection in each turn (libuv, `uv__server_io`), so without them a new connection would wait for one body of each
 * earlier connection; but if each turn has much to do, the bodies would wait for all of that.
 */
const turnsBetween = 32;
const maxMsBetween = 50;
const [quote, backslash] = [0x22, 0x5c];
const [openBracket, closeBracket, openBrace, closeBrace] = [0x5b, 0x5d, 0x7b, 0x7d];

/**
 * JSON and nothing else; an empty body under that type is an empty object.
 *
 * Long ones are read one after the other, and what else came in is looked after between two of them: a megabyte of many small
 * members takes the parser 20 ms, and fifty of them at once would keep everybody else waiting for as long as all take together.
 */
export function parseJsonOnly(app: FastifyInstance): void {
  const parse = app.getDefaultJsonParser('error', 'error');
  const waiting: (() => void)[] = [];
  const readNext = () => {
    waiting.shift()?.();
    if (waiting.length > 0) afterTurns(turnsBetween, readNext, performance.now() + maxMsBetween);
  };
  app.removeAllContentTypeParsers();
  app.addContentTypeParser<string>('application/json', { parseAs: 'string' }, (request, body, done) => {
    const read = () => {
      if (isTooDeep(body)) done(tooDeep());
      else parse(request, body, done);
    };
    if (body.length === 0) done(null, {});
    else if (body.length <= smallLength) read();
    else {
      waiting.push(read);
      if (waiting.length === 1) setImmediate(readNext);
    }
  });
}

/** Or at `untilMs` (of the process's clock), whichever comes first, and not in this turn. */
function afterTurns(turns: number, work: () => void, untilMs: number): void {
  setImmediate(() => {
    if (turns <= 1 || performance.now() >= untilMs) work();
    else afterTurns(turns - 1, work, untilMs);
  });
}

/** What `error-writer.ts` makes `invalid_body` of; it passes from one thread to another. */
export const tooDeep = () => new RangeError('Nested too deeply');

/** Of JSON; of anything else it may say either. */
function isTooDeep(text: string): boolean {
  let depth = 0;
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code === quote) at = endOfString(text, at);
    else if (code === openBracket || code === openBrace) {
      depth += 1;
      if (depth > deepest) return true;
    } else if (code === closeBracket || code === closeBrace) depth -= 1;
  }
  return false;
}

/** Where the quote stands that ends the string which one at `begin` begins; the length of the text where none does. */
function endOfString(text: string, begin: number): number {
  for (let end = begin; ; ) {
    end = text.indexOf('"', end + 1);
    if (end < 0) return text.length;
    let escapes = end;
    while (text.charCodeAt(escapes - 1) === backslash) escapes -= 1;
    if ((end - escapes) % 2 === 0) return end;
  }
}
