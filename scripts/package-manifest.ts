/** Builds package.json and npm-shrinkwrap.json of the package from those of the clone. */

export type Manifest = Readonly<Record<string, unknown>> & {
  name: string;
  version: string;
  dependencies: Record<string, string>;
  optionalDependencies: Record<string, string>;
};

/** `devOptional`: what only development needs, and a peer dependency that no installation of the service needs. */
type Locked = Readonly<Record<string, unknown>> & { dev?: boolean; devOptional?: boolean };
export type Lockfile = Readonly<Record<string, unknown>> & { packages: Record<string, Locked> };

/**
 * It has no scripts, so that an installation runs none, and no development dependencies. It stays private:
 * the name belongs to another package at npm, so the package is distributed as a file.
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
 * The exact tested versions of all dependencies: `npm ci` in the unpacked package installs these. npm
 * ignores it if the package is a dependency that is installed from a file.
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
