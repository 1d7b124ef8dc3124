import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import react from '@vitejs/plugin-react';
import { build } from 'esbuild';
import { defineConfig, type Plugin } from 'vite';
import { makeClientPackage, packClient } from '../scripts/client-package.ts';
import { guides } from './guides/site/plugin.ts';

/**
 * The build of the pages: one HTML document per entry, other files in `assets/` with a hash in their names, and in `client/`
 * the client for applications. The service fills in `__NONCE__` and similar placeholders for each response.
 */
export default defineConfig({
  root: import.meta.dirname,
  base: '/',
  plugins: [react(), guides(), client(), shellFirst(), usedStyles(), compressed()],
  html: { cspNonce: '__NONCE__' },
  build: {
    outDir: join(import.meta.dirname, 'dist'),
    emptyOutDir: true,
    // Inlined assets would be `data:` URLs, which the policy only allows for images.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rollupOptions: {
      input: {
        dashboard: join(import.meta.dirname, 'dashboard/index.html'),
        connect: join(import.meta.dirname, 'connect/index.html'),
        guides: join(import.meta.dirname, 'guides/index.html'),
      },
      output: {
        codeSplitting: {
          // Few files, because each request costs a round trip. The connect pages need nearly all of these, too.
          groups: [
            {
              name: 'react',
              test: /node_modules[\\/](react|react-dom|scheduler|@tanstack[\\/](query-core|react-query))[\\/]/,
              priority: 2,
            },
            {
              name: 'base',
              tags: ['$initial'],
              test: /node_modules[\\/](@mantine|@tanstack|@floating-ui|clsx)[\\/]|web[\\/](dashboard|ui)[\\/]/,
              minShareCount: 2,
              priority: 1,
            },
            // What many pages have, such as tables and filters: else a page of the dashboard is 30 files.
            {
              name: 'pages',
              test: /node_modules[\\/](@mantine|@tanstack|@floating-ui|react-remove-scroll)[\\/]|web[\\/](dashboard|ui)[\\/]/,
              minShareCount: 12,
            },
          ],
        },
      },
    },
  },
});

/** The shell of the dashboard is painted before its style sheet is loaded: the link follows it in the body. */
function shellFirst(): Plugin {
  return {
    name: 'shell-first',
    apply: 'build',
    transformIndexHtml: {
      order: 'post',
      handler(html, { path }) {
        if (!path.includes('dashboard')) return html;
        const [link = ''] = /\s*<link rel="stylesheet"[^>]*>/.exec(html) ?? [];
        return html.replace(link, '').replace('<div id="root">', `${link.trim()}\n<div id="root">`);
      },
    },
  };
}

/** Leaves out the styles of Mantine's components that no page uses: a quarter of the style sheet. */
function usedStyles(): Plugin {
  const rules = /@[^{};]*\{(?:[^{}]*\{[^{}]*\})*\s*\}|[^{}]*\{[^{}]*\}/g;
  return {
    name: 'used-styles',
    apply: 'build',
    enforce: 'post',
    generateBundle(_, bundle) {
      const files = Object.values(bundle);
      const code = files.map((file) => (file.type === 'chunk' ? file.code : '')).join('\n');
      for (const file of files) {
        if (file.type !== 'asset' || !file.fileName.endsWith('.css')) continue;
        file.source = String(file.source).replace(rules, (rule) => {
          const classes = rule.match(/(?<=\.)m_[0-9a-f]+/g) ?? [''];
          return classes.some((name) => code.includes(name)) ? rule : '';
        });
      }
    },
  };
}

/** `client/connect.js`, one script with the client for browsers, and the tarball of `@trellis-run/client`. */
function client(): Plugin {
  return {
    name: 'client',
    apply: 'build',
    async writeBundle({ dir = '' }) {
      const target = join(dir, 'client');
      await mkdir(target, { recursive: true });
      await build({
        stdin: {
          contents: "export * from './connect/index.ts'; export * from './element/index.ts';",
          resolveDir: join(import.meta.dirname, '../sdk'),
        },
        outfile: join(target, 'connect.js'),
        bundle: true,
        minify: true,
        format: 'iife',
        globalName: 'TrellisConnect',
        target: 'es2022',
        charset: 'utf8',
        legalComments: 'none',
      });
      const directory = await mkdtemp(join(tmpdir(), 'trellis-client-'));
      try {
        await makeClientPackage(directory);
        await writeFile(join(target, 'trellis-client.tgz'), await packClient(directory));
      } finally {
        await rm(directory, { recursive: true, force: true });
      }
    },
  };
}

/** Compressed copies of the assets, so that responses do not wait for compression. */
function compressed(): Plugin {
  let outDir = '';
  return {
    name: 'compressed-copies',
    apply: 'build',
    configResolved({ root, build }) {
      outDir = resolve(root, build.outDir);
    },
    // After the files of all plugins are written.
    closeBundle: {
      sequential: true,
      handler() {
        for (const folder of [join(outDir, 'assets'), join(outDir, 'client')]) {
          for (const name of readdirSync(folder)) {
            if (!/\.(js|css|svg|json)$/.test(name)) continue;
            const content = readFileSync(join(folder, name));
            if (content.length < 1024) continue;
            // The text of the guides is large, and loaded by few: Brotli would take a second of each build for it.
            if (!name.endsWith('.json'))
              writeFileSync(join(folder, `${name}.br`), brotliCompressSync(content));
            writeFileSync(join(folder, `${name}.gz`), gzipSync(content, { level: 9 }));
          }
        }
      },
    },
  };
}
