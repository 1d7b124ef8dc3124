import type { FastifyInstance } from 'fastify';

/** The maximum depth. Half a million nested brackets in a megabyte take the parser up to 100 ms. */
export const deepest = 1_000;
/** Bodies up to this length are parsed at once. */
const smallLength = 64 * 1024;
/**
 * The turns of the event loop between two long bodies, and the maximum time for them. The loop accepts one new connection in
 * each turn (libuv, `uv__server_io`), so without them a new connection would wait for a body of each earlier connection. The
 * maximum is for turns with much work, for which the bodies would wait.
 */
const turnsBetween = 32;
const maxMsBetween = 50;
const [quote, backslash] = [0x22, 0x5c];
const [openBracket, closeBracket, openBrace, closeBrace] = [0x5b, 0x5d, 0x7b, 0x7d];

/**
 * Accepts only JSON; an empty body of that type is an empty object.
 *
 * Long bodies are parsed one after the other, with other work between them: a megabyte of many small members takes the parser
 * 20 ms, and fifty of them at once would delay all other requests for as long as all take together.
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

/** Calls `work` after so many turns, or at `untilMs` (`performance.now()`) if that is earlier, but not in this turn. */
function afterTurns(turns: number, work: () => void, untilMs: number): void {
  setImmediate(() => {
    if (turns <= 1 || performance.now() >= untilMs) work();
    else afterTurns(turns - 1, work, untilMs);
  });
}

/** `error-writer.ts` turns it into `invalid_body`. It can pass between threads. */
export const tooDeep = () => new RangeError('Nested too deeply');

/** Correct for valid JSON; for other text it may return either. */
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

/** The position of the quote that ends the string which starts at `begin`; the length of the text if there is none. */
function endOfString(text: string, begin: number): number {
  for (let end = begin; ; ) {
    end = text.indexOf('"', end + 1);
    if (end < 0) return text.length;
    let escapes = end;
    while (text.charCodeAt(escapes - 1) === backslash) escapes -= 1;
    if ((end - escapes) % 2 === 0) return end;
  }
}
