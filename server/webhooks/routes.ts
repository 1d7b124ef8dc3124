import type { ZodTypeProvider } from 'fastify-type-provider-zod';
import { z } from 'zod';
import { getEnvironment } from '../environments/store.ts';
import { AppError } from '../errors.ts';
import type { App } from '../http/server.ts';
import { getIntegration, type Integration } from '../integrations/store.ts';
import { integrationKey } from '../integrations/wire.ts';
import { actOn, type SecurityEventDeps } from './security-events.ts';
import { createVerifier } from './verify.ts';

/**
 * What providers send us, at an integration's webhook address.
 *
 * Owns: who may knock and how it is answered. Does not own: whether it is believed (`verify.ts`), what it does
 * (`security-events.ts`).
 */
const mostBytes = 64 * 1024;
const mediaType = 'application/secevent+jwt';

/** Security events pushed as RFC 8935 says: 202 with nothing, or 400 with `{err, description}`. */
export async function webhookRoutes(app: App, deps: SecurityEventDeps): Promise<void> {
  const { db, reading, log } = deps;
  const verifier = createVerifier(deps);
  await app.register(async (scope) => {
    const parse = { parseAs: 'string', bodyLimit: mostBytes } as const;
    scope.addContentTypeParser(mediaType, parse, (_request, body, done) => done(null, body));
    scope.withTypeProvider<ZodTypeProvider>().post(
      '/webhook/:environment/:key',
      {
        config: { access: { by: 'anyone' } },
        schema: {
          summary: 'Take a security event from a provider',
          description: `A signed security event token (RFC 8417) as ${mediaType}, pushed as RFC 8935 says.`,
          params: z.object({ environment: z.string().min(1).max(64), key: integrationKey }),
          consumes: [mediaType],
        },
      },
      async ({ params, body }, reply) => {
        if (typeof body !== 'string') {
          throw new AppError(
            'invalid_content_type',
            `Send a security event as \`Content-Type: ${mediaType}\`.`,
          );
        }
        const environment = await getEnvironment(db, params.environment);
        const integration = await getIntegration(db, {
          ...reading,
          environmentId: environment.id,
          key: params.key,
        });
        const { rules, clientId } = receptionOf(integration);
        const judged = await verifier.verify(body.trim(), { rules, clientId, isTest: integration.isTest });
        if (!judged.ok) {
          const { err, description } = judged;
          log.warn({ integration: integration.key, refused: err }, 'a security event was refused');
          return reply.code(400).header('content-language', 'en').send({ err, description });
        }
        await actOn(deps, { token: judged.token, integration, rules });
        return reply.code(202).send();
      },
    );
  });
}

/** Throws `not_found` where the integration's provider sends no security events, or none to us. */
function receptionOf({ provider, client }: Integration) {
  const rules = provider.security_events;
  if (rules === undefined || client === undefined) {
    throw new AppError('not_found', `${provider.display_name} sends no security events to this integration.`);
  }
  return { rules, clientId: client.clientId };
}
