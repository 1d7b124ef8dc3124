/** Control routes about security events: send one by hand, and say who is told by itself. */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { RECEIVER_LIMIT } from '../receivers.ts';
import { type Delivery, EVENT_TYPES, type EventType, isLoopback } from '../security-events.ts';
import { ControlError, readBody } from './answer.ts';
import { type ControlRoute, getAccount, getClient, timeToWire } from './parts.ts';

const RECEIVER = z.string().max(2000).refine(isLoopback, 'must be an address of this machine');
const EVENT = z.strictObject({
  account: z.string(),
  client_id: z.string().optional(),
  type: z.enum(Object.keys(EVENT_TYPES) as [EventType, ...EventType[]]),
  receiver: RECEIVER,
  fake_signature: z.boolean().optional(),
  audience: z.string().min(1).max(200).optional(),
  jti: z.string().min(1).max(200).optional(),
  reason: z.string().min(1).max(200).optional(),
  state: z.string().min(1).max(200).optional(),
  refresh_token: z.string().min(1).max(512).optional(),
});
const REGISTRATION = z.strictObject({ client_id: z.string().optional(), url: RECEIVER });

export const EVENT_ROUTES: Record<string, ControlRoute> = {
  'POST /security-events': async (request, { accounts, clients, securityEvents }) => {
    const body = readBody(request, EVENT);
    const clientId = getClient(body.client_id ?? clients.builtIn().clientId, clients).clientId;
    const { type, audience, jti, receiver } = body;
    const event = {
      type,
      clientId,
      sub: getAccount(body.account, accounts).sub,
      audience,
      jti,
      fields: fieldsOf(body),
    };
    const delivery =
      body.fake_signature === true
        ? await securityEvents.sendForged(event, receiver)
        : await securityEvents.send(event, receiver);
    return deliveryToWire(delivery);
  },

  'GET /receivers': (_request, { receivers, securityEvents }) => ({
    receivers: receivers.list().map(({ clientId, url }) => ({ client_id: clientId, url })),
    deliveries: securityEvents.listDeliveries().map(deliveryToWire),
  }),

  'POST /receivers': async (request, { clients, receivers, save }) => {
    const { url, client_id: clientId = clients.builtIn().clientId } = readBody(request, REGISTRATION);
    getClient(clientId, clients);
    if (receivers.list().length >= RECEIVER_LIMIT) {
      throw new ControlError(400, 'limit_reached', `url: there are ${RECEIVER_LIMIT} receivers already`);
    }
    receivers.add({ clientId, url });
    await save();
    return { client_id: clientId, url };
  },

  'DELETE /receivers': async (request, { clients, receivers, save }) => {
    const clientId = request.query.get('client_id') ?? clients.builtIn().clientId;
    const isRemoved = receivers.remove({ clientId, url: request.query.get('url') ?? '' });
    await save();
    return { removed: isRemoved ? 1 : 0 };
  },
};

/** What became of a security event, on the wire. */
export function deliveryToWire({ receiver, type, jti, status, at }: Delivery) {
  return { receiver, type, jti, status, at: timeToWire(at) };
}

// A single token is named by a hash of it, so that the event does not carry it:
// https://developers.google.com/identity/protocols/risc, "token-revoked".
function fieldsOf(body: z.infer<typeof EVENT>): Record<string, unknown> {
  const sha512 = (text: string | Buffer) => createHash('sha512').update(text).digest();
  const { reason, state, refresh_token: token } = body;
  return {
    ...(reason === undefined ? {} : { reason }),
    ...(state === undefined ? {} : { state }),
    ...(token === undefined
      ? {}
      : {
          subject: {
            subject_type: 'oauth_token',
            token_type: 'refresh_token',
            token_identifier_alg: 'hash_base64_sha512_sha512',
            token: sha512(sha512(token)).toString('base64'),
          },
        }),
  };
}
