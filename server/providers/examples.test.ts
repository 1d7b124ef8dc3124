import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { shippedCatalog as catalog } from '../../test/support/catalog.ts';
import { definitionExamples } from '../../web/dashboard/integrations/definition-examples.ts';
import { authModes } from '../auth-modes/modes.ts';

test('the page of examples has one valid definition for each auth mode', () => {
  const page = readFileSync(join(import.meta.dirname, '../../docs/guides/provider-examples.md'), 'utf8');
  const texts = [...page.matchAll(/^```yaml\n([\s\S]*?)^```$/gm)].map(([, text = '']) => text);
  const modes = texts.map((text) => catalog.read({ name: 'own-example', text }).definition.auth_mode);
  assert.deepEqual(modes.toSorted(), [...authModes.keys()].toSorted());
});

test('the dashboard has one valid definition to begin with for each auth mode', () => {
  assert.deepEqual(Object.keys(definitionExamples).toSorted(), [...authModes.keys()].toSorted());
  for (const [mode, text] of Object.entries(definitionExamples))
    assert.equal(catalog.read({ name: 'own-example', text }).definition.auth_mode, mode);
});
