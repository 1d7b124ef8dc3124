import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { build } from 'esbuild';

const officialClient = "import Nango from '@nangohq/frontend'; window.Nango = Nango;";

/**
 * A page on a site of its own that runs a module, by default one that loads the official client, and its `/cut`, which
 * leaves for the address in `to` and no longer knows the page that opened it.
 */
export async function openApplication(
  module: string = officialClient,
): Promise<{ origin: string; close: () => Server }> {
  const { outputFiles } = await build({
    stdin: { contents: module, resolveDir: import.meta.dirname },
    bundle: true,
    write: false,
    format: 'iife',
    jsx: 'automatic',
    define: { 'process.env.NODE_ENV': '"development"' },
  });
  const script = (outputFiles[0]?.text ?? '').replaceAll('</script', '<\\/script');
  const server = createServer(({ url = '' }, response) => {
    response.setHeader('content-type', 'text/html; charset=utf-8');
    if (url.startsWith('/cut')) {
      const onwards = "location.replace(new URLSearchParams(location.search).get('to'))";
      response.setHeader('cross-origin-opener-policy', 'same-origin').end(`<script>${onwards}</script>`);
      return;
    }
    response.end(
      `<!doctype html><html lang="en"><meta name="viewport" content="width=device-width"><title>Application</title><link rel="icon" href="data:,"><main><h1>An application</h1><button>Connect</button><div id="place" style="height:700px"></div></main><script>${script}</script></html>`,
    );
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return { origin: `http://127.0.0.1:${port}`, close: () => server.close() };
}
