import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import react from '@vitejs/plugin-react';
import { defineConfig, type Plugin } from 'vite';
import { guides } from './guides/site/plugin.ts';

/**
 * The build of the pages: one HTML document per entry, other files in `assets/` with a hash in their names. The service
 * fills in `__NONCE__` and similar placeholders for each response.
 */
export default defineConfig({
  root: import.meta.dirname,
  base: '/',
  plugins: [react(), guides(), compressed()],
  html: { cspNonce: '__NONCE__' },
  build: {
    outDir: join(import.meta.dirname, 'dist'),
    emptyOutDir: true,
    // Inlined assets would be `data:` URLs, which the policy only allows for images.
    assetsInlineLimit: 0,
    rollupOptions: {
      input: {
        dashboard: join(import.meta.dirname, 'dashboard/index.html'),
        connect: join(import.meta.dirname, 'connect/index.html'),
        guides: join(import.meta.dirname, 'guides/index.html'),
      },
    },
  },
});

/** Compressed copies of the assets, so that responses do not wait for compression. */
function compressed(): Plugin {
  return {
    name: 'compressed-copies',
    apply: 'build',
    writeBundle({ dir = '' }) {
      const assets = join(dir, 'assets');
      for (const name of readdirSync(assets)) {
        if (!/\.(js|css|svg|json)$/.test(name)) continue;
        const content = readFileSync(join(assets, name));
        if (content.length < 1024) continue;
        // The text of the guides is large, and loaded by few: Brotli would take a second of each build for it.
        if (!name.endsWith('.json')) writeFileSync(join(assets, `${name}.br`), brotliCompressSync(content));
        writeFileSync(join(assets, `${name}.gz`), gzipSync(content, { level: 9 }));
      }
    },
  };
}
