/** What the package's own package.json and npm-shrinkwrap.json hold, out of those of the clone. */

export type Manifest = Readonly<Record<string, unknown>> & {
  name: string;
  version: string;
  dependencies: Record<string, string>;
  optionalDependencies: Record<string, string>;
};

/** `devOptional`: what only development needs, and a peer of ours that nobody asks for. */
type Locked = Readonly<Record<string, unknown>> & { dev?: boolean; devOptional?: boolean };
export type Lockfile = Readonly<Record<string, unknown>> & { packages: Record<string, Locked> };

/**
 * Without scripts, so that installing it runs nothing of ours, and without what only development needs. It stays private:
 * the name belongs to somebody else's package at npm, so the package travels as a file.
 */
export function packageManifest(clone: Manifest): Manifest {
  const { name, version, description, license, dependencies, optionalDependencies } = clone;
  return {
    ...{ name, version, private: true, description, license },
    type: 'module',
    os: ['linux', 'darwin'],
    cpu: ['x64', 'arm64'],
    bin: { trellis: 'bin/trellis' },
    exports: {
      '.': { types: './sdk/functions/index.d.ts', default: './sdk/functions/index.js' },
      './package.json': './package.json',
    },
    dependencies,
    optionalDependencies,
  };
}

/**
 * The exact versions of everything below the package, as they were tested: `npm ci` in the unpacked package takes these. npm
 * does not look at it where the package is a dependency that comes out of a file.
 */
export function packageShrinkwrap(lockfile: Lockfile, manifest: Manifest): Lockfile {
  const { name, version, license, os, cpu, bin, dependencies, optionalDependencies } = manifest;
  const root = { name, version, license, os, cpu, bin, dependencies, optionalDependencies };
  const kept = Object.entries(lockfile.packages).filter(
    ([path, { dev, devOptional }]) => path !== '' && dev !== true && devOptional !== true,
  );
  return {
    ...{ name, version, lockfileVersion: lockfile.lockfileVersion, requires: true },
    packages: { '': root, ...Object.fromEntries(kept) },
  };
}
