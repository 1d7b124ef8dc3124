/**
 * The functions that ship with the service, out of the folder `shipped/`, one folder a provider.
 *
 * Owns how their bundles are made. A caller that has finished bundles passes those instead.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { bundle } from '../sdk/compile/bundle.ts';
import { shown } from '../sdk/compile/fault.ts';
import { findFunctions } from '../sdk/compile/files.ts';
import type { ShippedBundle } from './functions/deploys/shipped.ts';

const directory = join(import.meta.dirname, '../shipped');

/** Each function as a bundle: some tens of milliseconds for all of them. */
export async function bundleShipped(): Promise<ShippedBundle[]> {
  const files = await findFunctions(directory);
  return Promise.all(
    files.map(async ({ integrationKey: provider, kind, name, file }) => {
      const [made, source] = await Promise.all([
        bundle(directory, file),
        readFile(join(directory, file), 'utf8'),
      ]);
      if ('faults' in made) throw new Error(made.faults.map(shown).join('\n'));
      return { provider, kind, name, code: made.code, source };
    }),
  );
}
