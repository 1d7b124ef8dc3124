import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import test from 'node:test';
import { controlRoutes } from './control/routes.ts';
import { faultCases } from './faults/cases.ts';
import { eventTypes } from './security-events.ts';
import { damageKinds } from './sheets/damage.ts';

const readme = await readFile(new URL('README.md', import.meta.url), 'utf8');

test('the reference names every fault, control route, security event and damage, and no fault that is not there', () => {
  for (const name of [...Object.keys(faultCases), ...Object.keys(eventTypes), ...damageKinds]) {
    assert.ok(readme.includes(`\`${name}\``), name);
  }
  for (const route of Object.keys(controlRoutes)) {
    assert.ok(readme.includes(`\`${route.replace(' /', ' ')}\``), route);
  }
  const table = readme.slice(readme.indexOf('## The faults'), readme.indexOf('## Security events'));
  const switches = table.match(/`(error_page|consent|refresh|token|revoke|api)_[a-z0-9_]+`/g) ?? [];
  const unknown = switches
    .map((text) => text.slice(1, -1))
    .filter((name) => !Object.hasOwn(faultCases, name));
  assert.deepEqual(unknown, []);
});
