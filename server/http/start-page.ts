import { type Html, html } from './html.ts';
import { page } from './page.ts';
import type { App } from './server.ts';

/** What a person sees who opens the service's address: that it runs, and where to go on. */
export function startPageRoutes(app: App, { sandboxUrl }: { sandboxUrl: string | undefined }): void {
  app.get('/', { config: { access: { by: 'anyone' } }, schema: { hide: true } }, async (_request, reply) => {
    const { status, headers, body } = page({
      status: 200,
      title: 'Trellis',
      main: html`<main>
<h1>Trellis is running</h1>
<p class="soft">Connect the accounts of your users, call their providers, keep a cache of their records.</p>
<div class="choices">
${choice('/docs/', { name: 'Interface', what: 'Every route, to read and to try' })}
${choice('/openapi.json', { name: 'OpenAPI', what: 'The same for programs' })}
${sandboxUrl !== undefined && choice(`${sandboxUrl}/`, { name: 'Sandbox', what: 'A provider to try everything with' })}
</div>
<p class="foot">The log of the service shows three calls to begin with.</p>
</main>`,
    });
    return reply.code(status).headers(headers).send(body);
  });
}

function choice(href: string, { name, what }: { name: string; what: string }): Html {
  return html`<a class="choice" href="${href}"><span class="name">${name}<span class="soft">${what}</span></span></a>`;
}
