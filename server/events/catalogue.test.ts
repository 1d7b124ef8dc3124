import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { describeEventTypes, withEventTypes } from '../../test/support/event-docs.ts';
import { toJsonSchema, typesNamed, typesToWire } from './catalogue.ts';
import { eventCatalogue, eventTypes } from './event-types.ts';

const read = (file: string) => readFileSync(join(import.meta.dirname, '../..', file), 'utf8');

test('docs/reference/event-types.md describes every type, with its example, as the catalogue does', () => {
  const written = read('docs/reference/event-types.md');
  assert.equal(written, withEventTypes(written, describeEventTypes()), 'run node scripts/event-docs.ts');
});

test('every example matches its schema, which rejects everything else', () => {
  for (const type of eventTypes) {
    const { data, example } = eventCatalogue[type];
    assert.deepEqual(data.parse(example), example, type);
    assert.equal(data.safeParse({ ...example, secret: 'x' }).success, false, type);
  }
});

test('callers see schemas that allow fields of later releases', () => {
  const noise = /"additionalProperties":false|"pattern"|9007199254740991/;
  for (const { type, data_schema } of typesToWire())
    assert.equal(noise.exec(JSON.stringify(data_schema)), null, type);
  assert.deepEqual(toJsonSchema(eventCatalogue['records.retention_done'].data).required, [
    'datasets',
    'pruned',
    'bytes',
    'tombstones_removed',
  ]);
});

test('a kind names all of its types, a name itself, and anything else none', () => {
  assert.deepEqual(typesNamed('integration.*'), [
    'integration.misconfigured',
    'integration.recovered',
    'integration.sunset',
    'integration.rate_limited',
  ]);
  assert.deepEqual(typesNamed('consumer.stale'), ['consumer.stale']);
  for (const name of ['', '*', '.*', 'integration', 'integration.', 'consumer.stale.*', 'toString'])
    assert.deepEqual(typesNamed(name), [], name);
});
