import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { generatedFiles, type OpenApi } from '../../scripts/api-types.ts';
import { openTrellis } from '../../test/support/trellis.ts';
import { keyedRoutes } from './transport.ts';

test('the generated types match the service', async () => {
  const trellis = await openTrellis();
  try {
    const { body } = await trellis.call('GET', '/openapi.json');
    for (const [name, text] of Object.entries(generatedFiles(body as unknown as OpenApi))) {
      const written = readFileSync(join(import.meta.dirname, name), 'utf8');
      assert.equal(written, text, `${name}: run node scripts/api-types.ts`);
    }
    const { paths } = body as unknown as OpenApi;
    const accepting = Object.entries(paths).flatMap(([path, { parameters: _, ...operations }]) =>
      Object.entries(operations)

        .filter(([, { deprecated }]) => deprecated !== true)
        .filter(([, operation]) => JSON.stringify(operation.parameters ?? []).includes('idempotency-key'))
        .map(([method]) => `${method.toUpperCase()} ${path}`),
    );
    assert.deepEqual(accepting.sort(), [...keyedRoutes, 'POST /functions/actions/trigger'].sort());
  } finally {
    await trellis.close();
  }
});
