import type { FastifyReply, FastifyRequest } from 'fastify';
import type { ZodTypeProvider } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { getEnvironment } from '../environments/store.ts';
import { AppError } from '../errors.ts';
import type { App } from '../http/server.ts';
import { getIntegration, type Integration } from '../integrations/store.ts';
import { integrationKey } from '../integrations/wire.ts';
import { isChannelMessage, receiveMessage } from './channel-notice.ts';
import { createIntake } from './intake.ts';
import { type ReceiveDeps, receive } from './receive.ts';
import { createVerifier } from './security-event-token.ts';
import { actOn, type SecurityEventDeps } from './security-events.ts';

/**
 * What providers send us, at an integration's webhook address.
 *
 * Owns: who may knock and how it is answered; how many at a time, `intake.ts`. Of three kinds: signed security events, which `security-event-token.ts` judges and
 * `security-events.ts` acts upon; messages of push channels (`channel-notice.ts`); and whatever else a provider tells, which
 * `receive.ts` judges and hands on.
 */
const maxBytes = 4 * 1024 * 1024;
const maxEventBytes = 64 * 1024;
const eventType = 'application/secevent+jwt';

/**
 * Security events are answered as RFC 8935 says: 202 with nothing, or 400 with `{err, description}`. Other webhooks: 200
 * once what follows from them is stored.
 */
export async function webhookRoutes(
  app: App,
  { receiving, ...deps }: SecurityEventDeps & { receiving: ReceiveDeps },
): Promise<void> {
  const { db, reading, log } = deps;
  const verifier = createVerifier(deps);
  const intake = createIntake();
  await app.register(async (scope) => {
    // A signature is over the bytes as they came.
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
          summary: 'Take what a provider sends',
          description:
            `A webhook in the provider's own form, proved by the provider's signature, or a signed security event token ` +
            `(RFC 8417) as ${eventType}, pushed as RFC 8935 says.`,
          errors: ['not_found', 'unknown_provider_config', 'webhook_refused'],
          params: z.object({ environment: z.string().min(1).max(64), key: integrationKey }),
          accepts: {
            [eventType]: { schema: { type: 'string' }, example: 'eyJ...' },
            'application/json': { schema: {}, example: { kind: 'change' } },
            'application/x-www-form-urlencoded': { schema: { type: 'object' }, example: { kind: 'change' } },
          },
          answers: {
            200: { description: 'What follows from the webhook is stored.' },
            202: { description: 'The security event is stored.' },
            400: {
              description: 'A security event was refused (RFC 8935 §2.3).',
              type: 'application/json',
              schema: { type: 'object', required: ['err', 'description'] },
              example: { err: 'invalid_request', description: 'This is no security event token (RFC 8417).' },
            },
          },
        },
      },
      async (request, reply) => {
        const integration = await intake.during(() => integrationOf(request.params));
        return take(request, reply, integration);
      },
    );
  });

  async function integrationOf({ environment, key }: { environment: string; key: string }) {
    const { id: environmentId } = await getEnvironment(db, environment);
    return getIntegration(db, { ...reading, environmentId, key });
  }

  async function take(request: FastifyRequest, reply: FastifyReply, integration: Integration) {
    const { headers } = request;
    const body = bodyOf(request);
    if (isChannelMessage(integration, headers))
      return intake.during(() => receiveMessage(receiving, { integration, headers }));
    if (headers['content-type']?.split(';', 1)[0]?.trim().toLowerCase() !== eventType)
      return intake.during(() => receive(receiving, { integration, sent: { headers, body } }));
    if (body.length > maxEventBytes) throw new AppError('body_too_large');
    const { rules, clientId } = receptionOf(integration);
    const token = body.toString('utf8').trim();
    const judged = await verifier.verify(token, { rules, clientId, isTest: integration.isTest });
    if (!judged.ok) {
      const { err, description } = judged;
      log.warn({ integration: integration.key, refused: err }, 'a security event was refused');
      return reply.code(400).header('content-language', 'en').send({ err, description });
    }
    await actOn(deps, { token: judged.token, integration, rules });
    return reply.code(202).send();
  }
}

function bodyOf({ body }: FastifyRequest): Buffer {
  return Buffer.isBuffer(body) ? body : Buffer.alloc(0);
}

/** Throws `not_found` where the integration's provider sends no security events, or none to us. */
function receptionOf({ provider, client }: Integration) {
  const rules = provider.security_events;
  if (rules === undefined || client === undefined) {
    throw new AppError('not_found', `${provider.display_name} sends no security events to this integration.`);
  }
  return { rules, clientId: client.clientId };
}
