import assert from 'node:assert/strict';
import { setTimeout as pause } from 'node:timers/promises';
import { Nango } from '@nangohq/node';
import { placeAll } from '../../../server/db/sequencer.ts';
import { openReceiver, type Received, type Receiver } from '../../../server/deliveries/deliveries.fixture.ts';
import { eventSequence } from '../../../server/events/sequence.ts';
import { type MethodTests, type NodeSubject, refusal } from './subject.ts';

/** What an application does with the events that it is sent. */
export const webhookMethods: MethodTests = {
  async verifyIncomingWebhookRequest(subject) {
    await withEvent(subject, ({ body, headers }, { secret, client }) => {
      assert.equal(client.verifyIncomingWebhookRequest(body, headers), true);
      assert.equal(client.verifyIncomingWebhookRequest(`${body} `, headers), false);
      assert.equal(client.verifyIncomingWebhookRequest(body, {}), false);
      const other = new Nango({ apiKey: 'the key', webhookSigningKey: `${secret}0` });
      assert.equal(other.verifyIncomingWebhookRequest(body, headers), false);
      const { from, type, operation, success, connectionId, endUser } = JSON.parse(body) as {
        [name: string]: unknown;
      };
      assert.deepEqual(
        [from, type, operation, success, connectionId, endUser],
        ['nango', 'auth', 'creation', true, 'b-key', undefined],
      );
    });
  },

  async verifyWebhookSignature(subject) {
    await withEvent(subject, ({ body, headers }, { client }) => {
      const signature = String(headers['x-nango-signature']);
      assert.equal(client.verifyWebhookSignature(signature, JSON.parse(body)), true);
      assert.equal(client.verifyWebhookSignature(signature, {}), false);
    });
  },
};

/** Has a connection made, and shows what the application is sent of it. The client has the signing key. */
async function withEvent(
  { client, trellis, privatePlace, answered }: NodeSubject,
  look: (event: Received, by: { secret: string; client: Nango }) => void,
): Promise<void> {
  const receiver = await openReceiver();
  try {
    // What came before there was anybody to tell.
    await placeAll(trellis.db, eventSequence);
    const body = { webhook_url: receiver.url };
    assert.equal((await trellis.call('PATCH', '/environment/settings', { body })).status, 200);
    const key = await trellis.call('GET', '/environment/webhook-signing-key');
    const { webhook_signing_key: secret } = key.body.data as { webhook_signing_key: string };
    const { providerConfigKey } = privatePlace;
    await trellis.call('POST', '/connections', {
      body: {
        provider_config_key: providerConfigKey,
        connection_id: 'b-key',
        credentials: { type: 'API_KEY', apiKey: 'another key' },
      },
    });
    await placeAll(trellis.db, eventSequence);
    const event = await first(receiver);
    const verifier = new Nango({ apiKey: trellis.keys.dev, webhookSigningKey: secret });
    look(event, {
      secret,
      client: new Proxy(verifier, {
        get: (target, name) => {
          answered.add(String(name));
          return Reflect.get(target, name);
        },
      }),
    });
    await client.deleteConnection(providerConfigKey, 'b-key');
    assert.deepEqual(await refusal(client.getConnection(providerConfigKey, 'b-key')), [404, 'not_found']);
  } finally {
    await trellis.call('PATCH', '/environment/settings', { body: { webhook_url: null } });
    await receiver.close();
  }
}

async function first(receiver: Receiver): Promise<Received> {
  for (let left = 400; left > 0; left--) {
    const [event] = receiver.got;
    if (event !== undefined) return event;
    await pause(25);
  }
  throw new Error('no event came');
}
