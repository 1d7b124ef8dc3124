/** The shipped catalogue with the addresses of some definitions moved to a provider of `sandbox/profiles/`. */
import { cp, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { authModes } from '../../server/auth-modes/modes.ts';
import { type Catalog, loadCatalog, providersDirectory } from '../../server/providers/catalog.ts';

/** The providers of the mode JWT and their bases. */
const moved =
  /^(app-store-connect|box|docusign|ghost-admin|github|google|salesforce|snowflake)([-.].*)?\.yaml$/;

export async function catalogAt(origin: string, names = moved): Promise<Catalog> {
  const directory = await mkdtemp(join(tmpdir(), 'trellis-test-providers-'));
  try {
    await cp(providersDirectory, directory, { recursive: true });
    for (const file of (await readdir(directory)).filter((name) => names.test(name))) {
      const text = await readFile(join(directory, file), 'utf8');
      // Audiences and issuers of assertions stay, and the consoles of providers.
      await writeFile(
        join(directory, file),
        text.replaceAll(/(?<!^setup:\n)^( *(?:base_)?url: )https:\/\//gm, `$1${origin}/`),
      );
    }
    return loadCatalog(directory, authModes);
  } finally {
    await rm(directory, { recursive: true });
  }
}
