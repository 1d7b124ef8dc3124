import assert from 'node:assert/strict';
import { test } from 'node:test';
import { adviceOn } from './advice.ts';

test('the advice on a throw names a stack only where there is one, or none is shown to this user', () => {
  const textOf = (payload?: unknown) =>
    adviceOn({ state: 'failed', kind: 'sync', error: { code: 'function_threw', message: 'x', payload } })
      ?.text ?? '';
  assert.match(
    textOf({ name: 'Error', stack: 'Error: x\n    at exec (a.ts:1:1)' }),
    /The stack has the line/,
  );
  assert.match(textOf(), /The stack has the line/);
  assert.match(textOf({ name: 'Error' }), /not an Error, so there is no stack/);
});

test('only for a sync the advice speaks of its checkpoint', () => {
  const textOf = (kind: 'sync' | 'action', state: 'failed' | 'cancelled', code: string) =>
    adviceOn({ state, kind, error: { code, message: 'x' } })?.text ?? '';
  for (const [state, code] of [
    ['failed', 'upstream_timeout'],
    ['failed', 'unavailable'],
    ['cancelled', 'run_cancelled'],
  ] as const) {
    assert.match(textOf('sync', state, code), /checkpoint/);
    assert.doesNotMatch(textOf('action', state, code), /checkpoint|run it again/);
  }
});
