import assert from 'node:assert/strict';
import { test } from 'node:test';
import { definition, readDescription } from './definition.ts';

const read = (said: unknown) =>
  readDescription(said, { features: ['checkpoints'], sdkVersion: '1.0.0-zero' });
const object = { type: 'object', properties: { id: { type: 'string' } } };
const sync = { type: 'sync', frequency: 'every 5m', hasWebhook: false, models: { Row: object } };

test('the declarations of a bundle become a definition, with defaults for missing ones', () => {
  const said = read({ ...sync, description: 'Rows.' });
  assert.deepEqual(said, {
    label: '0.0.1',
    definition: {
      kind: 'sync',
      description: 'Rows.',
      frequency: 'every 5m',
      frequency_s: 300,
      auto_start: true,
      track_deletes: false,
      sync_type: null,
      models: ['Row'],
      models_json_schema: { definitions: { Row: object } },
      input: null,
      output: null,
      metadata: null,
      checkpoint: null,
      scopes: [],
      webhook_subscriptions: [],
      has_webhook: false,
      event: null,
      read_only: false,
      features: ['checkpoints'],
      sdk_version: '1.0.0-zero',
    },
  });
  for (const one of [
    { type: 'action', input: object, output: null, readOnly: true, version: '3.1.4' },
    { type: 'onEvent', event: 'validate-connection', models: {} },
  ]) {
    const other = read(one);
    assert.ok('definition' in other);
    assert.deepEqual(definition.parse(JSON.parse(JSON.stringify(other.definition))), other.definition);
  }
});

test('an empty scope is left out', () => {
  const result = read({ ...sync, scopes: ['', 'files.read'] });
  assert.deepEqual('definition' in result && result.definition.scopes, ['files.read']);
});

test('an invalid description of a bundle is refused', () => {
  const hostile: unknown[] = [
    null,
    'sync',
    [],
    {},
    { type: 'constructor' },
    { ...sync, models: {} },
    { ...sync, models: { '__proto__ x': object } },
    { ...sync, models: Object.fromEntries(Array.from({ length: 101 }, (_, at) => [`M${at}`, object])) },
    { ...sync, models: { Row: 'any' } },
    // Its records could not be told apart.
    { ...sync, models: { Row: { type: 'object', properties: { n: {} }, additionalProperties: false } } },
    { ...sync, frequency: 5 },
    { ...sync, frequency: 'every 5m'.repeat(100) },
    { ...sync, scopes: ['a\0b'] },
    { ...sync, scopes: Array(201).fill('a') },
    { ...sync, description: '\ud800' },
    { type: 'onEvent', event: 'post-everything' },
    { type: 'action', input: [], output: 1 },
  ];
  for (const said of hostile) {
    const result = read(said);
    assert.ok('faults' in result && result.faults.length > 0, JSON.stringify(said));
  }
});
