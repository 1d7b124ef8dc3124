/** The routes of the application: its page, the API of the page, and the endpoint for Trellis events. */
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import cookie from '@fastify/cookie';
import statics from '@fastify/static';
import { isTrellisError, verifyEvent } from '@trellis-run/client';
import fastify, { type FastifyInstance, type FastifyRequest } from 'fastify';
import type { Live } from './live.ts';
import { Refusal, type Sheets, words } from './sheets.ts';
import type { Store } from './store.ts';

type Parts = {
  sheets: Sheets;
  store: Store;
  live: Live;
  trellisUrl: string;
  cookieSecret: string;
  /** The key with which Trellis signs events. */
  signingKey: string;
};

const texts = { type: 'object', additionalProperties: { type: 'string', maxLength: 5_000 } };
const takes = (properties: Record<string, object>) => ({
  schema: { body: { type: 'object', properties, required: Object.keys(properties) } },
});

export async function createServer(parts: Parts): Promise<FastifyInstance> {
  const { sheets, store, live, trellisUrl, cookieSecret } = parts;
  const app = fastify({ logger: { level: 'warn' } });
  await app.register(cookie, { secret: cookieSecret });
  await app.register(statics, { root: fileURLToPath(new URL('./page', import.meta.url)) });
  // The browser part of the installed client.
  const client = dirname(fileURLToPath(import.meta.resolve('@trellis-run/client/connect')));
  await app.register(statics, { root: client, prefix: '/trellis-client/', decorateReply: false });

  app.addHook('onSend', async (_, reply) => {
    reply.header('x-content-type-options', 'nosniff');
    reply.header(
      'content-security-policy',
      // The page requests the state of a connect session from Trellis.
      `default-src 'self'; connect-src 'self' ${new URL(trellisUrl).origin}; frame-ancestors 'none'`,
    );
  });
  app.setErrorHandler((error: Error & { statusCode?: number }, request, reply) => {
    const isUnreached = isTrellisError(error, 'network_error', 'timeout');
    const isAsked = error instanceof Refusal || isTrellisError(error);
    const status = isUnreached ? 503 : isAsked ? 409 : (error.statusCode ?? 500);
    if (status >= 500) request.log.error(error);
    return reply.code(status).send({ message: status < 500 && !isAsked ? error.message : words(error) });
  });

  app.get('/me', async (request) => ({ person: personOf(request) ?? null, trellisUrl }));

  // The sign-in of an example: it accepts any name. A real application requires a proof.
  const name = { type: 'string', pattern: '^\\S(.{0,38}\\S)?$' };
  app.post<{ Body: { name: string } }>('/sign-in', takes({ name }), async (request, reply) => {
    live.end(personOf(request) ?? '');
    reply.setCookie('person', request.body.name, {
      signed: true,
      httpOnly: true,
      sameSite: 'lax',
      path: '/',
    });
    return {};
  });

  await app.register(async (signedIn) => {
    const me = (request: FastifyRequest) => personOf(request) as string;
    signedIn.addHook('preHandler', async (request, reply) => {
      if (personOf(request) === undefined) return reply.code(401).send({ message: 'Sign in first.' });
      // A page sends the user that it was rendered for. Its browser may be signed in as another user since.
      const { person } = request.query as { person?: string };
      const message = 'You are now signed in as another user. Reload this page.';
      if (person !== me(request)) return reply.code(409).send({ message });
    });

    signedIn.post('/sign-out', async (request, reply) => {
      live.end(me(request));
      reply.clearCookie('person', { path: '/' });
      return {};
    });
    signedIn.get('/live', (request, reply) => {
      const account = store.accountOf(me(request)) ?? null;
      const rows = account === null ? [] : store.rows(account.connectionId);
      reply.type('text/event-stream').header('cache-control', 'no-store');
      return reply.send(live.open(me(request), { account, rows }));
    });
    signedIn.post('/session', async (request) => ({ token: await sheets.session(me(request)) }));
    signedIn.post('/read', async (request) => {
      await sheets.read(me(request));
      return {};
    });
    signedIn.post<{ Body: { values: Record<string, string> } }>(
      '/rows',
      takes({ values: texts }),
      async (request) => {
        await sheets.append(me(request), request.body.values);
        return {};
      },
    );
    signedIn.patch<{ Body: { id: string; values: Record<string, string> } }>(
      '/rows',
      takes({ id: { type: 'string' }, values: texts }),
      async (request) => {
        await sheets.change(me(request), request.body);
        return {};
      },
    );
    signedIn.delete('/account', async (request) => {
      await sheets.disconnect(me(request));
      return {};
    });
  });
  await app.register((events) => takeEvents(events, parts));
  return app;
}

/** The endpoint for Trellis events. Trellis retries a delivery without a 2xx response for three days. */
async function takeEvents(app: FastifyInstance, { sheets, signingKey }: Parts): Promise<void> {
  // The signature covers the raw bytes of the body.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (_, body, done) => done(null, body));
  app.post<{ Body: Buffer }>('/trellis/events', async (request, reply) => {
    try {
      await sheets.hear(await verifyEvent(request.body, request.headers, signingKey));
    } catch (error) {
      if (!isTrellisError(error, 'invalid_signature', 'stale_signature')) throw error;
      return reply.code(401).send({ message: error.message });
    }
    return reply.code(204).send();
  });
}

function personOf({ cookies, unsignCookie }: FastifyRequest): string | undefined {
  const signed = cookies.person === undefined ? undefined : unsignCookie(cookies.person);
  return signed?.valid ? signed.value : undefined;
}
