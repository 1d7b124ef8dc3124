import assert from 'node:assert/strict';
import { test } from 'node:test';
import Frontend, { ConnectUI } from '@nangohq/frontend';
import { Nango } from '@nangohq/node';
import packageJson from '../../../package.json' with { type: 'json' };
import { namedUnder, compatibilityPage as page } from './compatibility-page.ts';
import { innerMethods } from './inner-methods.ts';

function publicMethods(...classes: { prototype: object }[]): string[] {
  return classes
    .flatMap(({ prototype }) => Object.getOwnPropertyNames(prototype))
    .filter((name) => name !== 'constructor' && !innerMethods.includes(name));
}

test('the page names every method of the client for Node once, and no other', () => {
  assert.deepEqual(namedUnder('The client for Node').sort(), publicMethods(Nango).sort());
});

test('the page names every method of the client for browsers once, and no other', () => {
  assert.deepEqual(namedUnder('The client for browsers').sort(), publicMethods(Frontend, ConnectUI).sort());
});

test('the page names the versions that are driven', () => {
  const { '@nangohq/node': node, '@nangohq/frontend': frontend } = packageJson.devDependencies;
  assert.ok(page.includes(`every public method of version ${node}, against`));
  assert.ok(page.includes(`every public method of version ${frontend} in a real Chromium`));
});
