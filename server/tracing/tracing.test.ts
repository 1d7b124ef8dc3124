import assert from 'node:assert/strict';
import { test } from 'node:test';
import { remoteSpanOf } from './tracing.ts';

const traceId = '0af7651916cd43dd8448eb211c80319c';
const spanId = 'b7ad6b7169203331';

test('a traceparent is read as W3C Trace Context has it', () => {
  assert.deepEqual(remoteSpanOf({ traceparent: `00-${traceId}-${spanId}-01`, tracestate: 'a=b' }), {
    traceId,
    spanId,
    flags: 1,
    state: 'a=b',
  });
  // A later version may say more behind what is known.
  assert.equal(remoteSpanOf({ traceparent: `cc-${traceId}-${spanId}-00-more` })?.flags, 0);
});

test('an invalid traceparent begins a trace of its own', () => {
  for (const traceparent of [
    undefined,
    '',
    ['a', 'b'],
    `00-${traceId}-${spanId}`,
    `00-${traceId}-${spanId}-01-more`,
    `ff-${traceId}-${spanId}-01`,
    `00-${'0'.repeat(32)}-${spanId}-01`,
    `00-${traceId}-${'0'.repeat(16)}-01`,
    `00-${traceId.toUpperCase()}-${spanId}-01`,
    ` 00-${traceId}-${spanId}-01`,
  ])
    assert.equal(remoteSpanOf({ traceparent }), undefined, String(traceparent));
});
