// Groups of test files that share a process: a start with all that it loads takes longer than most files.
//
// A group takes about `groupSeconds`, by the durations that a run has measured (`test/durations.json`). It has files of one
// place (`server/records`, `test/browser`), or the files of several places that take little time. A file that changes or
// measures the state of the whole process has a line `// In a process of its own: why`; a file that `npm test` leaves out
// has a line `// Slow: why`.

import { AsyncLocalStorage } from 'node:async_hooks';
import { appendFileSync, globSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe } from 'node:test';
import { keepBrowser } from './browser.ts';

const root = join(import.meta.dirname, '../..');
const durationsFile = join(root, 'test/durations.json');
const groupSeconds = 40;

/** `seconds` is the sum of its files. */
export type Group = { name: string; files: string[]; seconds: number };

/** All test files, or those of the given paths: files, or directories with all that is below them. */
export function listTestFiles(paths: readonly string[] = []): string[] {
  const exclude = (name: string) => name === 'node_modules' || name.startsWith('.');
  const all = globSync('**/*.test.ts', { cwd: root, exclude }).sort();
  const unknown = paths.filter((path) => !all.some((file) => isBelow(file, path)));
  if (unknown.length > 0) throw new Error(`No test file has this path: ${unknown.join(', ')}`);
  return paths.length === 0 ? all : all.filter((file) => paths.some((path) => isBelow(file, path)));
}

const isBelow = (file: string, path: string) =>
  file === path || file.startsWith(`${path.replace(/\/$/, '')}/`);

const textOf = (file: string) => readFileSync(join(root, file), 'utf8');

/** Whether `npm test` leaves the file out. */
export function isSlow(file: string): boolean {
  return /^\/\/ Slow: \S/m.test(textOf(file));
}

const hasOwnProcess = (file: string) => /^\/\/ In a process of its own: \S/m.test(textOf(file));

/** A file that no run has measured yet counts as one second. */
export function readDurations(): Record<string, number> {
  return JSON.parse(readFileSync(durationsFile, 'utf8')) as Record<string, number>;
}

export function writeDurations(durations: Record<string, number>): void {
  const sorted = Object.entries(durations).toSorted(([one], [other]) => (one < other ? -1 : 1));
  writeFileSync(durationsFile, `${JSON.stringify(Object.fromEntries(sorted), undefined, 2)}\n`);
}

/** The longest group first. */
export function groupsOf(files: readonly string[], durations = readDurations()): Group[] {
  const secondsOf = (file: string) => Math.max(durations[file] ?? 1, 0.1);
  const sum = (some: readonly string[]) => some.reduce((seconds, file) => seconds + secondsOf(file), 0);
  const split = (place: string, some: readonly string[]) =>
    balance(some, { secondsOf, count: Math.ceil(sum(some) / groupSeconds) }).map((files, index) => ({
      name: `${place.replaceAll('/', '.')}.${index + 1}`,
      files,
      seconds: sum(files),
    }));
  const [own, shared] = [files.filter(hasOwnProcess), files.filter((file) => !hasOwnProcess(file))];
  const places = [...Map.groupBy(shared, placeOf)];
  const isLong = ([, inPlace]: [string, string[]]) => sum(inPlace) >= groupSeconds / 2;
  const groups = [
    ...own.map((file) => ({ name: file.replaceAll('/', '.'), files: [file], seconds: secondsOf(file) })),
    ...places.filter(isLong).flatMap(([place, inPlace]) => split(place, inPlace)),
    ...split(
      'several',
      places.filter((place) => !isLong(place)).flatMap(([, inPlace]) => inPlace),
    ),
  ];
  return groups.toSorted((one, other) => other.seconds - one.seconds || (one.name < other.name ? -1 : 1));
}

/** `server/records` of all files below it. */
const placeOf = (file: string) => file.split('/').slice(0, -1).slice(0, 2).join('/');

/** Shard `index` of `count`, from 1. The shards take about the same time. */
export function shardOf(
  groups: readonly Group[],
  { index, count }: { index: number; count: number },
): Group[] {
  return balance(groups, { secondsOf: ({ seconds }) => seconds, count })[index - 1] ?? [];
}

/** The largest item first, each to the smallest share. */
function balance<T>(
  items: readonly T[],
  { secondsOf, count }: { secondsOf: (item: T) => number; count: number },
): T[][] {
  const shares = Array.from({ length: count }, () => ({ items: [] as T[], seconds: 0 }));
  for (const item of items.toSorted((one, other) => secondsOf(other) - secondsOf(one))) {
    const min = shares.reduce((best, share) => (share.seconds < best.seconds ? share : best));
    min.items.push(item);
    min.seconds += secondsOf(item);
  }
  return shares.map((share) => share.items);
}

/** Writes a test file for each group to a directory, and returns their paths. Node runs them in this order. */
export function writeGroups(groups: readonly Group[], directory: string): string[] {
  return groups.map(({ name, files }, index) => {
    const path = join(directory, `${String(index + 1).padStart(3, '0')}.${name}.mts`);
    const opens = `await openGroup(${JSON.stringify(files, undefined, 2)});`;
    writeFileSync(path, `import { openGroup } from ${JSON.stringify(import.meta.filename)};\n\n${opens}\n`);
    return path;
  });
}

/**
 * Registers the files of a group, each in a suite of its own: what it opens first and closes last is for it alone. With
 * `TRELLIS_TEST_DURATIONS`, appends the duration of each to that file, as a line of JSON.
 */
export async function openGroup(files: readonly string[]): Promise<void> {
  if (files.some((file) => file.startsWith('test/browser/'))) keepBrowser();
  const log = process.env.TRELLIS_TEST_DURATIONS;
  const outside = AsyncLocalStorage.snapshot();
  const allLoaded = Promise.withResolvers<void>();
  for (const file of files) {
    let loading: Promise<unknown> | undefined;
    outside(() =>
      describe(file, () => {
        if (log !== undefined) recordDuration(file, log);
        loading = import(join(root, file));
        // No test runs while another file loads, since a test may have changed the clock or the environment.
        return loading.then(() => allLoaded.promise);
      }),
    );
    // Of two files that load at once and wait for the same module, one registers its tests in the suite of the other. The
    // suite fails whose file cannot be loaded.
    await loading?.catch(() => undefined);
  }
  allLoaded.resolve();
}

function recordDuration(file: string, log: string): void {
  let start = 0;
  before(() => {
    start = performance.now();
  });
  after(() => {
    const seconds = Math.round((performance.now() - start) / 100) / 10;
    appendFileSync(log, `${JSON.stringify({ file, seconds })}\n`);
  });
}
