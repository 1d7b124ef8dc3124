import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Nango } from '@nangohq/node';
import { connectionMethods } from './connections.ts';
import { functionMethods } from './functions.ts';
import { innerMethods } from './inner-methods.ts';
import { integrationMethods } from './integrations.ts';
import { proxyMethods, redirects, reset } from './proxy.ts';
import { recordMethods } from './records.ts';
import { type NodeSubject, openNodeSubject } from './subject.ts';
import { webhookMethods } from './webhooks.ts';

/** Every method of the published node client, each by a test of its own, in this order. */
const tests = {
  ...connectionMethods,
  ...integrationMethods,
  ...functionMethods,
  ...recordMethods,
  ...proxyMethods,
  ...webhookMethods,
};

test('every public method of the client has a test here, and no other', () => {
  const methods = Object.getOwnPropertyNames(Nango.prototype).filter(
    (name) => name !== 'constructor' && !innerMethods.includes(name),
  );
  assert.deepEqual(Object.keys(tests).sort(), methods.sort());
});

describe('the node client, each method', () => {
  let subject: NodeSubject;
  before(async () => {
    subject = await openNodeSubject();
    reset(subject);
  });
  after(() => subject?.close());

  for (const [method, run] of Object.entries(tests)) {
    test(method, async () => {
      subject.answered.clear();
      await run(subject);
      assert.ok(subject.answered.has(method), 'the test had an answer of the method it is named after');
    });
  }

  test("a provider's redirect comes back to the client, which follows it without the user's credentials", () =>
    redirects(subject));
});
