import assert from 'node:assert/strict';
import { createHash, createHmac, generateKeyPairSync, KeyObject, sign as signWith } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { crc32 } from 'node:zlib';
import { shippedCatalog } from '../../../test/support/catalog.ts';
import { makeSelfSigned } from '../../../test/support/certificate.ts';
import { openWebhookBench, type WebhookBench } from '../webhooks.fixture.ts';

// Each signature is computed here, as the provider's page describes it, and never by the code under test.
type Given = { body: string; at: number; key: string; url: string };
type Headers = Record<string, string>;
type Row = {
  body: object | URLSearchParams;
  sign: (given: Given) => Headers;
  type?: string;
  /** Headers of the webhook besides the signature. */
  headers?: Headers;
  /** The tag or account by which the connection is found; without it, by the query. */
  tag?: [name: string, value: string];
  account?: string;
  email?: string;
  key?: string;
  /** Whether a time is signed: an old webhook is refused, and a repetition has no effect. */
  isTimed?: true;
  /** Whether the proof is that of the sender alone, so another body has the same. */
  isOfSender?: true;
  isPublic?: true;
  /** A secret in the address. */
  query?: (key: string) => string;
  status?: 204;
};

const secret = 'what-the-provider-signs-with';
const hmac = (key: string | Buffer, text: string, digest = 'sha256') => createHmac(digest, key).update(text);
const hex =
  (header: string, prefix = '', digest = 'sha256') =>
  ({ body, key }: Given): Headers => ({
    [header]: prefix + hmac(key, body, digest).digest('hex'),
  });
const base64 =
  (header: string, prefix = '', digest = 'sha256') =>
  ({ body, key }: Given): Headers => ({
    [header]: prefix + hmac(key, body, digest).digest('base64'),
  });
const basic = ({ key }: Given): Headers => ({
  authorization: `Basic ${Buffer.from(key).toString('base64')}`,
});
const seconds = (at: number) => String(Math.floor(at / 1000));
const ed25519 = generateKeyPairSync('ed25519');
const ec = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const base64url = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');
const graph: Row = {
  body: { value: [{ changeType: 'created', subscriptionId: 'sub-1', clientState: secret }] },
  sign: () => ({}),
  type: 'created',
  tag: ['subscription_id', 'sub-1'],
};

const certificate = makeSelfSigned();
const certificatePath = '/v1/notifications/certs/CERT-360caa42';
const pushAccount = 'push@project-1.iam.gserviceaccount.com';
/** A token with which Google's push subscription authenticates; the provider of the bench has the key. */
const pushToken = (given: Given, more: object = {}) => pushTokenOf(given, { more, head: { kid: 'own' } });
const pushTokenOf = ({ at, key, url }: Given, { more = {}, head }: { more?: object; head: object }) => {
  const claims = {
    iss: 'https://accounts.google.com',
    aud: url,
    email: key,
    email_verified: true,
    iat: Math.floor(at / 1000),
    exp: Math.floor(at / 1000) + 600,
    ...more,
  };
  const text = `${base64url({ alg: 'RS256', ...head, typ: 'JWT' })}.${base64url(claims)}`;
  const signature = signWith(
    'sha256',
    Buffer.from(text),
    KeyObject.from(bench.provider.keys.own.privateKey as CryptoKey),
  );
  return `${text}.${signature.toString('base64url')}`;
};
const rows: Record<string, Row> = {
  airtable: {
    body: { base: { id: 'app1' }, webhook: { id: 'ach1' } },
    key: Buffer.alloc(32, 7).toString('base64'),
    sign: ({ body, key }) => ({
      'x-airtable-content-mac': `hmac-sha256=${hmac(Buffer.from(key, 'base64'), body).digest('hex')}`,
    }),
    tag: ['base_id', 'app1'],
  },
  asana: {
    body: { events: [{ action: 'changed', resource: { gid: '1', resource_type: 'task' } }] },
    sign: hex('x-hook-signature'),
    type: 'task',
  },
  ashby: {
    body: { action: 'candidateHire' },
    sign: hex('ashby-signature', 'sha256='),
    type: 'candidateHire',
  },
  attio: {
    body: { webhook_id: 'w', events: [{ event_type: 'note.created', id: { workspace_id: 'ws1' } }] },
    sign: hex('attio-signature'),
    type: 'note.created',
    tag: ['workspace_id', 'ws1'],
  },
  bamboohr: {
    body: { type: 'employee.updated' },
    sign: ({ body, at, key }) => ({
      'x-bamboohr-timestamp': seconds(at),
      'x-bamboohr-signature': hmac(key, body + seconds(at)).digest('hex'),
    }),
    type: 'employee.updated',
    isTimed: true,
  },
  bitbucket: {
    body: { repository: { workspace: { slug: 'ada' } } },
    sign: hex('x-hub-signature', 'sha256='),
    headers: { 'x-event-key': 'repo:push' },
    type: 'repo:push',
    tag: ['workspace', 'ada'],
  },
  box: {
    body: { trigger: 'FILE.UPLOADED', webhook: { id: '5' } },
    sign: ({ body, at, key }) => {
      const time = new Date(at).toISOString();
      return {
        'box-delivery-timestamp': time,
        'box-signature-primary': hmac(key, body + time).digest('base64'),
      };
    },
    type: 'FILE.UPLOADED',
    tag: ['webhook_id', '5'],
    isTimed: true,
  },
  calendly: {
    body: { event: 'invitee.created', created_by: 'https://api.calendly.com/users/AAA' },
    sign: ({ body, at, key }) => ({
      'calendly-webhook-signature': `t=${seconds(at)},v1=${hmac(key, `${seconds(at)}.${body}`).digest('hex')}`,
    }),
    type: 'invitee.created',
    account: 'https://api.calendly.com/users/AAA',
    isTimed: true,
  },
  chargebee: {
    body: { event_type: 'card_added' },
    sign: basic,
    key: 'ada:s3cret-of-the-hook',
    type: 'card_added',
  },
  clickup: {
    body: { webhook_id: 'w1', event: 'taskCreated' },
    sign: hex('x-signature'),
    type: 'taskCreated',
    tag: ['webhook_id', 'w1'],
  },
  close: {
    body: { event: { object_type: 'lead', organization_id: 'orga_1' } },
    key: Buffer.alloc(32, 9).toString('hex'),
    sign: ({ body, at, key }) => ({
      'close-sig-timestamp': seconds(at),
      'close-sig-hash': hmac(Buffer.from(key, 'hex'), seconds(at) + body).digest('hex'),
    }),
    type: 'lead',
    tag: ['organization_id', 'orga_1'],
    isTimed: true,
  },
  'customer-io': {
    body: { metric: 'delivered', object_type: 'email' },
    sign: ({ body, at, key }) => ({
      'x-cio-timestamp': seconds(at),
      'x-cio-signature': hmac(key, `v0:${seconds(at)}:${body}`).digest('hex'),
    }),
    type: 'delivered',
    isTimed: true,
  },
  deel: {
    body: { data: { meta: { event_type: 'contract.created' } } },
    sign: ({ body, key }) => ({ 'x-deel-signature': hmac(key, `POST${body}`).digest('hex') }),
    type: 'contract.created',
  },
  discord: {
    isPublic: true,
    body: { type: 1, event: { type: 'APPLICATION_AUTHORIZED', data: { user: { id: '42' } } } },
    key: Buffer.from(ed25519.publicKey.export({ format: 'jwk' }).x!, 'base64url').toString('hex'),
    sign: ({ body, at }) => ({
      'x-signature-timestamp': seconds(at),
      'x-signature-ed25519': signWith(null, Buffer.from(seconds(at) + body), ed25519.privateKey).toString(
        'hex',
      ),
    }),
    type: 'APPLICATION_AUTHORIZED',
    account: '42',
    isTimed: true,
    status: 204,
  },
  docusign: {
    body: { event: 'envelope-completed', data: { accountId: 'a1' } },
    sign: base64('x-docusign-signature-1'),
    type: 'envelope-completed',
    tag: ['account_id', 'a1'],
  },
  dropbox: {
    body: { list_folder: { accounts: ['dbid:other', 'dbid:1'] } },
    sign: hex('x-dropbox-signature'),
    tag: ['account_id', 'dbid:1'],
  },
  facebook: {
    body: { object: 'page', entry: [{ id: 'p1' }] },
    sign: hex('x-hub-signature-256', 'sha256='),
    type: 'page',
    tag: ['page_id', 'p1'],
  },
  figma: {
    body: { passcode: secret, event_type: 'FILE_UPDATE', webhook_id: '22' },
    sign: () => ({}),
    type: 'FILE_UPDATE',
    tag: ['webhook_id', '22'],
  },
  front: {
    body: { type: 'inbound_received', authorization: { id: 'cmp_1' } },
    sign: ({ body, at, key }) => ({
      'x-front-request-timestamp': String(at),
      'x-front-signature': hmac(key, `${at}:${body}`).digest('base64'),
    }),
    type: 'inbound_received',
    tag: ['company_id', 'cmp_1'],
    isTimed: true,
  },
  github: {
    body: { repository: { owner: { id: 7 } } },
    sign: hex('x-hub-signature-256', 'sha256='),
    headers: { 'x-github-event': 'push' },
    type: 'push',
    account: '7',
  },
  'github-app-installation': {
    body: { action: 'created', installation: { id: 12345678 } },
    sign: hex('x-hub-signature-256', 'sha256='),
    headers: { 'x-github-event': 'issues' },
    type: 'issues',
    account: '12345678',
  },
  gitlab: {
    body: { project: { id: 3 } },
    sign: ({ key }) => ({ 'x-gitlab-token': key }),
    headers: { 'x-gitlab-event': 'Push Hook' },
    type: 'Push Hook',
    tag: ['project_id', '3'],
  },
  gocardless: {
    body: { events: [{ resource_type: 'payments', links: { organisation: 'OR1' } }] },
    sign: hex('webhook-signature'),
    type: 'payments',
    tag: ['organisation_id', 'OR1'],
  },
  'google-mail': {
    body: {
      message: {
        data: Buffer.from('{"emailAddress":"Owner@example.com","historyId":9}').toString('base64'),
        messageId: '2070443601311540',
      },
      subscription: 'projects/project-1/subscriptions/mail',
    },
    key: pushAccount,
    sign: (given) => ({ authorization: `Bearer ${pushToken(given)}` }),
    email: 'owner@example.com',
    isOfSender: true,
    status: 204,
  },
  greenhouse: {
    body: { action: 'hire_candidate' },
    sign: hex('signature', 'sha256 '),
    type: 'hire_candidate',
  },
  'help-scout': {
    body: { id: 1 },
    sign: base64('x-helpscout-signature', '', 'sha1'),
    headers: { 'x-helpscout-event': 'convo.created' },
    type: 'convo.created',
  },
  hubspot: {
    body: [{ portalId: 62515, subscriptionType: 'contact.creation' }],
    sign: ({ body, at, key, url }) => ({
      'x-hubspot-request-timestamp': String(at),
      'x-hubspot-signature-v3': hmac(key, `POST${url}${body}${at}`).digest('base64'),
    }),
    type: 'contact.creation',
    tag: ['portal_id', '62515'],
    isTimed: true,
  },
  intercom: {
    body: { topic: 'contact.created', app_id: 'ab' },
    sign: hex('x-hub-signature', 'sha1=', 'sha1'),
    type: 'contact.created',
    tag: ['app_id', 'ab'],
  },
  jira: {
    body: { webhookEvent: 'jira:issue_created' },
    sign: hex('x-hub-signature', 'sha256='),
    type: 'jira:issue_created',
  },
  mailchimp: {
    body: { type: 'subscribe' },
    query: (key) => `secret=${key}`,
    sign: () => ({}),
    type: 'subscribe',
  },
  'microsoft-graph': graph,
  monday: {
    body: { event: { type: 'create_pulse', boardId: 12 } },
    sign: ({ at, key }) => {
      const text = `${base64url({ alg: 'HS256', typ: 'JWT' })}.${base64url({ accountId: 1, exp: Math.floor(at / 1000) + 300 })}`;
      return { authorization: `${text}.${hmac(key, text).digest('base64url')}` };
    },
    type: 'create_pulse',
    tag: ['board_id', '12'],
    isTimed: true,
  },
  notion: {
    body: { type: 'page.created', workspace_id: 'w' },
    sign: hex('x-notion-signature', 'sha256='),
    type: 'page.created',
    tag: ['workspace_id', 'w'],
  },
  outlook: graph,
  outreach: {
    body: { meta: { eventName: 'account.created' } },
    sign: hex('outreach-webhook-signature'),
    type: 'account.created',
  },
  pagerduty: {
    body: { event: { event_type: 'incident.triggered' } },
    sign: (given) => ({ 'x-pagerduty-signature': `v1=00ff,v1=${hex('s')(given).s}` }),
    type: 'incident.triggered',
  },
  paypal: {
    body: { event_type: 'PAYMENT.SALE.COMPLETED', resource: { payee: { merchant_id: 'MERCHANT1' } } },
    key: '9XL90610J3647323C',
    headers: {
      'paypal-transmission-id': 'd938e770-8046-11e6-8103-6b62a8a99ac4',
      'paypal-cert-url': `https://api.paypal.com${certificatePath}`,
      'paypal-auth-algo': 'SHA256withRSA',
    },
    sign: ({ body, at, key }) => {
      const time = new Date(at).toISOString().replace(/\.\d+/, '');
      const text = `d938e770-8046-11e6-8103-6b62a8a99ac4|${time}|${key}|${crc32(body)}`;
      return {
        'paypal-transmission-time': time,
        'paypal-transmission-sig': signWith('sha256', Buffer.from(text), certificate.key).toString('base64'),
      };
    },
    type: 'PAYMENT.SALE.COMPLETED',
    tag: ['merchant_id', 'MERCHANT1'],
    isTimed: true,
  },
  pipedrive: {
    body: { meta: { entity: 'deal', company_id: '9' } },
    sign: basic,
    key: 'ada:s3cret-of-the-hook',
    type: 'deal',
    tag: ['company_id', '9'],
  },
  postmark: { body: { RecordType: 'Bounce' }, sign: basic, key: 'ada:s3cret-of-the-hook', type: 'Bounce' },
  quickbooks: {
    body: [{ type: 'qbo.customer.created.v1', intuitaccountid: '31' }],
    sign: base64('intuit-signature'),
    type: 'qbo.customer.created.v1',
    tag: ['realm_id', '31'],
  },
  resend: {
    body: { type: 'email.sent' },
    key: `whsec_${Buffer.alloc(24, 5).toString('base64')}`,
    sign: ({ body, at, key }) => ({
      'svix-id': 'msg_1',
      'svix-timestamp': seconds(at),
      'svix-signature': `v1,${hmac(Buffer.from(key.slice(6), 'base64'), `msg_1.${seconds(at)}.${body}`).digest('base64')}`,
    }),
    type: 'email.sent',
    isTimed: true,
  },
  sendgrid: {
    isPublic: true,
    body: [{ event: 'delivered' }],
    key: ec.publicKey.export({ format: 'der', type: 'spki' }).toString('base64'),
    sign: ({ body, at }) => ({
      'x-twilio-email-event-webhook-timestamp': seconds(at),
      'x-twilio-email-event-webhook-signature': signWith(
        'sha256',
        Buffer.from(seconds(at) + body),
        ec.privateKey,
      ).toString('base64'),
    }),
    type: 'delivered',
    isTimed: true,
  },
  sentry: {
    body: { action: 'created', installation: { uuid: 'u1' } },
    sign: hex('sentry-hook-signature'),
    headers: { 'sentry-hook-resource': 'issue' },
    type: 'issue',
    tag: ['installation_id', 'u1'],
  },
  shopify: {
    body: { id: 1 },
    sign: base64('x-shopify-hmac-sha256'),
    headers: { 'x-shopify-topic': 'orders/create', 'x-shopify-shop-domain': 'a.myshopify.com' },
    type: 'orders/create',
    tag: ['shop', 'a.myshopify.com'],
  },
  slack: {
    body: { team_id: 'T1', event: { type: 'message' } },
    sign: ({ body, at, key }) => ({
      'x-slack-request-timestamp': seconds(at),
      'x-slack-signature': `v0=${hmac(key, `v0:${seconds(at)}:${body}`).digest('hex')}`,
    }),
    type: 'message',
    tag: ['team_id', 'T1'],
    isTimed: true,
  },
  smartsheet: {
    body: { webhookId: 4509506114742148, events: [{ eventType: 'created' }] },
    sign: hex('smartsheet-hmac-sha256'),
    type: 'created',
    tag: ['webhook_id', '4509506114742148'],
  },
  square: {
    body: { type: 'payment.updated', merchant_id: 'm1' },
    sign: ({ body, key, url }) => ({
      'x-square-hmacsha256-signature': hmac(key, url + body).digest('base64'),
    }),
    type: 'payment.updated',
    tag: ['merchant_id', 'm1'],
  },
  stripe: {
    body: { type: 'charge.succeeded', account: 'acct_1' },
    sign: ({ body, at, key }) => ({
      'stripe-signature': `t=${seconds(at)},v1=${hmac(key, `${seconds(at)}.${body}`).digest('hex')}`,
    }),
    type: 'charge.succeeded',
    tag: ['stripe_account', 'acct_1'],
    isTimed: true,
  },
  todoist: {
    body: { event_name: 'item:added', user_id: '2671355' },
    sign: base64('x-todoist-hmac-sha256'),
    type: 'item:added',
    tag: ['user_id', '2671355'],
  },
  trello: {
    body: { action: { type: 'updateCard' }, model: { id: 'b1' } },
    sign: ({ body, key, url }) => ({ 'x-trello-webhook': hmac(key, body + url, 'sha1').digest('base64') }),
    type: 'updateCard',
    tag: ['model_id', 'b1'],
  },
  twitch: {
    body: { subscription: { condition: { broadcaster_user_id: '1337' } }, event: {} },
    headers: {
      'twitch-eventsub-message-id': 'e76c6bd4',
      'twitch-eventsub-subscription-type': 'stream.online',
    },
    sign: ({ body, at, key }) => {
      // With nanoseconds, as Twitch writes it.
      const time = new Date(at).toISOString().replace('Z', '123456Z');
      return {
        'twitch-eventsub-message-timestamp': time,
        'twitch-eventsub-message-signature': `sha256=${hmac(key, `e76c6bd4${time}${body}`).digest('hex')}`,
      };
    },
    type: 'stream.online',
    account: '1337',
    isTimed: true,
  },
  twilio: {
    body: new URLSearchParams({
      To: '+18005551212',
      CallStatus: 'ringing',
      AccountSid: 'AC1',
      Body: 'a b&c+é',
    }),
    sign: ({ body, key, url }) => {
      const fields = [...new URLSearchParams(body)]
        .sort(([a], [b]) => (a < b ? -1 : 1))
        .flat()
        .join('');
      return { 'x-twilio-signature': hmac(key, url + fields, 'sha1').digest('base64') };
    },
    type: 'ringing',
    tag: ['account_sid', 'AC1'],
    status: 204,
  },
  typeform: {
    body: { event_type: 'form_response', form_response: { form_id: 'lT4Z3j' } },
    sign: base64('typeform-signature', 'sha256='),
    type: 'form_response',
    tag: ['form_id', 'lT4Z3j'],
  },
  webex: {
    body: { resource: 'messages', event: 'created', createdBy: 'person-1' },
    sign: hex('x-spark-signature', '', 'sha1'),
    type: 'messages',
    account: 'person-1',
  },
  webflow: {
    body: { triggerType: 'form_submission', payload: { siteId: 's1' } },
    sign: ({ body, at, key }) => ({
      'x-webflow-timestamp': String(at),
      'x-webflow-signature': hmac(key, `${at}:${body}`).digest('hex'),
    }),
    type: 'form_submission',
    tag: ['site_id', 's1'],
    isTimed: true,
  },
  'whatsapp-business': {
    body: { object: 'whatsapp_business_account', entry: [{ id: 'w1', changes: [{ field: 'messages' }] }] },
    sign: hex('x-hub-signature-256', 'sha256='),
    type: 'messages',
    tag: ['waba_id', 'w1'],
  },
  woocommerce: {
    body: { id: 4750 },
    sign: base64('x-wc-webhook-signature'),
    headers: { 'x-wc-webhook-topic': 'order.created', 'x-wc-webhook-source': 'https://shop.example.com/' },
    type: 'order.created',
    tag: ['store', 'https://shop.example.com/'],
  },
  xero: {
    body: { events: [{ eventCategory: 'INVOICE', tenantId: 't1' }] },
    sign: base64('x-xero-signature'),
    type: 'INVOICE',
    tag: ['tenant_id', 't1'],
  },
  zendesk: {
    body: { type: 'zen:event-type:ticket.created', account_id: 22129848 },
    sign: ({ body, at, key }) => {
      const time = new Date(at).toISOString().replace(/\.\d+/, '');
      return {
        'x-zendesk-webhook-signature-timestamp': time,
        'x-zendesk-webhook-signature': hmac(key, time + body).digest('base64'),
      };
    },
    type: 'zen:event-type:ticket.created',
    tag: ['account_id', '22129848'],
    isTimed: true,
  },
  zoom: {
    body: { event: 'meeting.started', payload: { account_id: 'z1' } },
    sign: ({ body, at, key }) => ({
      'x-zm-request-timestamp': seconds(at),
      'x-zm-signature': `v0=${hmac(key, `v0:${seconds(at)}:${body}`).digest('hex')}`,
    }),
    type: 'meeting.started',
    tag: ['account_id', 'z1'],
    isTimed: true,
  },
};
/** Those of test/journeys/webhooks.test.ts: a time in the body, and webhooks without a secret. */
const others = ['linear', 'unauthenticated'];

let bench: WebhookBench;
before(async () => {
  bench = await openWebhookBench();
  bench.provider.certificates.set(certificatePath, certificate.cert);
});
after(() => bench.end());

const send = async (
  provider: string,
  { query = '', ...init }: { method?: string; headers?: Headers; body?: string; query?: string },
) => {
  const answer = await fetch(`${bench.baseUrl}/webhook/dev/${provider}${query}`, {
    method: 'POST',
    ...init,
    headers: { 'content-type': 'application/json', ...init.headers },
  });
  return { status: answer.status, text: await answer.text(), headers: answer.headers };
};
const forwarded = async () => (await bench.events()).filter(({ type }) => type === 'webhook.received');

test('each provider with webhooks is in the table, or extends one with the same webhooks', () => {
  const tested = [...Object.keys(rows), ...others].map((name) => shippedCatalog.get(name).webhook);
  const untested = shippedCatalog
    .list()
    .filter(
      ({ webhook }) => webhook !== undefined && !tested.some((rules) => isDeepStrictEqual(rules, webhook)),
    );
  assert.deepEqual(untested, []);
  assert.ok(tested.every((rules) => rules !== undefined));
});

for (const [provider, row] of Object.entries(rows)) {
  describe(`a webhook of ${provider}`, () => {
    const key = row.key ?? secret;
    const queryOf = (by: string) => {
      const id = row.tag || row.account || row.email ? [] : [`connection_id=connection-of-${provider}`];
      return [...(row.query ? [row.query(by)] : []), ...id]
        .map((part, at) => (at ? '&' : '?') + part)
        .join('');
    };
    const url = `http://localhost/webhook/dev/${provider}${queryOf(key)}`;
    const isForm = row.body instanceof URLSearchParams;
    const body = row.body instanceof URLSearchParams ? row.body.toString() : JSON.stringify(row.body);
    const other = isForm ? `${body}&More=1` : `${body} `;
    const type: Headers = isForm ? { 'content-type': 'application/x-www-form-urlencoded' } : {};
    const signed = (given: Partial<Given> = {}) => {
      const headers = row.sign({ body, at: bench.clock().getTime(), key, url, ...given });
      return { query: queryOf(given.key ?? key), body, headers: { ...type, ...row.headers, ...headers } };
    };
    before(async () => {
      await bench.clear();
      await bench.db.query('delete from integration');
      const tags = row.tag ? { [row.tag[0]]: row.tag[1] } : {};
      const { account = 'somebody', email } = row;
      await bench.integrateFor(provider, { secret: key, account, email, tags });
    });

    test('is accepted once it is proved, and goes to its connection', async () => {
      const right = signed();
      const { status, text } = await send(provider, right);
      assert.equal(status, row.status ?? 200, text);
      const [event, ...more] = await forwarded();
      assert.equal(more.length, 0);
      assert.equal(event?.data.connection_id, `connection-of-${provider}`);
      assert.equal(event?.data.type, row.type ?? null);

      // Repeated by anybody who recorded it.
      assert.equal((await send(provider, right)).status, row.status ?? 200);
      assert.equal((await forwarded()).length, row.isTimed ? 1 : 2);
    });

    test('is refused with another signature, another body, an old time, and the signature of an empty key', async () => {
      const count = (await forwarded()).length;
      const isOfBody = ![...Object.values(row.sign({ body, at: 0, key, url }))].every((value) =>
        Object.values(row.sign({ body: other, at: 0, key, url })).includes(value),
      );
      const isOfKey = row.sign({ body, at: 0, key: '', url });
      const wrong = [
        {
          query: queryOf('another'),
          headers: { ...type, ...row.headers },
          body: body.replaceAll(secret, 'another'),
        },
        ...(isOfBody ? [{ ...signed(), body: other }] : []),
        ...(row.isTimed || row.isOfSender ? [signed({ at: bench.clock().getTime() - 11 * 60_000 })] : []),
        // The key of `discord` and `sendgrid` is public, and signs nothing; a secret in the body has no signature.
        ...(row.isPublic || (Object.keys(isOfKey).length === 0 && !row.query)
          ? []
          : [signed({ key: '' }), signed({ key: Buffer.alloc(key.length, 'x').toString() })]),
      ];
      for (const request of wrong) {
        const { status, text } = await send(provider, request);
        assert.equal(status, 401, `${JSON.stringify(request)}: ${text}`);
        assert.ok(!text.includes(key));
      }
      assert.equal((await forwarded()).length, count);
    });

    test('is refused where no secret is set, also with the signature of an empty key', async () => {
      await bench.clear();
      await bench.db.query('delete from integration');
      await bench.integrateFor(provider, { secret: '', account: 'somebody', tags: {} });
      const empty = { ...signed({ key: '' }), body: body.replaceAll(secret, '') };
      for (const request of [signed(), empty, { query: queryOf(''), headers: type, body }])
        assert.equal((await send(provider, request)).status, 401);
      assert.equal((await forwarded()).length, 0);
    });
  });
}

describe('a test of the address is answered as the provider requires', () => {
  const integrate = (provider: string) => bench.integrateFor(provider, { secret, account: 'a', tags: {} });
  before(async () => {
    await bench.clear();
    await bench.db.query('delete from integration');
  });
  after(async () => assert.equal((await forwarded()).length, 0, 'a test is no webhook'));

  for (const [provider, name] of [
    ['dropbox', 'challenge'],
    ['facebook', 'hub.challenge'],
    ['whatsapp-business', 'hub.challenge'],
  ] as const) {
    test(`${provider}: a query parameter as text`, async () => {
      await integrate(provider);
      const query = `?hub.mode=subscribe&${name}=${encodeURIComponent('<b>1 & 2</b>')}`;
      const answer = await send(provider, { method: 'GET', query });
      assert.deepEqual([answer.status, answer.text], [200, '<b>1 & 2</b>']);
      assert.match(answer.headers.get('content-type') ?? '', /^text\/plain/);
      assert.equal(answer.headers.get('x-content-type-options'), 'nosniff');
      assert.equal((await send(provider, { method: 'GET' })).status, 404);
    });
  }

  for (const provider of ['microsoft-graph', 'outlook']) {
    test(`${provider}: a query parameter of a POST as text`, async () => {
      await integrate(provider);
      const request = { query: '?validationToken=a%20b', headers: { 'content-type': 'text/plain' } };
      const answer = await send(provider, request);
      assert.deepEqual([answer.status, answer.text], [200, 'a b']);
    });
  }

  test('asana and smartsheet: a header', async () => {
    for (const [provider, asked, given] of [
      ['asana', 'x-hook-secret', 'x-hook-secret'],
      ['smartsheet', 'smartsheet-hook-challenge', 'smartsheet-hook-response'],
    ] as const) {
      await integrate(provider);
      const answer = await send(provider, { headers: { [asked]: 'b537207f' }, body: '{}' });
      assert.equal(answer.status, 200);
      assert.equal(answer.headers.get(given), 'b537207f');
    }
  });

  test('monday: a field of an unproved body', async () => {
    await integrate('monday');
    const answer = await send('monday', { body: '{"challenge":"abc"}' });
    assert.deepEqual([answer.status, JSON.parse(answer.text)], [200, { challenge: 'abc' }]);
  });

  test('trello and mailchimp: a GET or HEAD, and woocommerce: an unsigned form', async () => {
    for (const provider of ['trello', 'mailchimp']) {
      await integrate(provider);
      assert.equal((await send(provider, { method: 'HEAD' })).status, 200);
    }
    await integrate('woocommerce');
    const headers = { 'content-type': 'application/x-www-form-urlencoded' };
    assert.equal((await send('woocommerce', { headers, body: 'webhook_id=3' })).status, 200);
  });

  test('zoom, twitch and slack: only with a valid signature, which no other sender learns', async () => {
    for (const [provider, body, answered] of [
      [
        'zoom',
        { event: 'endpoint.url_validation', payload: { plainToken: 'qgg8' } },
        { plainToken: 'qgg8', encryptedToken: hmac(secret, 'qgg8').digest('hex') },
      ],
      ['slack', { type: 'url_verification', challenge: '3eZbr' }, { challenge: '3eZbr' }],
      ['twitch', { challenge: 'pogchamp', subscription: {} }, 'pogchamp'],
    ] as const) {
      await integrate(provider);
      const text = JSON.stringify(body);
      assert.equal((await send(provider, { body: text })).status, 401);
      const row = rows[provider]!;
      const given = { body: text, at: bench.clock().getTime(), key: secret, url: '' };
      const answer = await send(provider, { body: text, headers: { ...row.headers, ...row.sign(given) } });
      assert.equal(answer.status, 200, answer.text);
      assert.deepEqual(typeof answered === 'string' ? answer.text : JSON.parse(answer.text), answered);
    }
  });

  test('a body that takes long to parse is refused before its proof', async () => {
    await integrate('figma');
    const many = await send('figma', { body: `[${'[],'.repeat(60_000)}[]]` });
    assert.equal(many.status, 400, many.text);
    const fields = { 'content-type': 'application/x-www-form-urlencoded' };
    assert.equal((await send('figma', { headers: fields, body: 'a&'.repeat(60_000) })).status, 400);
    const long = JSON.stringify({ challenge: 'abc', more: 'x'.repeat(20_000) });
    assert.equal((await send('monday', { body: long })).status, 401);
  });

  test('front: a header of a signed request, in JSON', async () => {
    await integrate('front');
    const body = '{"type":"sync","authorization":{"id":"cmp_1"}}';
    const headers = { 'x-front-challenge': 'b537207f' };
    assert.equal((await send('front', { body, headers })).status, 401);
    const given = { body, at: bench.clock().getTime(), key: secret, url: '' };
    const answer = await send('front', { body, headers: { ...headers, ...rows.front!.sign(given) } });
    assert.deepEqual([answer.status, JSON.parse(answer.text)], [200, { challenge: 'b537207f' }]);
  });

  test('discord: a signed ping, with 204', async () => {
    await bench.integrateFor('discord', { secret: rows.discord!.key!, account: 'a', tags: {} });
    const body = '{"version":1,"application_id":"1","type":0}';
    assert.equal((await send('discord', { body })).status, 401);
    const given = { body, at: bench.clock().getTime(), key: '', url: '' };
    const answer = await send('discord', { body, headers: rows.discord!.sign(given) });
    assert.deepEqual([answer.status, answer.text], [204, '']);
  });

  test('a provider without such a test has nothing to GET', async () => {
    await integrate('github');
    assert.equal((await send('github', { method: 'GET', query: '?challenge=x' })).status, 404);
  });
});

test('zoom: a value that could be a signed text is not signed', async () => {
  // The test of the address that comes before has made the integration.
  const plainToken = `v0:${seconds(bench.clock().getTime())}:{"event":"meeting.started"}`;
  const text = JSON.stringify({ event: 'endpoint.url_validation', payload: { plainToken } });
  const row = rows.zoom!;
  const given = { body: text, at: bench.clock().getTime(), key: secret, url: '' };
  const answer = await send('zoom', { body: text, headers: { ...row.headers, ...row.sign(given) } });
  assert.deepEqual([answer.status, JSON.parse(answer.text)], [200, { status: 'success' }]);
});

describe('webhooks of one provider in several forms', () => {
  const reset = async (provider: string, of: { secret: string; account?: string; tags?: Headers }) => {
    await bench.clear();
    await bench.db.query('delete from integration');
    await bench.integrateFor(provider, { account: 'somebody', tags: {}, ...of });
  };
  const form = { 'content-type': 'application/x-www-form-urlencoded' };
  const at = () => bench.clock().getTime();
  const typesNow = async () => (await forwarded()).map(({ data }) => [data.connection_id, data.type]);

  test('slack: an interaction in a form and a slash command, with an empty answer', async () => {
    await reset('slack', { secret, tags: { team_id: 'T1' } });
    const payload = JSON.stringify({
      type: 'block_actions',
      team: { id: 'T1' },
      actions: [{ value: 'a&b' }],
    });
    const bodies = [
      new URLSearchParams({ payload }).toString(),
      new URLSearchParams({ team_id: 'T1', command: '/weather', text: 'Kiel' }).toString(),
    ];
    for (const body of bodies) {
      const headers = { ...form, ...rows.slack!.sign({ body, at: at(), key: secret, url: '' }) };
      const answer = await send('slack', { body, headers });
      assert.deepEqual([answer.status, answer.text], [200, '']);
      assert.equal((await send('slack', { body: `${body}&x=1`, headers })).status, 401);
    }
    const broken = 'payload=%7B';
    const headers = { ...form, ...rows.slack!.sign({ body: broken, at: at(), key: secret, url: '' }) };
    assert.equal((await send('slack', { body: broken, headers })).status, 400);
    assert.deepEqual(await typesNow(), [
      ['connection-of-slack', 'block_actions'],
      ['connection-of-slack', '/weather'],
    ]);
  });

  test('github: an organization by its tag, and a form', async () => {
    await reset('github', { secret, account: '7', tags: { organization_id: '99' } });
    const send1 = async (payload: object, isForm: boolean) => {
      const json = JSON.stringify(payload);
      const body = isForm ? new URLSearchParams({ payload: json }).toString() : json;
      const headers = {
        ...(isForm && form),
        'x-github-event': 'organization',
        ...rows.github!.sign({ body, at: 0, key: secret, url: '' }),
      };
      assert.equal((await send('github', { body, headers })).status, 200);
    };
    await send1({ action: 'member_added', organization: { id: 99, login: 'acme' } }, false);
    await send1({ action: 'member_added', organization: { id: 99, login: 'acme' } }, true);
    // Named twice, told once.
    await send1({ repository: { owner: { id: 7 } }, organization: { id: 99 } }, false);
    await send1({ organization: { id: 98 } }, false);
    const told = ['connection-of-github', 'organization'];
    assert.deepEqual(await typesNow(), [told, told, told, [null, 'organization']]);
  });

  test('twilio: JSON by the hash in its address, the usual port, and repeated fields', async () => {
    await reset('twilio', { secret, tags: {} });
    const id = 'connection_id=connection-of-twilio';
    const base = 'http://localhost/webhook/dev/twilio';
    const sign = (text: string) => ({
      'x-twilio-signature': hmac(secret, text, 'sha1').digest('base64'),
    });
    const json = '{"EventType":"onMessageAdded"}';
    const query = `?${id}&bodySHA256=${createHash('sha256').update(json).digest('hex')}`;
    const right = { query, body: json, headers: sign(base + query) };
    assert.equal((await send('twilio', right)).status, 204);
    assert.equal((await send('twilio', { ...right, body: `${json} ` })).status, 401);
    assert.equal(
      (await send('twilio', { query: `?${id}`, body: json, headers: sign(`${base}?${id}`) })).status,
      401,
      'the body is not signed',
    );
    const body = 'b=2&a=1&b=1&b=2';
    const fields = { query: `?${id}`, body, headers: { ...form, ...sign(`${base}?${id}a1b1b2`) } };
    assert.equal((await send('twilio', fields)).status, 204);
    const ported = base.replace('localhost', 'localhost:80');
    const byPort = { ...fields, headers: { ...form, ...sign(`${ported}?${id}a1b1b2`) } };
    assert.equal((await send('twilio', byPort)).status, 204);
    assert.equal(
      (await send('twilio', { query: `?${id}`, body: 'a&'.repeat(60_000), headers: form })).status,
      400,
    );
  });

  test('paypal: only a certificate at the fixed address proves anything, and no second body is accepted', async () => {
    const { key = '' } = rows.paypal!;
    await reset('paypal', { secret: key, tags: { merchant_id: 'MERCHANT1' } });
    const body = JSON.stringify(rows.paypal!.body);
    const foreign = makeSelfSigned();
    const foreignPath = '/v1/notifications/certs/FOREIGN';
    bench.provider.certificates.set(foreignPath, foreign.cert);
    bench.provider.certificates.set('/other/CERT', certificate.cert);
    const sign = () => ({ ...rows.paypal!.headers, ...rows.paypal!.sign({ body, at: at(), key, url: '' }) });
    for (const url of [
      'https://api.paypal.com.example.com/v1/notifications/certs/CERT-360caa42',
      'https://api.paypal.com@example.com/v1/notifications/certs/CERT-360caa42',
      `http://api.paypal.com${certificatePath}`,
      'https://api.paypal.com/v1/notifications/certs/../../../other/CERT',
      'https://api.paypal.com/v1/notifications/certs/..%2f..%2fother%2fCERT',
      `https://api.paypal.com${certificatePath}?x=1`,
      'https://api.paypal.com/other/CERT',
      `https://api.paypal.com${foreignPath}`,
      '',
    ])
      assert.equal(
        (await send('paypal', { body, headers: { ...sign(), 'paypal-cert-url': url } })).status,
        401,
        url,
      );
    const right = { body, headers: sign() };
    assert.equal((await send('paypal', right)).status, 200);
    // Another body of the same checksum, with the recorded signature.
    const forged = { body: withChecksum(crc32(body)).toString(), headers: right.headers };
    assert.equal(crc32(forged.body), crc32(body));
    assert.equal((await send('paypal', forged)).status, 200);
    assert.equal((await forwarded()).length, 1, 'the second body has no effect');
    // Any sender can name certificates: a few are read in a minute, and then none.
    const statuses = new Set<number>();
    for (let count = 0; count < 40; count++) {
      const url = `https://api.paypal.com/v1/notifications/certs/NONE-${count}`;
      const answer = await send('paypal', { body, headers: { ...sign(), 'paypal-cert-url': url } });
      statuses.add(answer.status);
    }
    assert.deepEqual([...statuses].sort(), [401, 503]);
    // However many of them they name, and for however long, the certificate that was read is not lost.
    for (let minute = 0; minute < 7; minute++) {
      bench.advance(minute === 6 ? 3600_000 : 61_000);
      for (let count = 0; count < 21; count++) {
        const url = `https://api.paypal.com/v1/notifications/certs/MORE-${minute}-${count}`;
        await send('paypal', { body, headers: { ...sign(), 'paypal-cert-url': url } });
      }
      const { status, text } = await send('paypal', { body, headers: sign() });
      assert.equal(status, 200, `minute ${minute}: ${text}`);
    }
    bench.advance(2 * 86_400_000);
    assert.equal(
      (await send('paypal', { body, headers: sign() })).status,
      401,
      'the certificate has expired',
    );
  });

  test("gmail: only a valid token of the subscription's service account", async () => {
    await reset('google-mail', { secret: pushAccount });
    const url = 'http://localhost/webhook/dev/google-mail';
    const body = JSON.stringify(rows['google-mail']!.body);
    const given = { body, at: at(), key: pushAccount, url };
    const tokens = [
      pushToken(given, { aud: 'https://another.example/webhook' }),
      pushToken(given, { email_verified: false }),
      pushToken(given, { email: 'other@project-1.iam.gserviceaccount.com' }),
      pushToken(given, { iss: 'https://issuer.example' }),
      pushToken(given, { exp: Math.floor(at() / 1000) - 120 }),
      pushToken(given).replace(/[^.]+$/, Buffer.alloc(256, 1).toString('base64url')),
      `${base64url({ alg: 'none' })}.${pushToken(given).split('.')[1]}.`,
      '',
    ];
    for (const token of tokens)
      assert.equal(
        (await send('google-mail', { body, headers: { authorization: `Bearer ${token}` } })).status,
        401,
      );
    const answer = await send('google-mail', {
      body,
      headers: { authorization: `Bearer ${pushToken(given)}` },
    });
    assert.equal(answer.status, 204);
  });

  test('gmail: a token that does not name its key is refused if the issuer has several', async (t) => {
    await reset('google-mail', { secret: pushAccount });
    const { keys, state } = bench.provider;
    state.served = [keys.own, { ...keys.next, jwk: { ...keys.next.jwk, kid: 'next' } }];
    t.after(() => {
      state.served = [keys.own];
    });
    const body = JSON.stringify(rows['google-mail']!.body);
    const statusOf = async (head: object) => {
      const given = { body, at: at(), key: pushAccount, url: 'http://localhost/webhook/dev/google-mail' };
      const headers = { authorization: `Bearer ${pushTokenOf(given, { head })}` };
      return (await send('google-mail', { body, headers })).status;
    };
    // An unknown key makes the service read the keys again.
    bench.advance(61_000);
    assert.equal(await statusOf({ kid: 'unknown' }), 401);
    assert.equal(await statusOf({}), 401);
    assert.equal(await statusOf({ kid: 'own' }), 204);
  });
});

/** JSON for a connection of the merchant, with bytes in a text that give it this CRC-32. */
function withChecksum(wanted: number): Buffer {
  const head = Buffer.from('{"event_type":"FORGED","resource":{"payee":{"merchant_id":"MERCHANT1"}}}');
  const spaces = [0x20, 0x09, 0x0a, 0x0d];
  // CRC-32 is linear: 32 independent choices between two kinds of white space reach each checksum.
  const of = (choice: bigint) => {
    const pad = Buffer.alloc(64, spaces[0]!);
    for (let bit = 0; bit < 64; bit++) if ((choice >> BigInt(bit)) & 1n) pad[bit] = spaces[1]!;
    return Buffer.concat([head, pad]);
  };
  const zero = crc32(of(0n));
  let target = (zero ^ wanted) >>> 0;
  const rows = Array.from({ length: 64 }, (_, bit) => ({
    value: (crc32(of(1n << BigInt(bit))) ^ zero) >>> 0,
    choice: 1n << BigInt(bit),
  }));
  let choice = 0n;
  for (let bit = 31; bit >= 0; bit--) {
    const at = rows.findIndex(({ value }) => value >>> bit === 1);
    if (at < 0) {
      assert.ok(!((target >>> bit) & 1), 'the choices do not reach this checksum');
      continue;
    }
    const [pivot] = rows.splice(at, 1);
    for (const row of rows)
      if ((row.value >>> bit) & 1) {
        row.value = (row.value ^ pivot!.value) >>> 0;
        row.choice ^= pivot!.choice;
      }
    if ((target >>> bit) & 1) {
      target = (target ^ pivot!.value) >>> 0;
      choice ^= pivot!.choice;
    }
  }
  return of(choice);
}
