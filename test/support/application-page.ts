import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { build } from 'esbuild';

/** A page on a site of its own that has the official client at hand. */
export async function openApplication(): Promise<{ origin: string; close: () => Server }> {
  const { outputFiles } = await build({
    stdin: {
      contents: "import Nango from '@nangohq/frontend'; window.Nango = Nango;",
      resolveDir: import.meta.dirname,
    },
    bundle: true,
    write: false,
    format: 'iife',
  });
  const script = outputFiles[0]?.text ?? '';
  const server = createServer((_request, response) => {
    response
      .setHeader('content-type', 'text/html; charset=utf-8')
      .end(
        `<!doctype html><html lang="en"><title>Application</title><link rel="icon" href="data:,"><main><h1>An application</h1></main><script>${script}</script></html>`,
      );
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return { origin: `http://127.0.0.1:${port}`, close: () => server.close() };
}
