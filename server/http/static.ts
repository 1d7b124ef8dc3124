import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import staticFiles from '@fastify/static';
import type { FastifyReply, FastifySchema } from 'fastify';
import type { Brand } from '../brand.ts';
import { html } from './html.ts';
import { page, privateHeaders } from './page.ts';
import type { App } from './server.ts';

/**
 * The browser's side of the service: one document for every page of the dashboard, one for the connect page, and the
 * files that they load.
 *
 * Owns how they are served and guarded. Does not own what is in them (`web/`) nor how they come to be
 * (`web-build.ts`). Where they are missing, the document is a page that tells how far their build is and turns into
 * the dashboard.
 */
export type Web = {
  /** Holds `dashboard/index.html`, `connect/index.html` and `assets/`. May appear while the service runs. */
  directory: string;
  /** What is known of a build; asked only where the document is missing. */
  building(): Building;
};
export type Building =
  | { is: 'running' }
  /** For the log: a page is for anyone, and this names paths of the machine. */
  | { is: 'failed'; why: string }
  /** Nobody builds: a service that was started some other way than by its command. */
  | { is: 'none' };

/** Below these a browser gets the dashboard, which knows by itself which page is meant. */
const addresses = ['/', '/app', '/app/*', '/invitation', '/reset-password'];

/** `frameAncestors`: origins of pages that may show the connect page in a frame, beside our own. */
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
    // A directory that is not there yet is no fault.
    suppressWarning: true,
    preCompressed: true,
  });
  app.get<{ Params: { file: string } }>('/assets/:file', { config, schema }, (request, reply) => {
    // No part of a path, and nothing that a file system reads in a way of its own.
    if (!/^[\w-][\w.-]*$/.test(request.params.file)) return reply.callNotFound();
    // A file's name changes with its content.
    reply.header('x-content-type-options', 'nosniff');
    return reply.sendFile(request.params.file, { immutable: true, maxAge: '365d', dotfiles: 'ignore' });
  });
  for (const address of addresses) {
    app.get(address, { config, schema }, async (_request, reply) => {
      const document = await read('dashboard');
      if (document === undefined) return sendProgress(reply, web.building());
      return sendDocument(reply, { document, words: { BRAND: brand.word }, headers: ownHeaders });
    });
  }
  const { origin, pathname } = new URL(baseUrl);
  const basePath = pathname.replace(/\/$/, '');
  const words = { BRAND: brand.word, BASE_URL: origin + basePath };
  const connectPage: FastifySchema = {
    operationId: 'getConnectPage',
    summary: 'The connect page',
    description:
      'Where `connect_link` of a session leads; it asks for everything else with the token of the session.',
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

/** No other page may look in, nor learn where a person goes from here. */
const ownHeaders = {
  'x-frame-options': 'DENY',
  'referrer-policy': 'same-origin',
  'cross-origin-opener-policy': 'same-origin',
};

/**
 * Scripts and styles run by the nonce of this answer or from our own files, and by nothing else. Libraries that write
 * style elements are given the nonce by the entry's `main.tsx`.
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
    /** What stands for `__NAME__` in it; nothing that a caller could choose. */
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

/** Reloads itself every second until there is a dashboard; a failed build is retried by hand, so that page stays. */
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
<a class="choice" href="/docs/"><span class="name">Interface<span class="soft">Every route, to read and to try</span></span></a>
</div>
</main>`,
  });
  if (building.is === 'running') reply.header('refresh', '1');
  return reply.code(status).headers(headers).send(body);
}
