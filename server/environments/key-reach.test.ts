import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ProxyRule } from '../http/auth/proxy-rule.ts';
import { commonReach, type Reach, requireWithin } from './keys.ts';

const [early, late] = [new Date(Date.UTC(2030, 0, 1)), new Date(Date.UTC(2031, 0, 1))];
const allow = (path: string): ProxyRule => ({ effect: 'allow', path });
const deny = (path: string): ProxyRule => ({ effect: 'deny', path });
const [a, b] = [allow('/a'), allow('/b')];
const reaches: Reach[] = [];
for (const scopes of [['*'], ['records:read'], ['records:read', 'proxy:read'], ['keys']])
  for (const proxyRules of [[], [a], [b], [deny('/c'), a, b], [deny('/d')]])
    for (const expiresAt of [undefined, early, late]) reaches.push({ scopes, proxyRules, expiresAt });

const allowedBy = ({ proxyRules }: Reach) => proxyRules.filter(({ effect }) => effect === 'allow');

test('what two have in common is within both, whichever comes first', () => {
  for (const one of reaches) {
    for (const other of reaches) {
      const { proxyRules, ...common } = commonReach(one, other);
      const isClosed = proxyRules.some(({ effect, path }) => effect === 'deny' && path === '/**');
      const [ones, others] = [allowedBy(one), allowedBy(other)];
      const areApart = ones.length > 0 && others.length > 0 && !ones.some((rule) => others.includes(rule));
      assert.equal(isClosed, areApart);
      for (const maker of [one, other]) {
        // What is denied everything is within every other one, whatever its rules allow beside.
        const judged = isClosed
          ? [...proxyRules.filter(({ effect }) => effect === 'deny'), ...allowedBy(maker)]
          : proxyRules;
        requireWithin({ ...common, proxyRules: judged }, { ...maker, scopes: new Set(maker.scopes) });
      }
    }
  }
});

test('a reach within another one is not changed', () => {
  for (const one of reaches) {
    assert.deepEqual(commonReach(one, one), one);
    for (const other of reaches) {
      const common = commonReach(one, other);
      assert.deepEqual(commonReach(common, other), common);
      assert.deepEqual(commonReach(common, one), common);
    }
  }
});
