// Slow: each of its tests takes more than a second.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type Answer, openTrellis, type TestTrellis } from '../support/trellis.ts';
import { apiCases, type Case, outageCases, refreshCases } from './failure-cases.ts';
import { codeOf, failureSteps, type Subject } from './failure-subject.ts';

/**
 * What can go wrong at a provider, case by case: the stored state, what callers are told, which events there are and
 * how many after three attempts, and the text for people. The numbers are those of the table in docs/reference/connection-health.md.
 * Cases that take steps of their own are in `failure-steps.test.ts`.
 */
let trellis: TestTrellis;
let steps: ReturnType<typeof failureSteps>;
let connectionsReader: string;
before(async () => {
  trellis = await openTrellis();
  steps = failureSteps(trellis);
  connectionsReader = await trellis.keyWith('connections:read');
});
after(() => trellis.close());

async function check(given: Case, subject: Subject, attempt: () => Promise<Answer>): Promise<void> {
  const answers: Answer[] = [];
  for (let turn = 0; turn < 3; turn += 1) answers.push(await attempt());
  const [status, code = null] = given.answer;
  const same = answers.map((): [number, string | null] => [status, code]);
  assert.deepEqual(answers.map(codeOf), same, answers[0]!.text);
  const events = await steps.settledEvents(subject, given.events.length);
  assert.deepEqual(
    events.map(({ type }) => type),
    given.events,
  );
  const health = await steps.healthOf(subject);
  assert.deepEqual(
    { status: health.status, kind: health.kind, cause: health.cause },
    { status: 'active', kind: null, cause: null, ...given.health },
  );
  assert.equal(health.reconnect !== null, given.reconnects ?? false);
  if (given.text) assert.match(String(health.next_step), given.text);
  const evidence = health.evidence as Record<string, unknown> | null;
  for (const [name, value] of Object.entries(given.evidence ?? {}))
    assert.equal(evidence?.[name], value, name);
  await checkShown(subject, health);
  if (status === 424) checkTold(answers[2], health);
}

/** The same health wherever it is shown. */
async function checkShown(subject: Subject, health: Record<string, unknown>): Promise<void> {
  const { body } = await trellis.call('GET', `/connections?connectionId=${subject.connectionId}`);
  assert.deepEqual((body.connections as { health: unknown }[])[0]?.health, health);
  const shown = await trellis.call('GET', steps.at(subject), { key: connectionsReader });
  assert.deepEqual(shown.body.health, health);
  if (health.status === 'active') return;
  const refused = await trellis.call('GET', steps.at(subject));
  const error = refused.body.error as { code: string; payload: { health: unknown } };
  assert.deepEqual([refused.status, error.code], [424, 'invalid_credentials']);
  assert.deepEqual(error.payload.health, health);
}

/** What a caller of the proxy is told, in the provider's dialect. */
function checkTold(answer: Answer | undefined, health: Record<string, unknown>): void {
  const error = answer?.body.error as { message: string; details: { metadata: Record<string, string> }[] };
  assert.equal(error.message, health.next_step);
  const { cause, kind, status, reconnect } = error.details[0]?.metadata ?? {};
  assert.deepEqual(
    { cause, kind, status },
    { cause: health.cause, kind: health.kind, status: health.status },
  );
  assert.deepEqual(reconnect === undefined ? null : JSON.parse(reconnect), health.reconnect);
}

describe('a refresh that is refused', () => {
  for (const given of refreshCases) {
    test(`${given.of}: ${given.name}`, async () => {
      const subject = await steps.subject();
      await steps.expire(subject, given.fault === undefined ? 'final' : 'refreshable');
      if (given.isPastEnd) {
        await trellis.db.query(
          `update connection
           set refresh_expires_at = now(), granted_at = now() - interval '7 days'
           where connection_id = $1`,
          [subject.connectionId],
        );
      }
      if (given.fault !== undefined) await steps.fault(given.fault, subject);
      await check(given, subject, () => steps.read(subject));
    });
  }
});

describe('an answer of the API', () => {
  for (const given of apiCases) {
    test(`${given.of}: ${given.name}`, async () => {
      const subject = await steps.subject();
      await steps.fault(given.fault!, subject, given.times === undefined ? {} : { times: given.times });
      const before = await steps.calls('POST /token');
      await check(given, subject, () => steps.read(subject));
      assert.equal((await steps.calls('POST /token')) - before, given.refreshes ?? 0, 'refreshes');
    });
  }
});

// Last, because these move the clock.
describe('a provider that gives no answer to a refresh', () => {
  for (const given of outageCases) {
    test(`${given.of}: ${given.name}`, async () => {
      const subject = await steps.subject();
      await steps.expire(subject);
      await steps.fault(given.fault!, subject);
      await check(given, subject, async () => {
        const answer = await steps.read(subject);
        assert.ok(Number(answer.headers.get('retry-after')) > 0);
        await trellis.advance(3600);
        return answer;
      });
      await steps.heal(subject);
      assert.deepEqual(codeOf(await steps.read(subject)), [200, null]);
      assert.deepEqual(await steps.typesOf(subject), [...given.events, 'connection.recovered']);
      assert.equal((await steps.healthOf(subject)).cause, null);
    });
  }
});
