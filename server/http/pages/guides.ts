import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { FastifyReply } from 'fastify';
import type { App } from '../server.ts';

/**
 * The guides at `/guides`: documents that the build of `web/` has made of `docs/`. Their scripts and styles are files, so no
 * document has a nonce, and browsers keep them by their ETag.
 */
const headers = {
  'content-security-policy': [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "form-action 'none'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
  ].join('; '),
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
};

/** `directory` may appear while the service runs. */
export function guideRoutes(
  app: App,
  {
    directory,
    baseUrl,
    sendProgress,
  }: { directory: string; baseUrl: string; sendProgress: (reply: FastifyReply) => FastifyReply },
): void {
  const config = { access: { by: 'anyone', isLimited: false } } as const;
  const schema = { hide: true };
  const exists = (file: string) =>
    stat(join(directory, file)).then(
      (found) => found.isFile(),
      () => false,
    );
  const send = async (reply: FastifyReply, path: string) => {
    if (!(await exists('index.html'))) return sendProgress(reply);
    // Plain names only: no `..`, and no name with a special meaning for a file system.
    const isPlain = /^[\w-]+(\/[\w-]+)*(\.(md|json|yaml))?$/.test(path);
    const file = path.includes('.') ? path : `${path}.html`;
    const isFound = isPlain && (await exists(file));
    reply.headers(headers).code(isFound ? 200 : 404);
    return reply.sendFile(isFound ? file : 'not-found.html', directory, { maxAge: 0 });
  };
  app.get('/guides', { config, schema }, (_request, reply) => send(reply, 'index'));
  app.get<{ Params: { '*': string } }>('/guides/*', { config, schema }, (request, reply) => {
    const path = request.params['*'];
    return path === 'llms.txt' ? sendList(reply) : send(reply, path === '' ? 'index' : path);
  });
  app.get('/llms.txt', { config, schema }, (_request, reply) => sendList(reply));

  async function sendList(reply: FastifyReply): Promise<FastifyReply> {
    const text = await readFile(join(directory, 'llms.txt'), 'utf8').catch(() => undefined);
    if (text === undefined) return sendProgress(reply);
    return reply
      .headers(headers)
      .type('text/plain; charset=utf-8')
      .send(text.replaceAll('__BASE_URL__', baseUrl.replace(/\/$/, '')));
  }
}
