import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { type MailServer, openMailServer } from '../../test/support/mail-server.ts';
import { placeAll } from '../db/sequencer.ts';
import { type EventData, type EventType, exampleConnection } from '../events/event-types.ts';
import { queueEvent } from '../events/outbox.ts';
import { eventSequence } from '../events/sequence.ts';
import { createMailer } from '../users/mail.ts';
import { claimLanes } from './claims.ts';
import {
  answer,
  type DeliveryBench,
  dayMs,
  hourMs,
  minuteMs,
  openDeliveryBench,
  type Receiver,
  silent,
} from './deliveries.fixture.ts';
import { replayOne, replayRange } from './deliveries.ts';
import { stateOf } from './retry-policy.ts';

let bench: DeliveryBench;
beforeEach(async () => {
  bench = await openDeliveryBench();
});
afterEach(() => bench.drop());

const delayMs = 30_000;
const quietMs = 10 * minuteMs;
const stopped = {
  ...exampleConnection,
  cause: 'grant_dead' as const,
  evidence: {},
  since: '2026-11-21T10:15:17.686Z',
  next_step: 'Ask the user to connect again.',
  reconnect: null,
};
async function raise<T extends EventType>(type: T, ...data: EventData[T][]): Promise<void> {
  const { environmentId } = bench;
  for (const one of data) await queueEvent(bench.db, { environmentId, type, data: one });
  const ahead = (bench.nowMs() - Date.now()) / 1000;
  await bench.db.query(
    `update event set created_at = created_at + make_interval(secs => $1) where position is null`,
    [ahead],
  );
  await placeAll(bench.db, eventSequence);
}
const raiseStopped = (...ids: string[]) =>
  raise('connection.needs_reauth', ...ids.map((id) => ({ ...stopped, connection_id: id })));
const ids = (count: number, from = 0) => Array.from({ length: count }, (_, n) => `c${from + n}`);
const textsOf = ({ got }: Receiver) => got.map(({ body }) => (JSON.parse(body) as { text: string }).text);
const lanes = () => bench.db.query<{ due_at: Date }>('select due_at from delivery_lane');
const mailerOf = ({ url }: MailServer) =>
  createMailer({
    smtp: { url, from: 'Trellis <trellis@example.com>' },
    log: { warn: () => {} },
  });
/** A mail server, and an endpoint that sends to it. */
async function mailEndpoint(types: string[] = []): Promise<{ mails: MailServer; id: number }> {
  const mails = await openMailServer();
  bench.after(mails.close);
  return { mails, id: await bench.endpoint('mailto:ops@example.com', types, 'email') };
}
/** Header and text, the header without folds and encoding. */
function readMail(text: string): { subject: string; messageId: string; body: string } {
  const [head = '', ...rest] = text.split('\n\n');
  const header = (name: string) =>
    new RegExp(`^${name}:((?:.|\\n[ \\t])*)`, 'mi')
      .exec(head)?.[1]
      ?.replace(/\n[ \t]/g, ' ')
      .trim() ?? '';
  const words = header('Subject').replace(/\?= =\?/g, '?==?');
  const subject = words.replace(/=\?UTF-8\?Q\?(.*?)\?=/gi, (_, coded: string) =>
    decodeURIComponent(coded.replaceAll('_', ' ').replaceAll('=', '%')),
  );
  const quoted = rest.join('\n\n').replace(/=\n/g, '');
  const body = quoted.replace(/(?:=[0-9A-F]{2})+/g, (coded) =>
    decodeURIComponent(coded.replaceAll('=', '%')),
  );
  return { subject, messageId: header('Message-ID'), body };
}

test('an alert is one sentence, the next step, and a link to the page of the dashboard', async () => {
  const receiver = await bench.receiver();
  await bench.endpoint(receiver.url, [], 'slack');
  const connection = { connection_id: 'ada', provider_config_key: 'google-sheet' };
  const sync = { ...connection, variant: 'base', function: 'rows', run: crypto.randomUUID() };
  const error = { code: 'function_threw', message: 'Row 7 of ada@acme.test has no name' };
  const {
    cause: _,
    reconnect: __,
    ...integration
  } = { ...stopped, evidence: {}, next_step: 'Enter a new secret.' };
  const { provider_config_key, provider, test: isTest } = exampleConnection;
  await raiseStopped('ada');
  await raise('connection.blocked', { ...stopped, connection_id: 'ada', cause: 'blocked_by_admin' });
  const times = { started_at: stopped.since, failed_at: stopped.since };
  await raise('sync.failing', { ...sync, ...times, sync_type: 'INITIAL', error, failures: 3 });
  await raise('integration.misconfigured', {
    provider_config_key,
    provider,
    test: isTest,
    cause: 'client_refused',
    evidence: {},
    since: integration.since,
    next_step: integration.next_step,
  });
  await raise('endpoint.disabled', {
    endpoint_id: 7,
    url: 'https://app.example.com',
    cause: 'gone',
    evidence: {},
    next_step: 'Delete it.',
  });
  await raise('connection.deleted', { ...exampleConnection, connection_id: 'bob' });
  bench.advance(delayMs);
  await bench.deliverer().deliverDue();
  const base = 'https://trellis.example/app/dev';
  const expected = [
    `[dev] Reconnect needed for connection \`ada\` of \`google-sheet\`: grant_dead. Ask the user to connect again.\n${base}/connections/google-sheet/ada`,
    `[dev] Connection \`ada\` of \`google-sheet\` is blocked: blocked_by_admin. Ask the user to connect again.\n${base}/connections/google-sheet/ada`,
    `[dev] Sync \`rows\` of connection \`ada\` (\`google-sheet\`) has failed 3 times in a row: function_threw.\n${base}/connections/google-sheet/ada`,
    `[dev] Integration \`google-sheet\` has an error: client_refused. Enter a new secret.\n${base}/integrations/of/google-sheet`,
    `[dev] Endpoint 7 (\`https://app.example.com\`) was disabled. Delete it.\n${base}/events`,
    `[dev] connection.deleted (integration \`google-sheet\`, connection \`bob\`): A connection was deleted.\n${base}/connections/google-sheet/bob`,
  ];
  assert.deepEqual(textsOf(receiver).toSorted(), expected.toSorted());
  for (const { body } of receiver.got) assert.deepEqual(Object.keys(JSON.parse(body) as object), ['text']);
});

test('a thousand connections that fail at once make one message, and later ones one in ten minutes', async () => {
  const receiver = await bench.receiver();
  await bench.endpoint(receiver.url, ['connection.needs_reauth'], 'slack');
  const deliverer = bench.deliverer();
  await raiseStopped(...ids(1_000));
  await deliverer.deliverDue();
  assert.equal(receiver.got.length, 0, 'the first waits for others');
  bench.advance(delayMs);
  await deliverer.deliverDue();
  const [first, none] = textsOf(receiver);
  assert.equal(none, undefined);
  assert.match(
    first!,
    /999 more like this since then\. .*\nhttps:\/\/trellis\.example\/app\/dev\/connections\?status=needs_reauth$/,
  );
  assert.equal(await bench.count('delivered'), 1_000);

  // One a minute for an hour.
  for (let minute = 0; minute < 60; minute += 1) {
    await raiseStopped(...ids(1, 2_000 + minute));
    bench.advance(minuteMs);
    await deliverer.deliverDue();
  }
  bench.advance(quietMs);
  await deliverer.deliverDue();
  const later = textsOf(receiver).slice(1);
  assert.ok(later.length >= 5 && later.length <= 7, `${later.length} messages`);
  const counted = later.reduce((sum, text) => sum + 1 + Number(/(\d+) more/.exec(text)?.[1] ?? 0), 0);
  assert.equal(counted, 60, 'each event is in one message');
  assert.equal(await bench.count('waiting'), 0);

  // The last event is long ago: the next one waits for nothing but the first delay.
  bench.advance(hourMs);
  await deliverer.deliverDue();
  assert.deepEqual(await lanes(), []);
  receiver.got.length = 0;
  await raiseStopped('late');
  bench.advance(delayMs);
  await deliverer.deliverDue();
  assert.equal(receiver.got.length, 1);
});

test('types and integrations are reported apart, and an endpoint for events gets each event', async () => {
  const [alerts, events] = [await bench.receiver(), await bench.receiver()];
  await bench.endpoint(alerts.url, [], 'slack');
  await bench.endpoint(events.url);
  await raiseStopped(...ids(20));
  await raise('connection.needs_reauth', { ...stopped, provider_config_key: 'drive', connection_id: 'ada' });
  await raise('connection.deleted', exampleConnection);
  const deliverer = bench.deliverer();
  await deliverer.deliverDue();
  assert.equal(events.got.length, 22);
  bench.advance(delayMs);
  await deliverer.deliverDue();
  const counts = textsOf(alerts).map((text) => Number(/(\d+) more/.exec(text)?.[1] ?? 0));
  assert.deepEqual(
    counts.toSorted((one, other) => one - other),
    [0, 0, 19],
  );
});

test('events of one lane that an older node queued are reported by type', async () => {
  const receiver = await bench.receiver();
  await bench.endpoint(receiver.url, [], 'slack');
  await raiseStopped('ada');
  await raise('connection.blocked', { ...stopped, connection_id: 'bob', cause: 'blocked_by_admin' });
  const [kept] = await bench.db.query<{ lane: number }>('select lane from delivery_lane');
  await bench.db.query('update delivery set lane = $1', [kept!.lane]);
  await bench.db.query('delete from delivery_lane where lane <> $1', [kept!.lane]);
  const deliverer = bench.deliverer();
  bench.advance(delayMs);
  await deliverer.deliverDue();
  bench.advance(quietMs);
  await deliverer.deliverDue();
  const texts = textsOf(receiver);
  assert.equal(texts.length, 2);
  assert.match(texts[0]!, /Reconnect needed for connection `ada`/);
  assert.match(texts[1]!, /`bob` .* is blocked/);
  assert.equal(await bench.count('waiting'), 0);
});

test('hostile names neither mention, nor link, nor break a line', async () => {
  const receiver = await bench.receiver();
  const { mails } = await mailEndpoint();
  await bench.endpoint(receiver.url, [], 'slack');
  const id =
    '<!channel> @everyone & `<https://evil.example|here>`\r\nBcc: victim@example.com\r\n\r\nhello\u202egnp';
  await raiseStopped(id, `${'x'.repeat(5_000)}`);
  bench.advance(delayMs);
  await bench.deliverer({}, { mailer: mailerOf(mails)! }).deliverDue();
  const [text] = textsOf(receiver) as [string];
  assert.doesNotMatch(text, /[<>]|&(?!amp;|lt;|gt;)/);
  assert.equal(
    text.split('\n')[0],
    "[dev] Reconnect needed for connection `&lt;!channel&gt; @everyone &amp; '&lt;https://evil.example|here&gt;' Bcc: victim@example.com hello gnp` of " +
      '`google-sheet`: grant_dead. 1 more like this since then. Ask the user to connect again.',
  );
  assert.equal(text.split('\n').length, 2);
  const [mail, none] = mails.mails;
  assert.deepEqual([mail?.to, none], ['ops@example.com', undefined]);
  const [head = ''] = mail!.text.split('\n\n');
  assert.doesNotMatch(head, /^Bcc:/im);
  const { subject, body } = readMail(mail!.text);
  assert.match(subject, /^\[nango dev\] Reconnect needed for connection "<!channel> @everyone & `<https:/);
  assert.equal(body.trim().split('\n').length, 3);
  assert.doesNotMatch(body, /\u202e/);

  receiver.got.length = 0;
  bench.advance(hourMs);
  await raiseStopped('x'.repeat(5_000));
  bench.advance(hourMs);
  await bench.deliverer({}, { mailer: mailerOf(mails)! }).deliverDue();
  const [long] = textsOf(receiver);
  assert.match(long!, /`x{99}…`/);
});

test('a mail that the server refuses is sent again, as the same mail', async () => {
  const { mails, id } = await mailEndpoint(['connection.*']);
  await raiseStopped(...ids(3));
  bench.advance(delayMs);
  const deliverer = bench.deliverer({}, { mailer: mailerOf(mails)! });
  mails.refuse(true);
  await deliverer.deliverDue();
  const { failures, lastFailure } = await bench.stateOf(id);
  const { error, code, answer: answered } = lastFailure as Record<string, unknown>;
  assert.deepEqual([failures, error, code, answered], [1, 'mail_refused', 'EENVELOPE', 'SMTP 550']);
  assert.equal(await bench.count('waiting'), 3);
  mails.refuse(false);
  bench.advance(minuteMs);
  await deliverer.deliverDue();
  const text = mails.mails[0]?.text ?? '';
  assert.match(readMail(text).body, /^Reconnect needed for connection "c0" .* 2 more like this since then\./);
  assert.match(readMail(text).messageId, /^<[0-9a-f-]{36}\.\d+\.2\.\d+@trellis\.example>$/);
  assert.equal(await bench.count('delivered'), 3);
});

test('without a mail server a mail fails with the reason, and other endpoints are not affected', async () => {
  const receiver = await bench.receiver();
  const id = await bench.endpoint('mailto:ops@example.com', [], 'email');
  await bench.endpoint(receiver.url, [], 'slack');
  await raiseStopped('ada');
  bench.advance(delayMs);
  await bench.deliverer().deliverDue();
  assert.equal(receiver.got.length, 1);
  const { lastFailure } = await bench.stateOf(id);
  assert.equal((lastFailure as { error: string }).error, 'mail_not_configured');
});

test('an endpoint that answers 500 gets all alerts later, and no flood when it works again', async () => {
  const receiver = await bench.receiver(answer(500));
  const id = await bench.endpoint(receiver.url, [], 'slack');
  const deliverer = bench.deliverer();
  await raiseStopped(...ids(5));
  for (let hour = 0; hour < 3; hour += 1) {
    await raiseStopped(...ids(5, 5 + hour * 5));
    await bench.pass(hourMs, { stepMs: 10 * minuteMs, deliverer });
  }
  assert.notEqual(stateOf(await bench.stateOf(id), bench.nowMs()), 'closed');
  assert.ok(receiver.got.length < 40, `${receiver.got.length} attempts`);
  receiver.answers = (response) => response.writeHead(200).end('ok');
  receiver.got.length = 0;
  await bench.pass(hourMs, { stepMs: 10 * minuteMs, deliverer });
  assert.equal(receiver.got.length, 1);
  assert.match(textsOf(receiver)[0]!, /19 more/);
  assert.equal(await bench.count('delivered'), 20);
});

test('alerts that no receiver takes for three days are dead, all that one message reported', async () => {
  const receiver = await bench.receiver(answer(500));
  await bench.endpoint(receiver.url, [], 'slack');
  await raiseStopped(...ids(5));
  const deliverer = bench.deliverer();
  await bench.pass(3 * dayMs + 2 * hourMs, { stepMs: hourMs, deliverer });
  assert.deepEqual([await bench.count('dead'), await bench.count('waiting')], [5, 0]);
  assert.deepEqual(await lanes(), []);
});

test('a node that is killed between claim and send loses no alert, and one that stops releases it', async () => {
  const receiver = await bench.receiver(silent);
  const id = await bench.endpoint(receiver.url, [], 'slack');
  await raiseStopped(...ids(3));
  bench.advance(delayMs);
  const claiming = { endpointId: id, now: new Date(bench.nowMs()), max: 8, maxOfEndpoint: 8 };
  // A lease that has ended, as that of a killed node.
  const [lost] = await claimLanes(bench.db, { ...claiming, leaseMs: 0 });
  assert.equal(lost?.others.length, 2);
  const stopping = bench.deliverer({ pollMs: 5 });
  stopping.start();
  while (receiver.got.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  await stopping.stop(0);
  assert.equal(await bench.count('waiting'), 3);
  receiver.answers = (response) => response.writeHead(200).end('ok');
  await bench.deliverer().deliverDue();
  assert.equal(receiver.got.length, 2);
  assert.match(textsOf(receiver)[1]!, /2 more/);
  assert.equal(await bench.count('delivered'), 3);
});

test('twenty nodes at once send an alert once', async () => {
  const receiver = await bench.receiver();
  await bench.endpoint(receiver.url, [], 'slack');
  await raiseStopped(...ids(200));
  bench.advance(delayMs);
  await Promise.all(Array.from({ length: 20 }, () => bench.deliverer().deliverDue()));
  assert.equal(receiver.got.length, 1);
  assert.match(textsOf(receiver)[0]!, /199 more/);
});

test('a replay is sent at once, also within the ten minutes', async () => {
  const receiver = await bench.receiver();
  const id = await bench.endpoint(receiver.url, ['connection.needs_reauth'], 'slack');
  const { environmentId } = bench;
  const deliverer = bench.deliverer();
  await raiseStopped(...ids(3));
  bench.advance(delayMs);
  await deliverer.deliverDue();
  const [{ id: delivery }] = (await bench.db.query('select id from delivery order by id')) as [
    { id: number },
  ];
  const now = () => new Date(bench.nowMs());
  await bench.db.transaction((tx) => replayOne(tx, { id: delivery, environmentId, now: now() }));
  await deliverer.deliverDue();
  const range = { after: 0, undeliveredOnly: false };
  const endpoint = { id, kind: 'events' };
  await bench.db.transaction((tx) => replayRange(tx, { endpoint, environmentId, range, now: now() }));
  await deliverer.deliverDue();
  const counts = textsOf(receiver).map((text) => Number(/(\d+) more/.exec(text)?.[1] ?? 0));
  assert.deepEqual(counts, [2, 0, 2]);
});

test('an endpoint that is disabled is reported to the other alerts, without its secret address', async () => {
  const [gone, alerts] = [await bench.receiver(answer(410)), await bench.receiver()];
  const id = await bench.endpoint(`${gone.url}/secret-path`, [], 'slack');
  await bench.endpoint(alerts.url, ['endpoint.disabled'], 'slack');
  await raiseStopped('ada');
  bench.advance(delayMs);
  const deliverer = bench.deliverer();
  await deliverer.deliverDue();
  await placeAll(bench.db, eventSequence);
  bench.advance(delayMs);
  await deliverer.deliverDue();
  assert.equal(gone.got.length, 1);
  const [text] = textsOf(alerts);
  assert.match(
    text!,
    new RegExp(`Endpoint ${id} \\(\`http://127\\.0\\.0\\.1:\\d+\`\\) was disabled\\. .*410`),
  );
});
