/**
 * The webhook address of an integration, at which providers send.
 *
 * Owns: the responses, and the limits for senders, since any sender may call the address and a body is read before it is
 * verified. There are three kinds of requests: signed security events, which `security-events/security-event-token.ts`
 * verifies and `security-events/security-events.ts` applies; messages of push channels (`channels/channel-messages.ts`); and
 * all other webhooks (`inbound/receive.ts`).
 */
import type { FastifyReply, FastifyRequest, preParsingHookHandler } from 'fastify';
import type { ZodTypeProvider } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { limitConcurrency } from '../concurrency.ts';
import { getEnvironment } from '../environments/store.ts';
import { AppError } from '../errors.ts';
import { BodyBudget, holdIn } from '../http/limits/body-memory.ts';
import type { App } from '../http/server.ts';
import { getIntegration, type Integration } from '../integrations/store.ts';
import { integrationKey } from '../integrations/wire.ts';
import { channelMessageKind, receiveChannelWebhook, receiveMessage } from './channels/channel-messages.ts';
import { createPublishedKeys } from './inbound/published-keys.ts';
import { type ReceiveDeps, receive, receiveTest, type WebhookAnswer } from './inbound/receive.ts';
import type { Sent } from './inbound/signature.ts';
import { createVerifier } from './security-events/security-event-token.ts';
import { actOn, recheck, type SecurityEventDeps } from './security-events/security-events.ts';

const maxBytes = 4 * 1024 * 1024;
const maxEventBytes = 64 * 1024;
const eventType = 'application/secevent+jwt';
/** The maximum total size of the bodies that have arrived and are not small. */
const maxHeldBytes = 64 * 1024 * 1024;
/** A body that is not small must arrive within this time. */
const arrivalMs = 30_000;
/** The maximum number of connections to the database: other calls need them too. */
const maxAtOnce = 4;
const maxWaiting = 500;

/**
 * A security event is answered by RFC 8935: 202 without a body, or 400 with `{err, description}`. Any other webhook is
 * answered with 200 when its effects are stored.
 */
export async function webhookRoutes(
  app: App,
  {
    receiving: given,
    webhookBaseUrl,
    ...deps
  }: SecurityEventDeps & {
    receiving: Omit<ReceiveDeps, 'keys' | 'recheck'>;
    webhookBaseUrl: string;
    now: () => Date;
  },
): Promise<void> {
  const { db, reading, log } = deps;
  const verifier = createVerifier(deps);
  const receiving: ReceiveDeps = {
    ...given,
    keys: createPublishedKeys(deps),
    recheck: (connection) => recheck(deps, connection),
  };
  const intake = createIntake();
  await app.register(async (scope) => {
    // Signatures are verified over the received bytes.
    scope.removeAllContentTypeParsers();
    const parse = { parseAs: 'buffer', bodyLimit: maxBytes } as const;
    scope.addContentTypeParser('*', parse, (_request, body, done) => done(null, body));
    scope.withTypeProvider<ZodTypeProvider>().post(
      '/webhook/:environment/:key',
      {
        config: { access: { by: 'anyone', isLimited: false } },
        bodyLimit: maxBytes,
        preParsing: intake.admit,
        schema: {
          operationId: 'receiveWebhook',
          summary: 'Receive a webhook or a security event of a provider',
          description:
            "A webhook in the provider's format, verified by the provider's signature, or a signed security event token (RFC " +
            `8417) as ${eventType}, pushed as described in RFC 8935.`,
          errors: ['not_found', 'unknown_provider_config', 'webhook_refused'],
          params: address,
          accepts: {
            [eventType]: { schema: { type: 'string' }, example: 'eyJ...' },
            'application/json': { schema: {}, example: { kind: 'change' } },
            'application/x-www-form-urlencoded': { schema: { type: 'object' }, example: { kind: 'change' } },
          },
          answers: {
            200: { description: 'The results of the webhook are stored.' },
            202: { description: 'The security event is stored.' },
            400: {
              description: 'A security event was refused (RFC 8935 §2.3).',
              type: 'application/json',
              schema: { type: 'object', required: ['err', 'description'] },
              example: { err: 'invalid_request', description: 'Not a security event token (RFC 8417).' },
            },
          },
        },
      },
      async (request, reply) => {
        const integration = await intake.during(() => integrationOf(request.params));
        return take(request, reply, integration);
      },
    );
    scope.withTypeProvider<ZodTypeProvider>().get(
      '/webhook/:environment/:key',
      {
        config: { access: { by: 'anyone', isLimited: false } },
        schema: { hide: true, params: address },
      },
      async (request, reply) => {
        const integration = await intake.during(() => integrationOf(request.params));
        return write(reply, receiveTest({ integration, sent: sentIn(request) }));
      },
    );
  });

  /** Signatures of some providers include the address that they were given, whatever the host that the proxy sends. */
  function sentIn({ headers, body, url }: FastifyRequest): Sent {
    return { headers, body: Buffer.isBuffer(body) ? body : Buffer.alloc(0), url: webhookBaseUrl + url };
  }

  async function integrationOf({ environment, key }: { environment: string; key: string }) {
    const { id: environmentId } = await getEnvironment(db, environment);
    return getIntegration(db, { ...reading, environmentId, key });
  }

  async function take(request: FastifyRequest, reply: FastifyReply, integration: Integration) {
    const sent = sentIn(request);
    const { headers, body } = sent;
    const kind = channelMessageKind(integration, sent);
    if (kind === 'empty') return intake.during(() => receiveMessage(receiving, { integration, headers }));
    if (kind === 'webhook')
      return write(reply, await intake.during(() => receiveChannelWebhook(receiving, { integration, sent })));
    if (headers['content-type']?.split(';', 1)[0]?.trim().toLowerCase() !== eventType)
      return write(reply, await intake.during(() => receive(receiving, { integration, sent })));
    if (body.length > maxEventBytes) throw new AppError('body_too_large');
    const { rules, clientId } = receptionOf(integration);
    const token = body.toString('utf8').trim();
    const judged = await verifier.verify(token, { rules, clientId, isTest: integration.isTest });
    if (!judged.ok) {
      const { err, description } = judged;
      log.warn({ integration: integration.key, refused: err }, 'a security event was rejected');
      return reply.code(400).header('content-language', 'en').send({ err, description });
    }
    await actOn(deps, { token: judged.token, integration, rules });
    return reply.code(202).send();
  }
}

const address = z.object({ environment: z.string().min(1).max(64), key: integrationKey });

/** A text is what the sender chose, so a browser must not take it for a page. */
function write(reply: FastifyReply, { status, headers = {}, body }: WebhookAnswer) {
  reply.code(status).headers({ ...headers, 'x-content-type-options': 'nosniff' });
  if (typeof body === 'string') reply.type('text/plain; charset=utf-8');
  return reply.send(body);
}

/** Throws `not_found` if the provider sends no security events to the integration. */
function receptionOf({ provider, client }: Integration) {
  const rules = provider.security_events;
  if (rules === undefined || client === undefined) {
    throw new AppError('not_found', `${provider.display_name} sends no security events to this integration.`);
  }
  return { rules, clientId: client.clientId };
}

/** Limits what a node reads and stores of webhooks at once, so that they do not delay other calls. */
function createIntake() {
  const inTurn = limitConcurrency(maxAtOnce);
  const budget = new BodyBudget(maxHeldBytes);
  let inside = 0;

  /** Runs before the body is read. Refuses with `unavailable` (503). */
  const admit: preParsingHookHandler = (request, reply, payload, done) => {
    const { raw } = request;
    holdIn([budget], { request, reply, payload, refusal: full }, (error, body) => {
      if (body !== undefined) {
        const timer = setTimeout(() => raw.destroy(), arrivalMs);
        const clear = () => clearTimeout(timer);
        raw.once('end', clear);
        reply.raw.once('close', clear);
      }
      done(error, body);
    });
  };

  return {
    admit,
    /** Runs the work of a webhook, `maxAtOnce` at a time. Throws `unavailable` (503) if too many wait. */
    async during<T>(work: () => Promise<T>): Promise<T> {
      if (inside >= maxAtOnce + maxWaiting) throw full();
      inside += 1;
      return inTurn(work).finally(() => {
        inside -= 1;
      });
    },
  };
}

const full = () =>
  new AppError('unavailable', 'Too many webhooks arrive at the same time.', { retryAfterS: 1 });
