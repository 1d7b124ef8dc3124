import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { answers } from './answers.ts';
import { bodies } from './bodies.ts';
import { breaks } from './breaks.ts';
import { decoding } from './decoding.ts';
import { limits } from './limits.ts';
import { paths } from './paths.ts';
import { refusedTokens } from './refused-tokens.ts';
import { requestHeaders } from './request-headers.ts';
import { retries } from './retries.ts';
import { safety } from './safety.ts';
import { openSubject, type Promised, type Subject } from './subject.ts';

const parts: Record<string, Promised[]> = {
  'Path and query': paths,
  'Headers to the provider': requestHeaders,
  Answers: answers,
  Bodies: bodies,
  Breaks: breaks,
  'Time limits': limits,
  Retries: retries,
  'Refused tokens': refusedTokens,
  Decoding: decoding,
  Safety: safety,
};
const page = join(import.meta.dirname, '../../docs/reference/proxy-conformance.md');

let subject: Subject;
before(async () => {
  subject = await openSubject();
});
after(() => subject.close());

for (const [part, promises] of Object.entries(parts)) {
  for (const { name, prove } of promises)
    test(`${part}: ${name}`, async (t) => {
      if ((await prove(subject)) === 'unproven')
        t.skip('CONFORMANCE_OAUTH_HEADERS names no connection for it');
    });
}

test('docs/reference/proxy-conformance.md lists every promise, each once', () => {
  const all = Object.values(parts).flat();
  assert.equal(new Set(all.map(({ name }) => name)).size, all.length);
  assert.ok(all.length >= 120);
  const lists = Object.entries(parts).map(
    ([part, promises]) => `## ${part}\n\n${promises.map(({ name }) => `- ${name}`).join('\n')}\n`,
  );
  const written = readFileSync(page, 'utf8');
  const intro = written.slice(0, written.indexOf('\n## ') + 1);
  const wanted = intro + lists.join('\n');
  // UPDATE_DOCS=1 writes the page again.
  if (process.env.UPDATE_DOCS === '1') writeFileSync(page, wanted);
  else assert.equal(written, wanted);
});
