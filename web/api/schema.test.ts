import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { apiTypes, type OpenApi } from '../../scripts/api-types.ts';
import { openTrellis } from '../../test/support/trellis.ts';

test("the dashboard's types are those of the interface", async () => {
  const trellis = await openTrellis();
  try {
    const { body } = await trellis.call('GET', '/openapi.json');
    const written = readFileSync(join(import.meta.dirname, 'schema.ts'), 'utf8');
    assert.equal(written, apiTypes(body as unknown as OpenApi), 'run scripts/api-types.ts');
  } finally {
    await trellis.close();
  }
});
