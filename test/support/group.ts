// Test files that share a process, since a start with all that it loads takes longer than what many of them test.
//
// `test/groups/server.records.1.ts` stands for a share of the files below `server/records/`; there are as many shares as
// such files. A file that cannot share says so in a line that begins with `// In a process of its own:`. Whatever no
// group has is run by itself, as every file is that is named to `node --test`.

import { globSync, readFileSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { describe } from 'node:test';

const root = join(import.meta.dirname, '../..');
const ownProcess = /^\/\/ In a process of its own: \S/m;

/** Registers the files of a group, each in a suite of its own: what it opens first and closes last is for it alone. */
export function openGroup(group: string): void {
  const files = groupsOf().get(`test/groups/${basename(group)}`);
  if (files === undefined) throw new Error(`${group} is no group of test/groups/`);
  for (const file of files) {
    describe(file, async () => {
      await import(join(root, file));
    });
  }
}

/** The paths of all groups from the root of the repository, each with those of its files. */
export function groupsOf(): Map<string, string[]> {
  const shares = Map.groupBy(globSync('test/groups/*.ts', { cwd: root }).sort(), (path) =>
    basename(path).replace(/\.\d+\.ts$/, ''),
  );
  return new Map(
    [...shares].flatMap(([place, paths]) => {
      const files = globSync(`${place.replaceAll('.', '/')}/**/*.test.ts`, { cwd: root })
        .filter((file) => !ownProcess.test(readFileSync(join(root, file), 'utf8')))
        .map((path) => ({ path, sizeBytes: statSync(join(root, path)).size }));
      return shared(files, paths.length).map((share, index) => [paths[index]!, share] as const);
    }),
  );
}

/** Files whose tests nobody else runs, of all that there are. */
export function ungrouped(): string[] {
  const grouped = new Set([...groupsOf().values()].flat());
  return globSync('**/*.test.ts', { cwd: root, exclude: (name) => name === 'node_modules' })
    .filter((file) => !grouped.has(file))
    .sort();
}

/** By size, so that the shares take about the same time: the largest file first, each to the smallest share. */
function shared(files: { path: string; sizeBytes: number }[], shares: number): string[][] {
  const loads = Array.from({ length: shares }, () => ({ paths: [] as string[], sizeBytes: 0 }));
  const order = files.toSorted(
    (one, other) => other.sizeBytes - one.sizeBytes || (one.path < other.path ? -1 : 1),
  );
  for (const { path, sizeBytes } of order) {
    const min = loads.reduce((best, load) => (load.sizeBytes < best.sizeBytes ? load : best));
    min.paths.push(path);
    min.sizeBytes += sizeBytes;
  }
  return loads.map(({ paths }) => paths.sort());
}
