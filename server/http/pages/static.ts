import { createHash, randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import staticFiles from '@fastify/static';
import type { FastifyReply, FastifyRequest, FastifySchema } from 'fastify';
import type { Brand } from '../../brand.ts';
import { AppError } from '../../errors.ts';
import type { App } from '../server.ts';
import { guideRoutes } from './guides.ts';
import { html, page, privateHeaders } from './page.ts';

/**
 * The pages of `web/`: one document for the dashboard, one for the connect page, the guides (`guides.ts`), and their files.
 * Until they are built, the document is a page that shows the state of the build and reloads itself. Also the client that
 * applications load.
 */
export type Web = {
  /**
   * Holds `dashboard/index.html`, `connect/index.html`, `guides/`, `assets/` and `client/`. May appear while the service
   * runs.
   */
  directory: string;
  /** The state of the build; called only if the document is missing. */
  building(): Building;
};
export type Building =
  | { is: 'running' }
  /** For the log only, since it names paths of the machine, and the page is public. */
  | { is: 'failed'; why: string }
  /** There is no build: the service was not started by its command. */
  | { is: 'none' };

/** The addresses of the dashboard, which selects the page itself. */
const addresses = ['/', '/app', '/app/*', '/invitation', '/reset-password'];

/** `frameAncestors`: origins, besides our own, that may show the connect page in a frame. */
export async function staticRoutes(
  app: App,
  {
    web,
    brand,
    baseUrl,
    frameAncestors,
  }: { web: Web; brand: Brand; baseUrl: string; frameAncestors: readonly string[] },
): Promise<void> {
  const read = (entry: 'dashboard' | 'connect') =>
    readFile(join(web.directory, entry, 'index.html'), 'utf8').catch(() => undefined);
  const config = { access: { by: 'anyone', isLimited: false } } as const;
  const schema = { hide: true };
  await app.register(staticFiles, {
    root: join(web.directory, 'assets'),
    serve: false,
    // The directory may not exist yet.
    suppressWarning: true,
    preCompressed: true,
  });
  app.get<{ Params: { file: string } }>('/assets/:file', { config, schema }, (request, reply) => {
    // A plain file name: no path, and no name with a special meaning for a file system.
    if (!/^[\w-][\w.-]*$/.test(request.params.file)) return reply.callNotFound();
    // A file's name changes with its content.
    reply.header('x-content-type-options', 'nosniff');
    return reply.sendFile(request.params.file, { immutable: true, maxAge: '365d', dotfiles: 'ignore' });
  });
  for (const { address, ...file } of clientFiles) {
    const directory = join(web.directory, 'client');
    app.get(address, { config, schema }, (request, reply) =>
      sendClientFile({ ...file, directory }, request, reply),
    );
  }
  for (const address of addresses) {
    app.get(address, { config, schema }, async (_request, reply) => {
      const document = await read('dashboard');
      if (document === undefined) return sendProgress(reply, web.building());
      return sendDocument(reply, { document, words: { BRAND: brand.word }, headers: ownHeaders });
    });
  }
  guideRoutes(app, {
    directory: join(web.directory, 'guides'),
    baseUrl,
    sendProgress: (reply) => sendProgress(reply, web.building()),
  });
  const { origin, pathname } = new URL(baseUrl);
  const basePath = pathname.replace(/\/$/, '');
  const words = { BRAND: brand.word, BASE_URL: origin + basePath };
  const connectPage: FastifySchema = {
    operationId: 'getConnectPage',
    summary: 'The connect page',
    description:
      'The page of the `connect_link` of a session. It loads all other data with the token of the session.',
    answers: {
      200: {
        description: 'The page.',
        type: 'text/html',
        schema: { type: 'string' },
        example: '<!doctype html>',
      },
    },
  };
  app.get('/connect/', { config, schema: connectPage }, async (_request, reply) => {
    const document = (await read('connect'))?.replaceAll('="/assets/', `="${basePath}/assets/`);
    reply.headers(privateHeaders);
    if (document === undefined) return sendProgress(reply, web.building());
    const headers = { 'referrer-policy': 'no-referrer' };
    return sendDocument(reply, { document, words, headers, framedBy: ["'self'", ...frameAncestors] });
  });
}

/** The files of the client: the address, the name in `client/`, and how long a browser keeps it. */
const clientFiles = [
  { address: '/connect.js', name: 'connect.js', cacheControl: 'public, max-age=86400' },
  { address: '/sdk/trellis-client.tgz', name: 'trellis-client.tgz', cacheControl: 'no-cache' },
] as const;

/**
 * Throws `unavailable` if the client is not built. The entity tag is that of the content, since the files of npm's
 * packages all have one date; it is weak because the compressed copies share it.
 */
async function sendClientFile(
  { directory, name, cacheControl }: { directory: string; name: string; cacheControl: string },
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const content = await readFile(join(directory, name)).catch(() => undefined);
  if (content === undefined) throw new AppError('unavailable', 'The client has not been built yet.');
  const etag = `W/"${createHash('sha256').update(content).digest('base64url')}"`;
  reply.headers({
    etag,
    'cache-control': cacheControl,
    'x-content-type-options': 'nosniff',
    'cross-origin-resource-policy': 'cross-origin',
  });
  if (hasTag(request, etag)) return reply.code(304).send();
  return reply.sendFile(name, directory, { cacheControl: false, etag: false, lastModified: false });
}

/** RFC 9110 §13.1.2. */
function hasTag({ headers }: FastifyRequest, etag: string): boolean {
  const given = headers['if-none-match']?.split(',').map((one) => one.trim()) ?? [];
  return given.some((one) => one === '*' || one === etag || `W/${one}` === etag);
}

/** Other pages can neither frame or open these pages, nor see where a person goes from here. */
const ownHeaders = {
  'x-frame-options': 'DENY',
  'referrer-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
};

/**
 * Only our own files, and scripts and styles with the nonce of this response, are allowed. The entry's `main.tsx` passes the
 * nonce to libraries that write style elements.
 */
function sendDocument(
  reply: FastifyReply,
  {
    document,
    words,
    headers,
    framedBy = ["'none'"],
  }: {
    document: string;
    /** The values for `__NAME__` in it, which must not come from a caller. */
    words: Record<string, string>;
    headers: Record<string, string>;
    framedBy?: readonly string[];
  },
): FastifyReply {
  const nonce = randomBytes(18).toString('base64url');
  const policy = [
    "default-src 'none'",
    `script-src 'self' 'nonce-${nonce}'`,
    `style-src 'self' 'nonce-${nonce}'`,
    "img-src 'self' data:",
    "font-src 'self'",
    "connect-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
    `frame-ancestors ${framedBy.join(' ')}`,
  ];
  return reply
    .headers({
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy': policy.join('; '),
      'x-content-type-options': 'nosniff',
      'cache-control': 'no-store',
      ...headers,
    })
    .send(
      document.replaceAll(/__([A-Z_]+)__/g, (whole, name) =>
        name === 'NONCE' ? nonce : (words[name] ?? whole),
      ),
    );
}

/**
 * Reloads itself every second while the build runs. A failed build is retried manually, so that page stays. The script and
 * not a `Refresh` header, since with the fragment of a set-up link browsers take that for a move within the page.
 */
function sendProgress(reply: FastifyReply, building: Building): FastifyReply {
  const told = {
    running: html`<h1>The dashboard is being built</h1>
<p class="soft">This happens once and takes less than a minute. The page turns into the dashboard by itself.</p>`,
    failed: html`<h1>The dashboard could not be built</h1>
<p class="soft">The service itself runs. Stop it, run <code>npm run build</code>, and start it again. What the build said is in
the log.</p>`,
    none: html`<h1>Trellis is running</h1>
<p class="soft">Its dashboard has not been built: run <code>npm run build</code>.</p>`,
  }[building.is];
  const { status, headers, body } = page({
    status: 200,
    title: 'Trellis',
    main: html`<main>
${told}
<div class="choices">
<a class="choice" href="/docs/"><span class="name">API reference<span class="soft">All routes, with a form to try them</span></span></a>
</div>
</main>`,
    ...(building.is === 'running' && { script: 'setTimeout(() => location.reload(), 1000);' }),
  });
  return reply.code(status).headers(headers).send(body);
}
